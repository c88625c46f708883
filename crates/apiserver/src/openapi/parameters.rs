//! The parameters of operations.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::definitions::Dialect;

/// A parameter in the path or the query string.
#[derive(Clone)]
pub(super) struct Parameter {
    name: &'static str,
    ty: &'static str,
    place: &'static str,
    about: Cow<'static, str>,
}

const fn query(name: &'static str, ty: &'static str, about: &'static str) -> Parameter {
    Parameter { name, ty, place: "query", about: Cow::Borrowed(about) }
}

/// The namespace in the path.
pub(super) const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    ty: "string",
    place: "path",
    about: Cow::Borrowed("object name and auth scope, such as for teams and projects"),
};

/// Line breaks in the answer.
pub(super) const PRETTY: Parameter =
    query("pretty", "string", "Whether the answer has line breaks. By default only for browsers, curl and wget.");

const DRY_RUN: Parameter =
    query("dryRun", "string", "All: everything is done as for a real request, but nothing is kept.");

/// The name in the path.
pub(super) fn name(kind: &str) -> Parameter {
    Parameter { name: "name", ty: "string", place: "path", about: format!("name of the {kind}").into() }
}

/// Of lists and watches.
pub(super) fn list() -> Vec<Parameter> {
    vec![
        query("allowWatchBookmarks", "boolean", "Whether a watch may send BOOKMARK events."),
        query("continue", "string", "Where the next page of a list begins, as told by the page before."),
        query(
            "fieldSelector",
            "string",
            "Restricts the list of returned objects to those whose fields match. Everything by default.",
        ),
        query(
            "labelSelector",
            "string",
            "Restricts the list of returned objects to those whose labels match. Everything by default.",
        ),
        query("limit", "integer", "Most objects in one answer; the rest is had with `continue`."),
        query("resourceVersion", "string", "From which version on a list or watch may be answered."),
        query("resourceVersionMatch", "string", "How `resourceVersion` is meant: Exact or NotOlderThan."),
        query("sendInitialEvents", "boolean", "Whether a watch begins with the objects that are there already."),
        query("timeoutSeconds", "integer", "After how many seconds a list or watch ends."),
        query("watch", "boolean", "Watch for changes to the described resources instead of listing them."),
    ]
}

/// Of creations, updates and patches. Only patches can be forced.
pub(super) fn write(patch: bool) -> Vec<Parameter> {
    let mut parameters = vec![
        DRY_RUN,
        query("fieldManager", "string", "Name of the actor who makes these changes, at most 128 characters."),
        query(
            "fieldValidation",
            "string",
            "What unknown and doubled fields lead to: Ignore, Warn (the default) or Strict.",
        ),
    ];
    if patch {
        parameters.push(query("force", "boolean", "Whether an apply takes over fields that others manage."));
    }
    parameters
}

/// Of deletions.
pub(super) fn delete() -> Vec<Parameter> {
    vec![
        DRY_RUN,
        query("gracePeriodSeconds", "integer", "How many seconds the object has to end. Zero: at once."),
        query(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            "boolean",
            "Delete even what can't be read any more.",
        ),
        query("orphanDependents", "boolean", "Deprecated, use `propagationPolicy`: whether dependents stay."),
        query("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
    ]
}

impl Parameter {
    pub(super) fn value(&self, dialect: Dialect) -> Value {
        let mut value = json!({"name": self.name, "in": self.place, "description": self.about});
        match dialect {
            Dialect::V2 => {
                value["type"] = json!(self.ty);
                value["uniqueItems"] = json!(true);
            }
            Dialect::V3 => value["schema"] = json!({"type": self.ty, "uniqueItems": true}),
        }
        if self.place == "path" {
            value["required"] = json!(true);
        }
        value
    }
}
