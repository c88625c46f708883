//! Scale: the size of anything that can be scaled, as its own small object.

use serde_json::{Map, Value, json};
use setpoint_api::labels::LabelSelector;

use super::super::cells;
use super::super::int_or_percent::validate_non_negative;
use crate::behaviour::ScalePaths;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

/// Columns of the table of a scale.
pub const COLUMNS: &[Column<'static>] = &[
    Column::new("Name", "string", |object, _| field(object, &["metadata", "name"]))
        .about_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "name"),
    Column::new("Desired", "integer", |object, _| cells::number(object, &["spec", "replicas"]))
        .about_field("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas"),
    Column::new("Available", "integer", |object, _| cells::number(object, &["status", "replicas"]))
        .about_field("io.k8s.api.autoscaling.v1.ScaleStatus", "replicas"),
    Column::AGE,
];

/// The `autoscaling/v1` Scale of an object.
pub fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let at = |way: &[String]| way.iter().try_fold(object, |at, name| at.get(name)).filter(|value| !value.is_null());
    let mut metadata = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.find(&["metadata", name]) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    let mut spec = Map::new();
    if let Some(replicas) = at(&paths.spec_replicas).filter(|replicas| replicas.as_i64() != Some(0)) {
        spec.insert("replicas".to_owned(), replicas.clone());
    }
    let mut status = json!({"replicas": at(&paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)});
    let selector = paths.selector.as_deref().and_then(at).map(selector_text).filter(|text| !text.is_empty());
    status.set_or_remove("selector", selector.map(Value::from));
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The rules for a Scale that somebody wrote.
pub fn validate(scale: &Node<'_>, errs: &mut Errors) {
    metadata::validate(scale, true, NameRule::SUBDOMAIN, errs);
    validate_non_negative(&scale.get("spec").get("replicas"), errs);
}

/// A selector as text: it may be one already, a plain map of labels, or a full `LabelSelector`.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let full = ["matchLabels", "matchExpressions"].iter().any(|name| selector.has(name));
    let wrapped = if full { selector.clone() } else { json!({"matchLabels": selector}) };
    let parsed = serde_json::from_value::<LabelSelector>(wrapped).ok().and_then(|selector| selector.selector().ok());
    parsed.map(|selector| selector.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::kind_type;

    #[test]
    fn a_scale_tells_the_size_and_the_selector() {
        let way = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        let paths = ScalePaths {
            spec_replicas: way("spec.replicas"),
            status_replicas: way("status.replicas"),
            selector: Some(way("spec.selector")),
        };
        let object = json!({
            "metadata": {"name": "d", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}},
            "status": {"replicas": 2},
        });
        let scale = scale_of(&object, &paths);
        assert_eq!(scale["metadata"], json!({"name": "d"}));
        assert_eq!(scale["spec"], json!({"replicas": 3}));
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a in (x,y)"}));
        let plain = json!({"spec": {"replicas": 0, "selector": {"a": "b"}}});
        assert_eq!(scale_of(&plain, &paths)["status"], json!({"replicas": 0, "selector": "a=b"}));
        assert_eq!(scale_of(&plain, &paths)["spec"], json!({}));
    }

    #[test]
    fn a_size_is_not_negative() {
        let scale = json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": -1}});
        let mut errs = Errors::new();
        validate(&Node::root(&scale, kind_type("autoscaling/v1", "Scale").unwrap()), &mut errs);
        let text: Vec<String> = errs.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(text, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]);
    }
}
