//! Whether two values mean the same.

use serde_json::Value;
use setpoint_api::Quantity;

use crate::types::{Shape, TypeRef};

/// Equal in meaning under this type: quantities by amount, an absent collection as an empty one. Without a type, equal
/// as JSON.
pub fn semantic(left: &Value, right: &Value, ty: Option<TypeRef<'_>>) -> bool {
    let Some(ty) = ty else { return left == right };
    match ty.shape() {
        Shape::Struct(_) => match (left, right) {
            (Value::Object(_), Value::Object(_)) => {
                ty.fields().iter().all(|f| semantic(&left[&*f.name], &right[&*f.name], Some(ty.to(f.ty))))
            }
            _ => left == right,
        },
        Shape::Map(map) => match (left.as_object(), right.as_object()) {
            (Some(a), Some(b)) => {
                let value = Some(ty.to(map.value));
                a.len() == b.len() && a.iter().all(|(key, x)| b.get(key).is_some_and(|y| semantic(x, y, value)))
            }
            _ => is_empty(left) && is_empty(right),
        },
        Shape::List(list) => match (left.as_array(), right.as_array()) {
            (Some(a), Some(b)) => {
                let item = Some(ty.to(list.item));
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| semantic(x, y, item))
            }
            _ => is_empty(left) && is_empty(right),
        },
        Shape::Quantity => left == right || matches!((amount(left), amount(right)), (Some(a), Some(b)) if a == b),
        Shape::Bytes => left.as_str().unwrap_or("") == right.as_str().unwrap_or(""),
        _ => left == right,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}
