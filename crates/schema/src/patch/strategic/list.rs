//! The lists of a strategic merge: merged by key or as a set, and put in order.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::level::{Level, Rule};
use super::{DIRECTIVE, Fields, SET_ORDER, field_of, merge_map, strip_directives, unknown_directive};
use crate::patch::PatchError;
use crate::patch::go_print::value_text;
use crate::patch::order::{Identity, LIST, arrange, as_map, go_type, no_merge_key, wrong_type};

/// Merges one list and puts it in the order that `$setElementOrder/<field>` asks for.
pub(super) fn set_order(
    original: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    level: Level<'_>,
) -> Result<(), PatchError> {
    let order = list_of(patch.remove(directive).unwrap_or(Value::Null))?;
    let field = field_of(directive, SET_ORDER, "invalid patch format of setElementOrder list")?;
    let live = original.get(field).map(|value| list_in(value).cloned()).transpose()?;
    let mut changes = patch.get(field).map(|value| list_in(value).cloned()).transpose()?;
    let (item, rule) = level.list(field)?;
    check_order(changes.as_deref().unwrap_or_default(), &order, rule)?;
    let kind = element_kind(live.as_deref().unwrap_or_default(), changes.as_deref().unwrap_or_default());
    let identity = match (&kind, rule.key) {
        (Ok(Element::Object), key) => Identity::Key(key),
        (_, "") => Identity::Own,
        (_, key) => Identity::Key(key),
    };
    let live_ids = live.as_deref().map_or(Ok(Vec::new()), |live| identity.of_all(live));
    let merged = match (live, &mut changes) {
        (None, None) => return Ok(()),
        (Some(live), None) => ListMerge { items: live, live: None },
        (None, Some(changes)) => {
            let mut added = Value::Array(std::mem::take(changes));
            strip_directives(&mut added);
            ListMerge { items: list_of(added)?, live: None }
        }
        (Some(live), Some(changes)) => merge_list_by(live, changes, item, rule)?,
    };
    kind?;
    let named = ordered_ids(&merged.items, &order, identity)?;
    let live = match merged.live {
        Some(live) => live,
        None => live_ids?,
    };
    let arranged = arrange(merged.items, &named, &live, identity)?;
    original.insert(field.to_owned(), Value::Array(arranged));
    patch.remove(field);
    Ok(())
}

/// What tells the items of an order list apart.
fn ordered_ids(merged: &[Value], order: &[Value], identity: Identity<'_>) -> Result<Vec<String>, PatchError> {
    if let Some(place) = order.iter().position(|item| matches!(identity, Identity::Key(_)) && !item.is_object())
        && !merged.is_empty()
    {
        return Err(PatchError::Unforeseen(format!("value for key {place} is not a map")));
    }
    identity.of_all(order)
}

/// Items of the patch must stand in the order list, and in the same order; those to be deleted don't count.
fn check_order(changes: &[Value], order: &[Value], rule: Rule<'_>) -> Result<(), PatchError> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    let identity = if rule.key.is_empty() { Identity::Own } else { Identity::Key(rule.key) };
    let mut kept = Vec::new();
    for item in changes {
        let directive = match identity {
            Identity::Own => None,
            Identity::Key(_) => as_map(item)?.get(DIRECTIVE),
        };
        if directive.and_then(Value::as_str) != Some("delete") {
            kept.push(item);
        }
    }
    let mut kept = kept.into_iter().peekable();
    for place in order {
        // Directives are stepped over only while there is order left to compare with, as upstream does.
        while kept.next_if(|item| item.get(DIRECTIVE).is_some()).is_some() {}
        let Some(item) = kept.peek() else { break };
        if identity.of(item)? == identity.of(place)? {
            kept.next();
        }
    }
    if kept.peek().is_none() {
        return Ok(());
    }
    let (changes, order) = (list_text(changes), list_text(order));
    Err(PatchError::Unforeseen(format!(
        "The order in patch list:\n{changes}\n doesn't match {SET_ORDER} list:\n{order}\n"
    )))
}

/// The live list without what `$deleteFromPrimitiveList/<field>` names.
pub(super) fn delete_items(
    live: Vec<Value>,
    gone: &mut [Value],
    item: Level<'_>,
    rule: Rule<'_>,
) -> Result<Value, PatchError> {
    if live.is_empty() && gone.is_empty() {
        return Ok(Value::Array(live));
    }
    // Objects can't be deleted this way: upstream merges them instead, so do we.
    if element_kind(&live, gone)? == Element::Object {
        return Ok(merge_list(live, gone, item, rule)?.into());
    }
    let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
    Ok(live.into_iter().filter(|item| !gone.contains(&item.to_string())).collect())
}

/// A merged list.
pub(super) struct ListMerge {
    items: Vec<Value>,
    /// What the live list looks like to a later ordering; as it was if `None`.
    live: Option<Vec<String>>,
}

impl From<ListMerge> for Value {
    fn from(list: ListMerge) -> Value {
        Value::Array(list.items)
    }
}

/// The live list after the changes, merged or replaced as its field says.
pub(super) fn merge_list_by(
    live: Vec<Value>,
    changes: &mut [Value],
    item: Level<'_>,
    rule: Rule<'_>,
) -> Result<ListMerge, PatchError> {
    match rule.merge {
        true => merge_list(live, changes, item, rule),
        false => Ok(ListMerge { items: changes.to_vec(), live: None }),
    }
}

fn merge_list(
    live: Vec<Value>,
    changes: &mut [Value],
    item: Level<'_>,
    rule: Rule<'_>,
) -> Result<ListMerge, PatchError> {
    if live.is_empty() && changes.is_empty() {
        return Ok(ListMerge { items: live, live: None });
    }
    match element_kind(&live, changes)? {
        Element::Scalar => merge_scalars(live, changes, rule),
        Element::Object if rule.key.is_empty() => {
            Err(PatchError::Unforeseen(format!("cannot merge lists without merge key for {}", item.kind())))
        }
        Element::Object => merge_objects(live, changes, item, rule.key),
    }
}

fn merge_scalars(live: Vec<Value>, changes: &[Value], rule: Rule<'_>) -> Result<ListMerge, PatchError> {
    // A declared merge key makes upstream look for maps, and fail, also here.
    let identity = if rule.key.is_empty() { Identity::Own } else { Identity::Key(rule.key) };
    let (named, order) = (identity.of_all(changes)?, identity.of_all(&live)?);
    let mut seen = HashSet::new();
    let both = live.into_iter().chain(changes.iter().cloned());
    let items = both.filter(|item| seen.insert(item.to_string())).collect();
    Ok(ListMerge { items: arrange(items, &named, &order, identity)?, live: None })
}

fn merge_objects(live: Vec<Value>, changes: &mut [Value], item: Level<'_>, key: &str) -> Result<ListMerge, PatchError> {
    let identity = Identity::Key(key);
    let special = special_items(changes, key)?;
    let plain = changes.iter_mut().filter(|change| change.get(DIRECTIVE).is_none());
    if special.replace {
        let items: Vec<Value> = plain.map(|change| change.clone()).collect();
        identity.of_all(&items)?;
        return Ok(ListMerge { items, live: None });
    }
    let length = live.len();
    let mut items: Vec<Value> = live
        .into_iter()
        .filter(|item| item.get(key).is_none_or(|id| !special.deleted.contains(&id.to_string())))
        .collect();
    let removed = length - items.len();
    let order = identity.of_all(&items);
    let mut places = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(id) = item.get(key) {
            places.entry(id.to_string()).or_insert(place);
        }
    }
    let (mut named, mut added) = (Vec::new(), Vec::new());
    for change in plain {
        let id = identity.of(change)?;
        match (places.get(&id), change) {
            (Some(&place), Value::Object(change)) => {
                if let Value::Object(fields) = items[place].take() {
                    items[place] = Value::Object(merge_map(fields, change, item)?);
                }
            }
            (_, change) => {
                places.insert(id.clone(), items.len());
                items.push(change.clone());
                added.push(id.clone());
            }
        }
        named.push(id);
    }
    let mut order = order?;
    let items = arrange(items, &named, &order, identity)?;
    // Upstream writes added items into the room that deleted ones left in the live list, so a later ordering finds as
    // many of them there.
    order.extend(added.into_iter().take(removed));
    Ok(ListMerge { items, live: Some(order) })
}

/// What the items with a directive ask for.
struct Special {
    replace: bool,
    deleted: HashSet<String>,
}

fn special_items(changes: &[Value], key: &str) -> Result<Special, PatchError> {
    let mut special = Special { replace: false, deleted: HashSet::new() };
    for fields in changes.iter().filter_map(Value::as_object) {
        let Some(directive) = fields.get(DIRECTIVE) else { continue };
        match directive.as_str() {
            Some("delete") => {
                let id = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                special.deleted.insert(id.to_string());
            }
            Some("replace") => special.replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unforeseen(message.to_owned()));
            }
            _ => return Err(unknown_directive(directive, fields)),
        }
    }
    Ok(special)
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Object,
    Scalar,
}

/// All items of both lists must be of one type, and not lists.
fn element_kind(live: &[Value], changes: &[Value]) -> Result<Element, PatchError> {
    let mut all = live.iter().chain(changes);
    let Some(first) = all.next() else {
        return Err(PatchError::Unforeseen("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
    }
    if first.is_null() || all.any(|item| go_type(item) != go_type(first)) {
        let (live, changes) = (list_text(live), list_text(changes));
        return Err(PatchError::Unforeseen(format!("list element types are not identical: [{live} {changes}]")));
    }
    Ok(if first.is_object() { Element::Object } else { Element::Scalar })
}

fn list_in(value: &Value) -> Result<&Vec<Value>, PatchError> {
    value.as_array().ok_or_else(|| wrong_type(LIST, value))
}

fn list_of(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type(LIST, &other)),
    }
}

fn list_text(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(value_text).collect();
    format!("[{}]", items.join(" "))
}
