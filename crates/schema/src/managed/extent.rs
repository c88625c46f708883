//! The fields that a value mentions: what somebody who applies it owns.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::atom::{Atom, Form, ListAtom, MapAtom};
use super::element::Element;
use super::field_set::{Entry, FieldSet};

impl FieldSet {
    /// Every leaf of a value and every item of its lists and maps.
    pub(super) fn of_value(value: &Value, form: Form<'_>) -> Self {
        entry(value, form).children
    }
}

fn entry(value: &Value, form: Form<'_>) -> Entry {
    match form.atom(Some(value)) {
        Atom::Scalar(_) => Entry::leaf(),
        Atom::List(list) if list.is_atomic() => Entry::leaf(),
        Atom::Map(map) if map.atomic => Entry::leaf(),
        Atom::List(list) => Entry { member: false, children: items(value.as_array(), list) },
        Atom::Map(map) => Entry { member: false, children: fields(value.as_object(), map) },
    }
}

/// Stands for items that have lost what tells them apart, as may happen when all their fields are taken away: the list
/// they are in is still there.
const LOST: Element = Element::Index(-1);

fn items(items: Option<&Vec<Value>>, list: ListAtom<'_>) -> FieldSet {
    let mut found: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        let step = list.element(item).unwrap_or(LOST);
        // Items with the same identity are owned together, as one leaf.
        found.entry(step).and_modify(|twice| *twice = None).or_insert(Some(item));
    }
    let mut set = FieldSet::new();
    for (step, item) in found {
        let below = item.map_or_else(FieldSet::new, |item| entry(item, list.item).children);
        set.add(step, Entry { member: true, children: below });
    }
    set
}

fn fields(fields: Option<&Map<String, Value>>, map: MapAtom<'_>) -> FieldSet {
    let mut set = FieldSet::new();
    for (name, value) in fields.into_iter().flatten() {
        let Some(form) = map.child(name) else { continue };
        let mut entry = entry(value, form);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        entry.member |= empty || map.field(name).is_none();
        set.add(Element::field(name), entry);
    }
    set
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[track_caller]
    fn check(group_version: &str, kind: &str, value: Value, expected: Value) {
        let form = Form::of(kind_type(group_version, kind).unwrap());
        assert_eq!(FieldSet::of_value(&value, form).encode(), expected);
    }

    #[test]
    fn structs_are_not_owned_but_items_of_maps_and_lists_are() {
        check(
            "v1",
            "Pod",
            json!({
                "metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
                "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "nodeSelector": {"a": "b"}}
            }),
            json!({
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
                "f:spec": {
                    "f:containers": {r#"k:{"name":"c"}"#: {
                        ".": {}, "f:name": {},
                        "f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}}}
                    }},
                    "f:nodeSelector": {}
                }
            }),
        );
    }

    #[test]
    fn nulls_and_empty_objects_are_owned_and_empty_lists_are_not() {
        check(
            "v1",
            "Pod",
            json!({"metadata": {"labels": {}, "annotations": null}, "spec": {"containers": [], "volumes": null}}),
            json!({"f:metadata": {"f:labels": {}, "f:annotations": {}}, "f:spec": {"f:volumes": {}}}),
        );
    }

    #[test]
    fn items_that_are_there_twice_are_one_leaf() {
        check(
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}, {"name": "b"}]}}),
            json!({"f:spec": {"f:containers": {
                r#"k:{"name":"a"}"#: {}, r#"k:{"name":"b"}"#: {".": {}, "f:name": {}}
            }}}),
        );
    }

    #[test]
    fn quantities_and_times_are_leaves() {
        check(
            "v1",
            "ResourceQuota",
            json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}, "spec": {"hard": {"cpu": 1}}}),
            json!({"f:metadata": {"f:creationTimestamp": {}}, "f:spec": {"f:hard": {"f:cpu": {}}}}),
        );
    }
}
