//! Whether values are equal, and which comes first.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::Value as Json;

use super::EvalError;
use super::reading::{Kind, Order, Reading};
use super::value::{List, Map, Value};

type Evaluated<T> = Result<T, EvalError>;

/// Whether two values are equal, as `==` tells.
pub(super) fn equal(a: &Value<'_>, b: &Value<'_>) -> Evaluated<bool> {
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a.as_str() == b.as_str(),
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Special(a), Value::Special(b)) => a == b,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b)?,
            (None, None) => true,
            _ => false,
        },
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            numbers(a, b) == Some(Ordering::Equal)
        }
        (Value::List(a), Value::List(b)) => lists(a, b)?,
        (Value::Map(a), Value::Map(b)) => maps(a, b)?,
        (Value::Preserved(a), Value::Preserved(b)) => a == b,
        (Value::List(list), _) if list.is_of_object() => return Err(EvalError::no_such_overload()),
        (Value::Map(Map::Json(_, reading)), _) if !reading.is_any() => {
            return Err(EvalError::no_such_overload());
        }
        _ => false,
    })
}

/// Whether two values are the same key of a map; numbers of different types may be.
pub(super) fn same_key(a: &Value<'_>, b: &Value<'_>) -> bool {
    equal(a, b).unwrap_or(false)
}

/// Which comes first; None if they can't be compared.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_str().cmp(b.as_str())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        _ => numbers(a, b),
    }
}

/// The order of two numbers of whatever types; None if one is none, or not a number at all.
pub(super) fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => double_and_whole(*a, whole(b)?),
        (a, Value::Double(b)) => double_and_whole(*b, whole(a)?).map(Ordering::reverse),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Uint(number) => Some((*number).into()),
        _ => None,
    }
}

fn double_and_whole(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    // All whole numbers here fit in 65 bits; beyond that the double alone decides.
    if a.abs() > 1e30 {
        return Some(if a > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let floor = a.floor();
    Some((floor as i128).cmp(&b).then(if a > floor { Ordering::Greater } else { Ordering::Equal }))
}

fn lists(a: &List<'_>, b: &List<'_>) -> Evaluated<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let Some(order) = a.unordered().and_then(Reading::unordered) else {
        for place in 0..a.len() {
            if !equal(&a.get(place)?, &b.get(place)?)? {
                return Ok(false);
            }
        }
        return Ok(true);
    };
    if order == Order::Set
        && let (List::Json(a, _), List::Json(b, _)) = (a, b)
    {
        let known: HashSet<&Json> = a.iter().collect();
        return Ok(b.iter().all(|item| known.contains(item)));
    }
    let ours = a.items()?;
    for theirs in b.items()? {
        let mut found = None;
        for item in &ours {
            if same_place(order, item, &theirs)? {
                found = Some(item);
            }
        }
        match found {
            Some(item) if equal(item, &theirs)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether two items take the same place in a list without order.
pub(super) fn same_place(order: Order<'_>, a: &Value<'_>, b: &Value<'_>) -> Evaluated<bool> {
    match (order, a, b) {
        (Order::Map(keys), Value::Map(a), Value::Map(b)) => {
            for key in keys {
                let key = super::escape::escape(key).unwrap_or(Cow::Borrowed(key));
                let same = match (a.find_text(&key)?, b.find_text(&key)?) {
                    (Some(a), Some(b)) => equal(&a, &b)?,
                    (None, None) => true,
                    _ => false,
                };
                if !same {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => equal(a, b),
    }
}

fn maps(a: &Map<'_>, b: &Map<'_>) -> Evaluated<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let Map::Json(map, reading) = a
        && reading.kind() == Kind::Object
    {
        return objects(map, a, *reading, b);
    }
    for key in a.keys() {
        let (Some(a), Some(b)) = (a.find(&key)?, b.find(&key)?) else { return Ok(false) };
        if !equal(&a, &b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn objects(map: &serde_json::Map<String, Json>, a: &Map<'_>, reading: Reading<'_>, b: &Map<'_>) -> Evaluated<bool> {
    for (key, value) in map {
        if reading.property(key).is_some() {
            // Upstream looks the property up by its own name as if it were escaped.
            match (a.find_text(key)?, b.find_text(key)?) {
                (Some(a), Some(b)) if !equal(&a, &b)? => return Ok(false),
                (Some(_), None) | (None, Some(_)) => return Ok(false),
                _ => {}
            }
        } else {
            match b {
                Map::Json(other, _) => {
                    if other.get(key).is_some_and(|other| other != value) {
                        return Ok(false);
                    }
                }
                Map::Entries(_) => return Err(EvalError::no_such_overload()),
            }
        }
    }
    Ok(true)
}
