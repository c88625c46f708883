//! What upstream says of a value that doesn't fit its type after a strategic merge: it converts the merged document by Go's reflection
//! instead of reading it as JSON, and that has words of its own.

use serde_json::Value;

use crate::base64;
use crate::types::{Shape, TypeRef};

/// The first value, in the order of declaration, that Go's conversion refuses, in its words. None if all fit, or if what doesn't has a
/// reader of its own.
pub fn misfit(value: &Value, ty: TypeRef<'_>) -> Option<String> {
    match (ty.shape(), value) {
        (_, Value::Null) => None,
        (Shape::Struct(_), Value::Object(fields)) => {
            let mut declared: Vec<_> = ty.fields().iter().collect();
            declared.sort_by_key(|field| field.published.place);
            declared.into_iter().find_map(|field| misfit(fields.get(&*field.name)?, ty.to(field.ty)))
        }
        (Shape::Map(map), Value::Object(fields)) => fields.values().find_map(|value| misfit(value, ty.to(map.value))),
        (Shape::List(list), Value::Array(items)) => items.iter().find_map(|item| misfit(item, ty.to(list.item))),
        (Shape::Struct(_), other) => Some(format!("cannot restore struct from: {}", kind(other))),
        (Shape::Map(_), other) => Some(format!("cannot restore map from {}", kind(other))),
        (Shape::List(_), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Bytes, Value::String(text)) => {
            base64::decode(text).err().map(|error| format!("error decoding from json: {error}"))
        }
        (Shape::Bytes, other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => None,
        (Shape::String, Value::Number(number)) if !number.is_f64() => cannot_convert("int64", ty),
        (Shape::String, _) => Some("unrecognized type: string".to_owned()),
        (Shape::Bool, _) => Some("unrecognized type: bool".to_owned()),
        (Shape::Int32 | Shape::Int64, Value::Number(number)) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() != 0.0 => cannot_convert("float64", ty),
            _ => None,
        },
        (Shape::Int32, _) => Some("unrecognized type: int32".to_owned()),
        (Shape::Int64, _) => Some("unrecognized type: int64".to_owned()),
        (Shape::Float, Value::Number(_)) => None,
        (Shape::Float, _) => Some("unrecognized type: float64".to_owned()),
        (Shape::IntOrString, Value::String(_)) | (Shape::Time | Shape::MicroTime, Value::String(_)) => None,
        (Shape::IntOrString, Value::Number(number)) if number.as_i64().is_some() => None,
        (Shape::IntOrString, Value::Number(number)) => unreadable(&format!("number {number}"), "int32"),
        (Shape::IntOrString, other) => unreadable(json_kind(other), "int32"),
        (Shape::Time | Shape::MicroTime, other) => unreadable(json_kind(other), "string"),
        (
            Shape::Quantity
            | Shape::Raw
            | Shape::Json
            | Shape::FieldsV1
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrList(_)
            | Shape::SchemaOrStrings(_),
            _,
        ) => None,
    }
}

/// Brings numbers into the form that the conversion leaves: a whole fraction is an integer, and one too large for its field loses its
/// upper half, as in Go.
pub fn convert_numbers(value: &mut Value, ty: TypeRef<'_>) {
    match (ty.shape(), value) {
        (Shape::Struct(_) | Shape::Map(_), Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(ty) = ty.child(name) {
                    convert_numbers(value, ty);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| convert_numbers(item, ty.to(list.item)));
        }
        (shape @ (Shape::Int32 | Shape::Int64), value @ Value::Number(_)) => {
            let whole = value.as_f64().filter(|float| float.fract() == 0.0);
            let Some(number) = value.as_i64().or(whole.map(whole_number)) else { return };
            *value = if matches!(shape, Shape::Int32) { (number as i32).into() } else { number.into() };
        }
        _ => {}
    }
}

/// What is beyond all integers is the least one, as Go has it on the machines that Kubernetes runs on.
fn whole_number(float: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float.abs() >= BEYOND { i64::MIN } else { float as i64 }
}

fn cannot_convert(from: &str, ty: TypeRef<'_>) -> Option<String> {
    Some(format!("cannot convert {from} to {}", ty.get().go))
}

/// A type with a reader of its own is given the value alone: its error names no field.
fn unreadable(found: &str, expected: &str) -> Option<String> {
    Some(format!("json: cannot unmarshal {found} into Go value of type {expected}"))
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The kind of a value in Go.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[test]
    fn go_says_what_does_not_fit() {
        for (spec, expected) in [
            (json!({"containers": {"name": "a"}}), Some("cannot restore slice from map")),
            (json!({"containers": ["a"]}), Some("cannot restore struct from: string")),
            (json!({"nodeSelector": ["a"]}), Some("cannot restore map from slice")),
            (json!({"nodeSelector": {"a": 1}}), Some("cannot convert int64 to string")),
            (json!({"restartPolicy": 1}), Some("cannot convert int64 to v1.RestartPolicy")),
            (json!({"hostNetwork": "yes"}), Some("unrecognized type: bool")),
            (json!({"priority": "high"}), Some("unrecognized type: int32")),
            (json!({"priority": 1.5}), Some("cannot convert float64 to int32")),
            (
                json!({"containers": [{"livenessProbe": {"tcpSocket": {"port": {}}}}]}),
                Some("json: cannot unmarshal object into Go value of type int32"),
            ),
            (json!({"priority": 1, "volumes": null, "hostname": "h"}), None),
        ] {
            let pod = json!({"spec": spec});
            assert_eq!(misfit(&pod, kind_type("v1", "Pod").unwrap()).as_deref(), expected, "{pod}");
        }
    }

    #[test]
    fn numbers_are_cut_to_their_fields_as_in_go() {
        let mut pod = json!({"spec": {"priority": 2_147_483_648_i64, "activeDeadlineSeconds": 5.0, "nodeName": "n"}});
        convert_numbers(&mut pod, kind_type("v1", "Pod").unwrap());
        let cut = json!({"priority": -2_147_483_648_i64, "activeDeadlineSeconds": 5, "nodeName": "n"});
        assert_eq!(pod, json!({"spec": cut}));
        let mut pod = json!({"spec": {"priority": 9_223_372_036_854_775_808_u64, "activeDeadlineSeconds": 1e30}});
        convert_numbers(&mut pod, kind_type("v1", "Pod").unwrap());
        assert_eq!(pod, json!({"spec": {"priority": 0, "activeDeadlineSeconds": i64::MIN}}));
    }
}
