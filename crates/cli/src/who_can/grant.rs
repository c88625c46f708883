//! Which roles and bindings give a right, judged as the API server judges them.

use serde_json::Value;

use crate::discovery::Kind;

/// What somebody wants to do.
#[derive(Debug)]
pub struct Asked {
    verb: String,
    with: With,
}

#[derive(Debug)]
enum With {
    /// A path that is no object's.
    Path(String),
    Object {
        group: String,
        /// With its subresource: `pods/log`.
        resource: String,
        subresource: Option<String>,
        /// Empty for any.
        name: String,
    },
}

/// Somebody who may, and what lets them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// User, Group or ServiceAccount.
    pub kind: String,
    /// A service account's is `namespace/name`.
    pub name: String,
    /// Where the right ends; none for everywhere.
    pub namespace: Option<String>,
    /// The binding, such as `rolebinding/jane`.
    pub binding: String,
    /// The role, such as `clusterrole/edit`.
    pub role: String,
    /// The names that the right is for; empty for all.
    pub only: Vec<String>,
}

/// All roles and bindings that count.
#[derive(Debug, Default)]
pub struct Policies {
    /// ClusterRoles.
    pub cluster_roles: Vec<Value>,
    /// ClusterRoleBindings.
    pub cluster_bindings: Vec<Value>,
    /// Roles.
    pub roles: Vec<Value>,
    /// RoleBindings.
    pub bindings: Vec<Value>,
}

impl Asked {
    /// With a path such as `/metrics`.
    pub fn path(verb: &str, path: &str) -> Asked {
        Asked { verb: verb.to_owned(), with: With::Path(path.to_owned()) }
    }

    /// With objects of a kind, or with one of them.
    pub fn object(verb: &str, kind: &Kind, subresource: Option<&str>, name: &str) -> Asked {
        let resource = match subresource {
            Some(part) => format!("{}/{part}", kind.resource),
            None => kind.resource.clone(),
        };
        let (group, subresource) = (kind.group.clone(), subresource.map(str::to_owned));
        Asked { verb: verb.to_owned(), with: With::Object { group, resource, subresource, name: name.to_owned() } }
    }

    /// Whether a rule gives the right, and for which names; none for all.
    fn allowed_by(&self, rule: &Value) -> Option<Vec<String>> {
        let has = |field: &str, fits: &dyn Fn(&str) -> bool| texts(&rule[field]).any(fits);
        if !has("verbs", &|verb| verb == "*" || verb == self.verb) {
            return None;
        }
        match &self.with {
            With::Path(path) => {
                let fits = |known: &str| match known.strip_suffix('*') {
                    Some(start) => path.starts_with(start),
                    None => known == path,
                };
                has("nonResourceURLs", &fits).then(Vec::new)
            }
            With::Object { group, resource, subresource, name } => {
                let any_part = subresource.as_ref().map(|part| format!("*/{part}"));
                let fits = |known: &str| known == "*" || known == resource || Some(known) == any_part.as_deref();
                let fits = has("apiGroups", &|known| known == "*" || known == group) && has("resources", &fits);
                let only: Vec<String> = texts(&rule["resourceNames"]).map(str::to_owned).collect();
                (fits && (only.is_empty() || name.is_empty() || only.contains(name))).then_some(only)
            }
        }
    }

    /// The same of all rules of a role: one without names is the widest.
    fn allowed_by_role(&self, role: &Value) -> Option<Vec<String>> {
        let mut names: Option<Vec<String>> = None;
        for only in role["rules"].as_array().into_iter().flatten().filter_map(|rule| self.allowed_by(rule)) {
            if only.is_empty() {
                return Some(only);
            }
            names.get_or_insert_default().extend(only);
        }
        names.map(|mut names| {
            names.sort();
            names.dedup();
            names
        })
    }
}

impl Policies {
    /// Everybody who may, in order, each with all that lets them.
    pub fn grants(&self, asked: &Asked) -> Vec<Grant> {
        let mut grants: Vec<Grant> = Vec::new();
        for (bindings, word) in [(&self.cluster_bindings, "clusterrolebinding"), (&self.bindings, "rolebinding")] {
            for binding in bindings {
                let Some((role, only)) = self.role_of(binding, asked) else { continue };
                let metadata = &binding["metadata"];
                for subject in binding["subjects"].as_array().into_iter().flatten() {
                    grants.push(Grant {
                        kind: text(&subject["kind"]).to_owned(),
                        name: match (text(&subject["kind"]), text(&subject["name"])) {
                            ("ServiceAccount", name) => format!("{}/{name}", text(&subject["namespace"])),
                            (_, name) => name.to_owned(),
                        },
                        namespace: metadata["namespace"].as_str().map(str::to_owned),
                        binding: format!("{word}/{}", text(&metadata["name"])),
                        role: role.clone(),
                        only: only.clone(),
                    });
                }
            }
        }
        grants.sort();
        grants
    }

    /// The role of a binding if it gives the right, and the names that it is for.
    fn role_of(&self, binding: &Value, asked: &Asked) -> Option<(String, Vec<String>)> {
        let (kind, name) = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
        let namespace = &binding["metadata"]["namespace"];
        let role = match kind {
            "ClusterRole" => self.cluster_roles.iter().find(|role| role["metadata"]["name"] == name),
            _ => self
                .roles
                .iter()
                .find(|role| role["metadata"]["name"] == name && role["metadata"]["namespace"] == *namespace),
        };
        let only = asked.allowed_by_role(role?)?;
        Some((format!("{}/{name}", kind.to_lowercase()), only))
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::tests::sample;

    /// Whether a rule lets somebody do something, `VERB KIND[.SUBRESOURCE][/NAME]` or `VERB /path`, and for which names.
    fn check(rule: Value, asked: &str, expected: Option<&[&str]>) {
        let (verb, with) = asked.split_once(' ').unwrap();
        let asked_for = if with.starts_with('/') {
            Asked::path(verb, with)
        } else {
            let (kind, name) = with.split_once('/').unwrap_or((with, ""));
            let (kind, part) = kind.split_once('.').map_or((kind, None), |(kind, part)| (kind, Some(part)));
            Asked::object(verb, sample().find(kind).unwrap(), part, name)
        };
        let found = asked_for.allowed_by_role(&json!({"rules": [rule]}));
        let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(found, expected, "{asked} by {rule}");
    }

    #[test]
    fn a_rule_gives_what_it_names_and_no_more() {
        let rule = |verbs: &str, group: &str, resource: &str| json!({"verbs": [verbs], "apiGroups": [group], "resources": [resource]});
        let everything: Option<&[&str]> = Some(&[]);
        check(rule("delete", "", "pods"), "delete pods", everything);
        check(rule("delete", "", "pods"), "delete pods/web", everything);
        check(rule("delete", "", "pods"), "get pods", None);
        check(rule("delete", "", "pods"), "delete deploy", None);
        check(rule("delete", "apps", "pods"), "delete pods", None);
        check(rule("*", "*", "*"), "delete deploy", everything);
        check(rule("*", "*", "*"), "get pods.log", everything);
        check(rule("get", "", "pods"), "get pods.log", None);
        check(rule("get", "", "pods/log"), "get pods.log", everything);
        check(rule("get", "", "*/log"), "get pods.log", everything);
        check(rule("get", "", "*/log"), "get pods", None);
        check(rule("*", "*", "*"), "get /metrics", None);
    }

    #[test]
    fn a_rule_for_names_gives_only_those() {
        let rule =
            json!({"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web", "db"]});
        check(rule.clone(), "delete pods/web", Some(&["db", "web"]));
        check(rule.clone(), "delete pods/other", None);
        check(rule, "delete pods", Some(&["db", "web"]));
    }

    #[test]
    fn a_path_is_given_whole_or_by_its_beginning() {
        let rule = |path: &str| json!({"verbs": ["get"], "nonResourceURLs": [path]});
        check(rule("/metrics"), "get /metrics", Some(&[]));
        check(rule("/metrics"), "get /metrics/a", None);
        check(rule("/debug/*"), "get /debug/traces", Some(&[]));
        check(rule("*"), "get /metrics", Some(&[]));
        check(rule("/metrics"), "get pods", None);
    }

    #[test]
    fn a_binding_gives_its_role_to_its_subjects_where_it_is() {
        let rules = json!([{"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}]);
        let role =
            |name: &str, namespace: Value| json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules});
        let binding = |name: &str, namespace: Value, kind: &str, role: &str, subjects: Value| {
            json!({
                "metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects,
            })
        };
        let jane = json!([{"kind": "User", "name": "jane"}]);
        let robot = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}]);
        let policies = Policies {
            cluster_roles: vec![role("edit", Value::Null)],
            cluster_bindings: vec![
                binding("all", Value::Null, "ClusterRole", "edit", jane.clone()),
                binding("gone", Value::Null, "ClusterRole", "missing", jane.clone()),
            ],
            roles: vec![role("cleaner", "shop".into()), role("cleaner", "other".into())],
            bindings: vec![
                binding("clean", "shop".into(), "Role", "cleaner", robot),
                binding("none", "third".into(), "Role", "cleaner", jane),
            ],
        };
        let told: Vec<String> = policies
            .grants(&Asked::object("delete", sample().find("pods").unwrap(), None, ""))
            .iter()
            .map(|grant| {
                let place = grant.namespace.as_deref().unwrap_or("any");
                format!("{} {} in {place} by {} of {}", grant.kind, grant.name, grant.binding, grant.role)
            })
            .collect();
        assert_eq!(
            told,
            [
                "ServiceAccount shop/robot in shop by rolebinding/clean of role/cleaner",
                "User jane in any by clusterrolebinding/all of clusterrole/edit",
            ]
        );
    }
}
