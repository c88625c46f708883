//! From `kubectl apply` as it was to server-side apply: the configuration that clients keep in an annotation.

use serde_json::Value;

use super::atom::Form;
use super::comparison::Comparison;
use super::field_set::FieldSet;
use super::validity::{Duplicates, validate};
use crate::edit::Edit;
use crate::json::{self, Json};
use crate::metadata::ANNOTATIONS_BYTES_MAX;
use crate::patch::json_text;

/// Where clients keep what they applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager for which the annotation counts. Who wants none of this chooses another name.
pub const KUBECTL: &str = "kubectl";

/// The fields of the live object that still are as the client applied them last: it may take them without a conflict.
pub(super) fn fields_as_applied(live: &Value, api_version: &str, form: Form<'_>) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied = json::parse(text.as_bytes()).ok()?.into_value();
    if applied.text("apiVersion") != api_version {
        return None;
    }
    validate(live, form, Duplicates::Refused).ok()?;
    validate(&applied, form, Duplicates::Refused).ok()?;
    let change = Comparison::of(&applied, live, form);
    let all = FieldSet::of_value(&applied, form);
    Some(all.difference(&change.modified).difference(&change.added).difference(&change.removed))
}

/// Brings the annotation up to date with what is applied now, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.find_mut(&["metadata", "annotations"]) {
        annotations.remove(LAST_APPLIED);
    }
    let text = json_text(&Json::from(config)) + "\n";
    let Some(annotations) = object.find_mut(&["metadata", "annotations"]) else { return };
    annotations.set(LAST_APPLIED, text);
    let sizes = annotations
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if sizes.sum::<usize>() > ANNOTATIONS_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object.find(&["metadata", "annotations", LAST_APPLIED])?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    fn live(annotation: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": {LAST_APPLIED: annotation}},
            "data": {"a": "1", "b": "changed"}
        })
    }

    #[test]
    fn fields_that_are_as_applied_may_be_taken() {
        let form = Form::of(kind_type("v1", "ConfigMap").unwrap());
        let allowed = |text: &str| fields_as_applied(&live(text), "v1", form).map(|set| set.encode());
        let applied =
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","b":"2","c":"3"}}"#;
        let expected = json!({"f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}}, "f:data": {"f:a": {}}});
        assert_eq!(allowed(applied), Some(expected));
        for text in ["", "{", "[]", r#"{"apiVersion":"v2"}"#, r#"{"apiVersion":"v1","bogus":1}"#] {
            assert_eq!(allowed(text), None, "{text}");
        }
    }

    #[test]
    fn the_annotation_follows_what_is_applied_and_is_dropped_if_it_is_too_large() {
        let config = |value: &str| json!({"metadata": {"annotations": {LAST_APPLIED: "x"}}, "data": {"a": value}});
        let mut object = live("x");
        refresh(&mut object, &config("<"));
        let expected = "{\"data\":{\"a\":\"\\u003c\"},\"metadata\":{\"annotations\":{}}}\n";
        assert_eq!(object["metadata"]["annotations"], json!({LAST_APPLIED: expected}));
        refresh(&mut object, &config(&"x".repeat(ANNOTATIONS_BYTES_MAX)));
        assert_eq!(object["metadata"]["annotations"], json!({}));
        refresh(&mut object, &config("1"));
        assert_eq!(object["metadata"]["annotations"], json!({}));
    }
}
