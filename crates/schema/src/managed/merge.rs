//! Laying an applied document over the live object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::atom::{Atom, Form, ListAtom, MapAtom};
use super::element::Element;

/// The live value with everything that the applied one mentions. Nothing is taken away: lists and maps keep what others
/// put there, and what is one field is replaced as a whole.
pub(super) fn merge(live: &Value, applied: &Value, form: Form<'_>) -> Value {
    merge_optional(Some(live), Some(applied), form).unwrap_or(Value::Null)
}

/// None where both are empty and nothing is left to print.
fn merge_optional(live: Option<&Value>, applied: Option<&Value>, form: Form<'_>) -> Option<Value> {
    match form.atom(applied.or(live)) {
        Atom::Scalar(_) => leaf(live, applied),
        Atom::List(list) => {
            let (old, new) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            let empty = old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty);
            if list.is_atomic() || empty { leaf(live, applied) } else { merge_lists(old, new, list) }
        }
        Atom::Map(map) => {
            let (old, new) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
            if map.atomic || empty { leaf(live, applied) } else { merge_maps(old, new, map) }
        }
    }
}

fn leaf(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn merge_maps(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, map: MapAtom<'_>) -> Option<Value> {
    let nothing = Map::new();
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let added = new.keys().filter(|name| !old.contains_key(*name));
    let merged = old.keys().chain(added).filter_map(|name| {
        let form = map.child(name)?;
        Some((name.clone(), merge_optional(old.get(name), new.get(name), form)?))
    });
    let merged: Map<_, _> = merged.collect();
    (!merged.is_empty()).then_some(Value::Object(merged))
}

fn merge_lists(old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, list: ListAtom<'_>) -> Option<Value> {
    let (old, new) = (Side::of(old, list), Side::of(new, list));
    let merged: Vec<_> = places(&old, &new)
        .into_iter()
        .filter_map(|place| match place {
            Place::Old(at) => merge_optional(Some(old.items[at].1), None, list.item),
            Place::New(at) => {
                let (step, item) = &new.items[at];
                merge_optional(old.by_step.get(step).copied(), Some(item), list.item)
            }
        })
        .collect();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// The items of a list that can be told apart.
struct Side<'a> {
    items: Vec<(Element, &'a Value)>,
    /// By identity; an item that is there twice counts as null, so that it is replaced and not merged.
    by_step: BTreeMap<Element, &'a Value>,
}

static NULL: Value = Value::Null;

impl<'a> Side<'a> {
    fn of(items: Option<&'a Vec<Value>>, list: ListAtom<'_>) -> Self {
        let known = items.into_iter().flatten().filter_map(|item| Some((list.element(item).ok()?, item)));
        let mut side = Self { items: known.collect(), by_step: BTreeMap::new() };
        for (step, item) in &side.items {
            side.by_step.entry(step.clone()).and_modify(|twice| *twice = &NULL).or_insert(item);
        }
        side
    }
}

/// Where an item of the merged list comes from.
enum Place {
    /// Only the live list has it.
    Old(usize),
    /// The applied list has it; the live one may have it too.
    New(usize),
}

/// The order of the merged list. Items that both lists have are ordered as applied; the others keep their place after
/// the item before them, those of the live list first.
fn places(old: &Side<'_>, new: &Side<'_>) -> Vec<Place> {
    // Steps that both lists have and that are not placed yet, in the order of the applied list.
    let mut shared = new.items.iter().map(|(step, _)| step).filter(|step| old.by_step.contains_key(*step)).peekable();
    let mut placed: BTreeSet<&Element> = BTreeSet::new();
    let mut places = Vec::with_capacity(old.items.len() + new.items.len());
    let (mut left, mut right) = (0, 0);
    loop {
        let here = old.items.get(left).map(|(step, _)| step);
        let there = new.items.get(right).map(|(step, _)| step);
        let met = here.is_some() && here == there;
        if let Some(step) = here.filter(|_| !met) {
            if !new.by_step.contains_key(step) {
                places.push(Place::Old(left));
                left += 1;
                continue;
            }
            if there.is_some() && shared.peek().is_some_and(|next| *next != step) {
                left += 1;
                continue;
            }
            left += usize::from(placed.contains(step));
        }
        match there {
            Some(step) => {
                places.push(Place::New(right));
                placed.insert(step);
                shared.next_if_eq(&step);
                right += 1;
                left += usize::from(met);
            }
            None if here.is_none() => return places,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    fn finalizers(live: &[&str], applied: &[&str]) -> Vec<String> {
        let form = Form::of(kind_type("v1", "Pod").unwrap());
        let object = |names: &[&str]| json!({"metadata": {"finalizers": names}});
        let merged = merge(&object(live), &object(applied), form);
        serde_json::from_value(merged["metadata"]["finalizers"].clone()).unwrap_or_default()
    }

    #[test]
    fn lists_keep_what_others_put_there_in_an_order_that_suits_both() {
        for (live, applied, expected) in [
            ("a b", "c", "a b c"),
            ("a b c", "c a", "b c a"),
            ("a b c", "b", "a b c"),
            ("a b c d", "d b", "a c d b"),
            ("a b", "x a", "x a b"),
            ("a b", "a x b", "a x b"),
            ("a b c", "c b a", "c b a"),
            ("", "a", "a"),
            ("a", "", "a"),
            ("a a b", "a", "a b"),
            ("a b a", "b a", "b a"),
            ("a x b", "b y a", "x b y a"),
        ] {
            let split = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
            assert_eq!(finalizers(&split(live), &split(applied)), split(expected), "{live} + {applied}");
        }
    }

    #[track_caller]
    fn check(live: Value, applied: Value, expected: Value) {
        assert_eq!(merge(&live, &applied, Form::of(kind_type("v1", "Pod").unwrap())), expected);
    }

    #[test]
    fn items_are_merged_by_key_and_single_fields_are_replaced() {
        check(
            json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}], "nodeSelector": {"a": "1"}}}),
            json!({"spec": {"containers": [{"name": "a", "args": ["z"]}], "nodeSelector": {"b": "1"}}}),
            json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["z"]}], "nodeSelector": {"b": "1"}}}),
        );
    }

    #[test]
    fn an_item_that_is_there_twice_is_replaced_by_the_applied_one() {
        check(
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]}}),
            json!({"spec": {"containers": [{"name": "a", "args": ["z"]}]}}),
            json!({"spec": {"containers": [{"name": "a", "args": ["z"]}]}}),
        );
    }

    #[test]
    fn null_replaces_a_scalar_and_leaves_the_items_of_a_map() {
        check(
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"hostname": "x"}}),
            json!({"metadata": {"labels": null}, "spec": {"hostname": null}}),
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"hostname": null}}),
        );
    }

    #[test]
    fn without_a_type_a_change_of_kind_replaces() {
        let merged = merge(&json!({"x": {"a": 1}, "y": 1}), &json!({"x": 5, "y": {"b": 2}}), Form::Deduced);
        assert_eq!(merged, json!({"x": 5, "y": {"b": 2}}));
    }
}
