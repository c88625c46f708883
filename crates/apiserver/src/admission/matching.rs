//! Which writes a webhook or a policy is about: rules, and selectors of namespaces and objects.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::Status;
use setpoint_api::labels::{LabelSelector, Labels, Selector};
use setpoint_schema::Edit;

use super::pod_resources::items;
use super::request::Request;
use crate::registry::Served;

/// Which writes are meant.
#[derive(Debug)]
pub(super) struct Criteria {
    /// None of a binding's own means all.
    rules: Vec<Rule>,
    any: bool,
    excluded: Vec<Rule>,
    /// Only the version that a rule names, not the same object in another one.
    exact: bool,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
}

impl Criteria {
    /// Of a webhook: it has the fields itself.
    pub(super) fn of_webhook(webhook: &Value) -> Criteria {
        let rules = items(webhook, "rules").map(Rule::read).collect();
        Criteria { rules, any: false, excluded: Vec::new(), ..Criteria::selectors(webhook) }
    }

    /// Of a policy or one of its bindings, where no rules mean all.
    pub(super) fn of_resources(resources: &Value, any_without_rules: bool) -> Criteria {
        let rules: Vec<Rule> = items(resources, "resourceRules").map(Rule::read).collect();
        let excluded = items(resources, "excludeResourceRules").map(Rule::read).collect();
        let any = any_without_rules && rules.is_empty();
        Criteria { rules, any, excluded, ..Criteria::selectors(resources) }
    }

    fn selectors(of: &Value) -> Criteria {
        let selector = |field: &str| match of.get(field).filter(|selector| !selector.is_null()) {
            None => Ok(Selector::everything()),
            Some(written) => {
                let read: LabelSelector = serde_json::from_value(written.clone()).map_err(|error| error.to_string())?;
                read.selector().map_err(|error| error.to_string())
            }
        };
        let (namespaces, objects) = (selector("namespaceSelector"), selector("objectSelector"));
        let exact = of.text("matchPolicy") == "Exact";
        Criteria { rules: Vec::new(), any: false, excluded: Vec::new(), exact, namespaces, objects }
    }

    /// The version of the object in which the write is meant, if it is.
    pub(super) fn matched(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, Box<Status>> {
        // Rules first: most writes end there, and they cost least.
        let matched = match self.any {
            true => Some(Arc::clone(request.served)),
            false => self.rule(&self.rules, request),
        };
        let Some(matched) = matched.filter(|_| self.rule(&self.excluded, request).is_none()) else { return Ok(None) };
        let (in_namespace, is_object) = (self.is_in_namespace(request, object), self.is_object(object, old));
        if matches!(in_namespace, Ok(false)) || matches!(is_object, Ok(false)) {
            return Ok(None);
        }
        // What can't be told counts only if nothing else speaks against it.
        in_namespace?;
        is_object?;
        Ok(Some(matched))
    }

    fn is_in_namespace(&self, request: &Request<'_>, object: Option<&Value>) -> Result<bool, Box<Status>> {
        if request.namespace.is_empty() && request.served.kind.plural != "namespaces" {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| Box::new(Status::internal_error(why)))?;
        if selector.is_everything() {
            return Ok(true);
        }
        Ok(selector.matches(&LabelsOf(&request.namespace_labels(object)?)))
    }

    fn is_object(&self, object: Option<&Value>, old: Option<&Value>) -> Result<bool, Box<Status>> {
        let selector = self.objects.as_ref().map_err(|why| Box::new(Status::internal_error(why)))?;
        let is_meant = |object: &Value| selector.matches(&LabelsOf(&object["metadata"]["labels"]));
        Ok(selector.is_everything() || object.is_some_and(is_meant) || old.is_some_and(is_meant))
    }

    /// The version in which one of these rules means the request.
    fn rule(&self, rules: &[Rule], request: &Request<'_>) -> Option<Arc<Served>> {
        if rules.iter().any(|rule| rule.means(request, request.served)) {
            return Some(Arc::clone(request.served));
        }
        if self.exact || rules.is_empty() {
            return None;
        }
        let mut pairs = rules.iter().flat_map(|rule| request.equivalents().iter().map(move |other| (rule, other)));
        pairs.find(|(rule, other)| rule.means(request, other)).map(|(_, other)| Arc::clone(other))
    }
}

/// One rule: what is done to which resources.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Of policies; none are all.
    names: Vec<String>,
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let texts =
            |field: &str| items(rule, field).filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>();
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule.text("scope").to_owned(),
            names: texts("resourceNames"),
        }
    }

    fn means(&self, request: &Request<'_>, served: &Served) -> bool {
        let has = |known: &[String], wanted: &str| known.iter().any(|one| one == "*" || one == wanted);
        let kind = &served.kind;
        let is_namespace = kind.group.is_empty() && kind.plural == "namespaces";
        let in_scope = match &*self.scope {
            "Namespaced" => !is_namespace && !request.namespace.is_empty(),
            "Cluster" => is_namespace || request.namespace.is_empty(),
            _ => true,
        };
        in_scope
            && has(&self.operations, request.operation.name())
            && has(&self.groups, &kind.group)
            && has(&self.versions, &kind.version)
            && self.has_resource(&kind.plural, request.subresource)
            && (self.names.is_empty() || self.names.contains(&request.name))
    }

    fn has_resource(&self, plural: &str, subresource: &str) -> bool {
        self.resources.iter().any(|wanted| {
            let (resource, part) = wanted.split_once('/').unwrap_or((wanted, ""));
            (resource == "*" || resource == plural) && (part == "*" || part == subresource)
        })
    }
}

/// Labels of an object, as selectors read them.
pub(super) struct LabelsOf<'v>(pub(super) &'v Value);

impl Labels for LabelsOf<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}
