//! Taking fields away from a value.

use serde_json::Value;

use super::atom::{Atom, Form};
use super::element::Element;
use super::field_set::FieldSet;

/// The value without the fields and items in the set. A list or map of which nothing is left becomes null.
pub(super) fn remove(value: Value, set: &FieldSet, form: Form<'_>) -> Value {
    match (form.atom(Some(&value)), value) {
        (Atom::Scalar(_), value) => value,
        (Atom::List(list), Value::Array(items)) if !list.is_atomic() => {
            let left = items.into_iter().filter_map(|item| match list.element(&item) {
                Ok(step) => without(item, &step, set, list.item),
                Err(_) => Some(item),
            });
            let left: Vec<_> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Atom::Map(map), Value::Object(fields)) if !map.atomic => {
            let left = fields.into_iter().filter_map(|(name, value)| {
                let step = Element::field(&name);
                let left = match map.child(&name) {
                    Some(form) => without(value, &step, set, form)?,
                    None => value,
                };
                Some((name, left))
            });
            let left: serde_json::Map<_, _> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Atom::List(_) | Atom::Map(_), _) => Value::Null,
    }
}

/// What is left of a child.
fn without(child: Value, step: &Element, set: &FieldSet, form: Form<'_>) -> Option<Value> {
    match set.get(step) {
        None => Some(child),
        Some(entry) if entry.member => None,
        Some(entry) => Some(remove(child, &entry.children, form)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[test]
    fn fields_and_items_go_and_what_is_empty_becomes_null() {
        let pod = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/x", "y/y"]},
            "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d"}], "hostname": "h"}
        });
        for (set, expected) in [
            (
                json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
                json!({"labels": {"b": "2"}, "finalizers": ["x/x", "y/y"]}),
            ),
            (json!({"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}, "f:finalizers": {}}}), json!({"labels": null})),
            (
                json!({"f:metadata": {"f:finalizers": {"v:\"x/x\"": {}}, "f:labels": {}}}),
                json!({"finalizers": ["y/y"]}),
            ),
        ] {
            let form = Form::of(kind_type("v1", "Pod").unwrap());
            let left = remove(pod.clone(), &FieldSet::decode(&set).unwrap(), form);
            assert_eq!(left["metadata"], expected, "{set}");
            assert_eq!(left["spec"], pod["spec"]);
        }
    }

    #[test]
    fn items_are_found_by_their_keys() {
        let form = Form::of(kind_type("v1", "Service").unwrap());
        let service = json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2}]}});
        let keyed = |port: u8, below: Value| {
            let key = format!(r#"k:{{"port":{port},"protocol":"TCP"}}"#);
            FieldSet::decode(&json!({"f:spec": {"f:ports": {key: below}}})).unwrap()
        };
        let left = remove(service.clone(), &keyed(2, json!({})), form);
        assert_eq!(left, json!({"spec": {"ports": [{"port": 1, "name": "a"}]}}));
        let left = remove(service, &keyed(1, json!({"f:name": {}})), form);
        assert_eq!(left, json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}}));
    }
}
