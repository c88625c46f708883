//! The order of a merged list: what the patch names comes in the patch's order, the rest keeps its place among it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::PatchError;
use super::go_print::value_text;

/// How the items of a list are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity<'k> {
    /// Scalars, by themselves.
    Own,
    /// Objects, by the value of this field.
    Key(&'k str),
}

impl Identity<'_> {
    /// What tells this item apart, as text; an object must have the field.
    pub fn of(self, item: &Value) -> Result<String, PatchError> {
        match self {
            Identity::Own => Ok(item.to_string()),
            Identity::Key(key) => {
                let fields = as_map(item)?;
                fields.get(key).map(Value::to_string).ok_or_else(|| no_merge_key(fields, key))
            }
        }
    }

    /// What tells each of these apart.
    pub fn of_all(self, items: &[Value]) -> Result<Vec<String>, PatchError> {
        items.iter().map(|item| self.of(item)).collect()
    }
}

/// Splits `merged` into what `named` names and the rest, orders the former by `named` and the latter by `live`, and
/// joins both: an item of the rest goes before the first named one that follows it in `live`.
pub(super) fn arrange(
    merged: Vec<Value>,
    named: &[String],
    live: &[String],
    identity: Identity<'_>,
) -> Result<Vec<Value>, PatchError> {
    let is_named: HashSet<&String> = named.iter().collect();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for item in merged {
        let id = identity.of(&item)?;
        if is_named.contains(&id) { first.push((id, item)) } else { rest.push((id, item)) }
    }
    let live = places(live);
    sort(&mut first, &places(named));
    sort(&mut rest, &live);
    Ok(join(rest, first, &live))
}

pub(super) fn as_map(item: &Value) -> Result<&Map<String, Value>, PatchError> {
    item.as_object().ok_or_else(|| wrong_type(MAP, item))
}

pub(super) fn no_merge_key(fields: &Map<String, Value>, key: &str) -> PatchError {
    let shown = value_text(&Value::Object(fields.clone()));
    PatchError::Unforeseen(format!("map: {shown} does not contain declared merge key: {key}"))
}

/// How Go names the types of an untyped object and list.
pub(super) const MAP: &str = "map[string]interface {}";
pub(super) const LIST: &str = "[]interface {}";

pub(super) fn wrong_type(expected: &str, found: &Value) -> PatchError {
    PatchError::Unforeseen(format!("expected a {expected}, but received a {}", go_type(found)))
}

/// How Go names the type of an untyped value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) => MAP,
    }
}

type Identified = (String, Value);

/// Place of the first of each.
fn places(ids: &[String]) -> HashMap<&str, usize> {
    let mut places = HashMap::with_capacity(ids.len());
    for (place, id) in ids.iter().enumerate() {
        places.entry(id.as_str()).or_insert(place);
    }
    places
}

/// Lists up to this length are sorted by insertion upstream, which shows when items have no place.
const INSERTION_MAX: usize = 20;

/// Sorts by place. Upstream calls an item without a place less than all others, and all others less than it: in a short
/// list, what comes of that is what its insertion sort makes of it; in a long one such items come first here.
fn sort(items: &mut [Identified], places: &HashMap<&str, usize>) {
    let place = |item: &Identified| places.get(item.0.as_str()).copied();
    if items.len() > INSERTION_MAX || items.iter().all(|item| place(item).is_some()) {
        items.sort_by_key(place);
        return;
    }
    for start in 1..items.len() {
        let mut at = start;
        while at > 0
            && matches!((place(&items[at]), place(&items[at - 1])), (a, b) if a.is_none() || b.is_none() || a < b)
        {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

fn join(rest: Vec<Identified>, first: Vec<Identified>, live: &HashMap<&str, usize>) -> Vec<Value> {
    let place = |item: &Identified| live.get(item.0.as_str()).copied();
    let mut joined = Vec::with_capacity(rest.len() + first.len());
    let (mut rest, mut first) = (rest.into_iter().peekable(), first.into_iter().peekable());
    while let (Some(left), Some(right)) = (rest.peek(), first.peek()) {
        let left_first = matches!((place(left), place(right)), (Some(left), Some(right)) if left < right);
        joined.extend(if left_first { rest.next() } else { first.next() });
    }
    joined.into_iter().chain(rest).chain(first).map(|(_, item)| item).collect()
}
