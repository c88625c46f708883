//! What changed between two values, as sets of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::atom::{Atom, Form, ListAtom, MapAtom};
use super::element::{Element, order};
use super::field_set::{Entry, FieldSet};

/// The fields that differ. No field is in more than one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the old value.
    pub removed: FieldSet,
    /// In both, and different.
    pub modified: FieldSet,
    /// Only in the new value.
    pub added: FieldSet,
}

impl Comparison {
    /// Compares two values of one form.
    pub(super) fn of(old: &Value, new: &Value, form: Form<'_>) -> Self {
        let delta = compare(Some(old), Some(new), form);
        Self { removed: delta.removed.children, modified: delta.modified.children, added: delta.added.children }
    }

    /// Without these fields and all below them.
    pub fn without(self, fields: &FieldSet) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }
}

/// What differs at one path and below it.
#[derive(Default)]
struct Delta {
    removed: Entry,
    modified: Entry,
    added: Entry,
}

impl Delta {
    fn add(&mut self, step: impl Fn() -> Element, below: Self) {
        for (mine, theirs) in
            [(&mut self.removed, below.removed), (&mut self.modified, below.modified), (&mut self.added, below.added)]
        {
            if !theirs.is_empty() {
                mine.children.add(step(), theirs);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (mine, theirs) in
            [(&mut self.removed, other.removed), (&mut self.modified, other.modified), (&mut self.added, other.added)]
        {
            mine.member |= theirs.member;
            mine.children.unite(theirs.children);
        }
    }
}

fn compare(old: Option<&Value>, new: Option<&Value>, form: Form<'_>) -> Delta {
    let mut delta = match (old, new) {
        (Some(before), Some(after)) if !form.is_same_atom(before, after) => {
            let mut delta = compare_as(form.atom(old), old, new);
            delta.merge(compare_as(form.atom(new), old, new));
            delta
        }
        (_, None) => compare_as(form.atom(old), old, new),
        _ => compare_as(form.atom(new), old, new),
    };
    delta.added.member |= old.is_none();
    delta.removed.member |= new.is_none();
    delta
}

fn compare_as(atom: Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> Delta {
    match atom {
        Atom::Scalar(_) => leaf(old, new),
        Atom::List(list) => {
            let (before, after) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let empty = before.is_none_or(Vec::is_empty) && after.is_none_or(Vec::is_empty);
            if list.is_atomic() || empty { leaf(old, new) } else { compare_items(before, after, list) }
        }
        Atom::Map(map) => {
            let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty);
            if map.atomic || empty { leaf(old, new) } else { compare_fields(before, after, map) }
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Delta {
    let mut delta = Delta::default();
    match (old, new) {
        (None, _) => delta.added.member = true,
        (_, None) => delta.removed.member = true,
        (Some(old), Some(new)) => delta.modified.member = order(old, new).is_ne(),
    }
    delta
}

fn compare_fields(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, map: MapAtom<'_>) -> Delta {
    let nothing = Map::new();
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let mut delta = Delta::default();
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    for name in new.keys().chain(gone) {
        let (before, after) = (old.get(name), new.get(name));
        // Most of an object stays as it is, and to see that needs no steps to be made.
        if before == after {
            continue;
        }
        let Some(form) = map.child(name) else { continue };
        delta.add(|| Element::field(name), compare(before, after, form));
    }
    delta
}

fn compare_items(old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, list: ListAtom<'_>) -> Delta {
    let (old, new) = (by_element(old, list), by_element(new, list));
    let steps: BTreeSet<&Element> = old.keys().chain(new.keys()).collect();
    let mut delta = Delta::default();
    for step in steps {
        let before = old.get(step).map_or(&[][..], Vec::as_slice);
        let after = new.get(step).map_or(&[][..], Vec::as_slice);
        delta.add(|| step.clone(), compare_same_items(before, after, list.item));
    }
    delta
}

/// Compares the items that have one identity. Several of them are treated as one leaf.
fn compare_same_items(old: &[&Value], new: &[&Value], form: Form<'_>) -> Delta {
    match (old, new) {
        (old @ ([] | [_]), new @ ([] | [_])) => compare(old.first().copied(), new.first().copied(), form),
        ([_, _, ..], [_, _, ..]) => {
            let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| order(a, b).is_eq());
            Delta { modified: Entry { member: !same, ..Entry::default() }, ..Delta::default() }
        }
        ([_, _, ..], new) => {
            let mut delta = new.first().map_or_else(Delta::default, |item| compare(None, Some(item), form));
            delta.removed.member = true;
            delta
        }
        (old, _) => {
            let mut delta = old.first().map_or_else(Delta::default, |item| compare(Some(item), None, form));
            delta.added.member = true;
            delta
        }
    }
}

fn by_element<'a>(items: Option<&'a Vec<Value>>, list: ListAtom<'_>) -> BTreeMap<Element, Vec<&'a Value>> {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        if let Ok(step) = list.element(item) {
            found.entry(step).or_default().push(item);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[track_caller]
    fn check(form: Form<'_>, old: Value, new: Value, removed: Value, modified: Value, added: Value) {
        let found = Comparison::of(&old, &new, form);
        let sets = json!([found.removed.encode(), found.modified.encode(), found.added.encode()]);
        assert_eq!(sets, json!([removed, modified, added]));
    }

    fn pod() -> Form<'static> {
        Form::of(kind_type("v1", "Pod").unwrap())
    }

    #[test]
    fn leaves_are_compared_and_whole_branches_come_and_go() {
        check(
            pod(),
            json!({"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"hostname": "x"}}),
            json!({"metadata": {"labels": {"a": "2", "c": "1"}}, "status": {"phase": "Pending"}}),
            json!({"f:metadata": {"f:labels": {"f:b": {}}}, "f:spec": {".": {}, "f:hostname": {}}}),
            json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
            json!({"f:metadata": {"f:labels": {"f:c": {}}}, "f:status": {".": {}, "f:phase": {}}}),
        );
    }

    #[test]
    fn items_are_compared_by_identity_and_their_order_does_not_count() {
        check(
            pod(),
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "args": ["x"]}]}}),
            json!({"spec": {"containers": [{"name": "b", "args": ["y"]}, {"name": "a", "image": "1"}]}}),
            json!({}),
            json!({"f:spec": {"f:containers": {r#"k:{"name":"b"}"#: {"f:args": {}}}}}),
            json!({}),
        );
    }

    #[test]
    fn items_that_are_there_twice_are_one_leaf() {
        let with = |images: &[&str]| {
            let items: Vec<_> = images.iter().map(|image| json!({"name": "a", "image": image})).collect();
            json!({"spec": {"containers": items}})
        };
        let at = |below: Value| json!({"f:spec": {"f:containers": {r#"k:{"name":"a"}"#: below}}});
        let none = || json!({});
        let whole = || at(json!({".": {}, "f:image": {}, "f:name": {}}));
        check(pod(), with(&["1", "2"]), with(&["1", "2"]), none(), none(), none());
        check(pod(), with(&["1", "2"]), with(&["1", "3"]), none(), at(none()), none());
        check(pod(), with(&["1", "2"]), with(&["1"]), at(none()), none(), whole());
        check(pod(), with(&["1"]), with(&["1", "2"]), whole(), none(), at(none()));
    }

    #[test]
    fn empty_and_null_and_absent_are_told_apart() {
        let meta = |labels: Value| json!({"metadata": {"labels": labels}});
        let labels = || json!({"f:metadata": {"f:labels": {}}});
        let (none, empty) = (|| json!({}), || json!({"metadata": {}}));
        check(pod(), meta(json!({})), meta(json!(null)), none(), labels(), none());
        check(pod(), empty(), meta(json!({})), none(), none(), labels());
        check(pod(), meta(json!(null)), empty(), labels(), none(), none());
        check(
            pod(),
            meta(json!({"a": "1"})),
            meta(json!({})),
            json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
            none(),
            none(),
        );
    }

    #[test]
    fn without_a_type_a_change_of_kind_is_a_change_of_the_field_and_of_what_was_below() {
        check(
            Form::Deduced,
            json!({"x": {"a": 1}, "l": [1], "n": 1}),
            json!({"x": 5, "l": [2], "n": 1.0}),
            json!({"f:x": {"f:a": {}}}),
            json!({"f:x": {}, "f:l": {}}),
            json!({}),
        );
    }
}
