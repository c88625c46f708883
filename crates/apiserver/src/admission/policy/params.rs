//! Parameters of policies: objects of a kind that the policy names, found as its bindings say.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupVersion;
use setpoint_api::labels::{LabelSelector, Selector};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection};

use crate::admission::matching::LabelsOf;
use crate::admission::request::Request;
use crate::registry::{Registry, Served};
use crate::webhook_client::Surroundings;
use crate::{conversion, objects};

/// The kind of a policy's parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParamKind {
    group: String,
    version: String,
    kind: String,
}

impl ParamKind {
    pub(super) fn read(kind: &Value) -> Option<ParamKind> {
        let version: GroupVersion = kind.as_object().and(kind.text("apiVersion").parse().ok())?;
        let (group, version) = (version.group.to_string(), version.version.to_string());
        Some(ParamKind { group, version, kind: kind.text("kind").to_owned() })
    }

    fn find(&self, request: &Request<'_>) -> Option<Arc<Served>> {
        self.find_in(&request.server.kinds.current(&request.server.store))
    }

    /// The kind as it is served.
    pub(super) fn find_in(&self, registry: &Registry) -> Option<Arc<Served>> {
        let is_it = |served: &&Arc<Served>| {
            let kind = &served.kind;
            *kind.group == *self.group && *kind.version == *self.version && *kind.kind == *self.kind
        };
        registry.kinds().find(is_it).cloned()
    }
}

/// Which objects are parameters.
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<Selector, String>>,
    /// Whether requests are refused if there are none.
    needed: bool,
}

impl ParamRef {
    pub(super) fn read(reference: &Value) -> Option<ParamRef> {
        reference.as_object()?;
        let selector = reference.get("selector").filter(|selector| !selector.is_null()).map(|written| {
            let read: LabelSelector = serde_json::from_value(written.clone()).map_err(|error| error.to_string())?;
            read.selector().map_err(|error| error.to_string())
        });
        Some(ParamRef {
            name: reference.text("name").to_owned(),
            namespace: reference.text("namespace").to_owned(),
            selector,
            needed: reference.text("parameterNotFoundAction") == "Deny",
        })
    }
}

/// That the kind of parameters is served.
pub(super) fn check_kind(kind: Option<&ParamKind>, request: &Request<'_>) -> Result<(), String> {
    match kind {
        Some(kind) if kind.find(request).is_none() => {
            let version = GroupVersion::new(&*kind.group, &*kind.version);
            let shown = if kind.group.is_empty() { format!("/{version}") } else { version.to_string() };
            Err(format!("failed to find resource referenced by paramKind: '{shown}, Kind={}'", kind.kind))
        }
        _ => Ok(()),
    }
}

/// The parameters for a request; one that is none if the policy or the binding has none.
pub(super) async fn collect(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    request: &Request<'_>,
) -> Result<Vec<Option<Value>>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![None]) };
    let Some(served) = kind.find(request) else { return Ok(vec![None]) };
    let namespace = match (served.kind.namespaced, &*reference.namespace) {
        (true, "") if request.namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "") => Some(&*request.namespace),
        (true, given) => Some(given),
        (false, "") => None,
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let snapshot = request.server.store.snapshot();
    let found: Vec<Option<Value>> = match &reference.selector {
        None => {
            let object = snapshot.get(&served.stored, namespace, &reference.name);
            let values = object.iter().map(|object| objects::value(object)).collect();
            shown(request, &served, values).await?.into_iter().map(Some).collect()
        }
        Some(selector) => {
            let selector = selector.as_ref().map_err(String::clone)?;
            let everything = Selection::everything();
            let query = Query { resource: &served.stored, namespace, selection: &everything, after: None, limit: None };
            let all = snapshot.list(&query).items;
            let values = all.iter().map(|object| objects::value(object)).collect();
            let shown = shown(request, &served, values).await?.into_iter();
            shown.filter(|object| selector.matches(&LabelsOf(&object["metadata"]["labels"]))).map(Some).collect()
        }
    };
    if found.is_empty() && reference.needed {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// Parameters as their kind shows them.
async fn shown(request: &Request<'_>, served: &Served, values: Vec<Value>) -> Result<Vec<Value>, String> {
    let around = Surroundings { store: &request.server.store, chance: &request.server.chance };
    conversion::shown_values(around, served, values).await.map_err(|broken| broken.to_string())
}
