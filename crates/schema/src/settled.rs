//! Values that reading would leave as they are.
//!
//! What a strategic merge makes is a value already. To read it again as a document means to take it apart and to build it anew, although almost
//! all of it was read before; to see that nothing would come of that takes no more than a look at it.

use serde_json::Value;
use setpoint_api::{Quantity, time};

use crate::types::{Shape, TypeRef};

/// Whether [`decode`](crate::decode::decode) would give back this very value, but for the normal form, and complain of nothing. Where that takes
/// more than a look, the answer is no.
pub fn is_settled(value: &Value, ty: TypeRef<'_>) -> bool {
    match (ty.shape(), value) {
        (_, Value::Null) => false,
        (Shape::Struct(_), Value::Object(fields)) => {
            // A null says no more than an absent field, and the normal form has none.
            let is_known = |name: &str, value: &Value| {
                ty.field(name).is_some_and(|field| value.is_null() || is_settled(value, ty.to(field.ty)))
            };
            !ty.is_custom() && fields.iter().all(|(name, value)| is_known(name, value))
        }
        // What is given empty is remembered by who reads it.
        (Shape::Map(map), Value::Object(fields)) => {
            let value_type = ty.to(map.value);
            !fields.is_empty() && fields.values().all(|value| is_settled(value, value_type))
        }
        (Shape::List(list), Value::Array(items)) => {
            let item_type = ty.to(list.item);
            !items.is_empty() && items.iter().all(|item| is_settled(item, item_type))
        }
        (Shape::String | Shape::IntOrString, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            number.as_i64().is_some_and(|whole| i32::try_from(whole).is_ok())
        }
        (Shape::Int64, Value::Number(number)) => number.is_i64(),
        (Shape::Quantity, Value::String(text)) => {
            Quantity::parse(text).is_ok_and(|quantity| quantity.to_string() == *text)
        }
        (Shape::Time, Value::String(text)) => is_moment(text, time::normalize(text)),
        (Shape::MicroTime, Value::String(text)) => is_moment(text, time::normalize_micro(text)),
        (Shape::Raw | Shape::Json | Shape::FieldsV1, value) => is_without_fractions(value),
        _ => false,
    }
}

/// Whether a time is written as it would be. The zero time is printed as null.
fn is_moment(text: &str, normal: Result<String, time::TimeError>) -> bool {
    normal.is_ok_and(|normal| normal == text && !text.starts_with("0001-"))
}

/// Of numbers with a fraction, or beyond 64 bits, the text may change.
fn is_without_fractions(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_i64(),
        Value::Array(items) => items.iter().all(is_without_fractions),
        Value::Object(fields) => fields.values().all(is_without_fractions),
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use serde_json::{Map, json};

    use super::*;
    use crate::decode::decode;
    use crate::facts::kind_type;
    use crate::json::Json;
    use crate::normal::normalize;

    #[track_caller]
    fn check(spec: Value, expected: bool) {
        let pod = json!({"metadata": {"name": "a"}, "spec": spec});
        assert_eq!(is_settled(&pod, kind_type("v1", "Pod").unwrap()), expected, "{pod}");
    }

    #[test]
    fn what_is_as_it_would_be_read_is_settled() {
        let resources = json!({"requests": {"cpu": "100m", "memory": "1Gi"}});
        check(json!({"containers": [{"name": "a", "resources": resources}], "priority": -1, "hostname": null}), true);
        let probe = |port: Value| json!({"containers": [{"livenessProbe": {"tcpSocket": {"port": port}}}]});
        check(probe(json!("web")), true);
        check(probe(json!(80)), true);
        check(probe(json!(4_294_967_296_i64)), false);
    }

    #[test]
    fn what_reading_would_change_or_complain_of_is_not() {
        for spec in [
            json!({"bogus": 1}),
            json!({"containers": [null]}),
            json!({"containers": []}),
            json!({"nodeSelector": {}}),
            json!({"priority": 1.0}),
            json!({"priority": "1"}),
            json!({"priority": 2_147_483_648_i64}),
            json!({"overhead": {"cpu": "1000m"}}),
            json!({"overhead": {"cpu": 1}}),
            json!({"hostname": ["a"]}),
        ] {
            check(spec, false);
        }
        let at = |time: &str| json!({"metadata": {"creationTimestamp": time}});
        for (time, expected) in [
            ("2024-01-01T00:00:00Z", true),
            ("2024-01-01T02:00:00+02:00", false),
            ("2024-01-01T00:00:00.5Z", false),
            ("0001-01-01T00:00:00Z", false),
            ("yesterday", false),
        ] {
            assert_eq!(is_settled(&at(time), kind_type("v1", "Pod").unwrap()), expected, "{time}");
        }
    }

    /// Something that mostly fits a type.
    fn some_value(ty: TypeRef<'_>, depth: usize, chance: &mut SmallRng) -> Value {
        let any = [json!(null), json!(1), json!(1.5), json!("x"), json!(true), json!([]), json!({}), json!({"a": [2]})];
        if chance.random_ratio(1, 200) {
            return any[chance.random_range(0..any.len())].clone();
        }
        let room = depth < 6;
        match ty.shape() {
            Shape::Struct(_) => {
                let mut fields = Map::new();
                for field in ty.fields().iter().filter(|_| room) {
                    if chance.random_ratio(1, 3) {
                        fields.insert(field.name.to_string(), some_value(ty.to(field.ty), depth + 1, chance));
                    }
                }
                Value::Object(fields)
            }
            Shape::Map(map) => json!({"k": some_value(ty.to(map.value), depth + 1, chance)}),
            Shape::List(list) => json!([some_value(ty.to(list.item), depth + 1, chance)]),
            Shape::String => json!("text"),
            Shape::Bool => json!(chance.random_bool(0.5)),
            Shape::Int32 | Shape::Int64 | Shape::IntOrString => json!(chance.random_range(-9_i64..9)),
            Shape::Float => json!(0.5),
            Shape::Bytes => json!("YQ=="),
            Shape::Quantity => json!(["1", "100m", "1Gi", "1000m"][chance.random_range(0..4)]),
            Shape::Time => json!("2024-01-01T00:00:00Z"),
            Shape::MicroTime => json!("2024-01-01T00:00:00.000000Z"),
            Shape::Raw | Shape::Json | Shape::FieldsV1 => any[chance.random_range(0..any.len())].clone(),
            Shape::SchemaOrBool(_) | Shape::SchemaOrList(_) | Shape::SchemaOrStrings(_) => json!({"type": "object"}),
        }
    }

    #[test]
    fn reading_changes_nothing_of_what_is_settled_in_any_kind() {
        let mut chance = SmallRng::seed_from_u64(5);
        let mut settled = 0;
        for kind in crate::builtin::kinds() {
            for _ in 0..60 {
                let value = some_value(kind.root_type(), 0, &mut chance);
                if !is_settled(&value, kind.root_type()) {
                    continue;
                }
                settled += 1;
                let read = decode(Json::from(value.clone()), kind.root_type()).unwrap();
                let mut normal = value;
                normalize(&mut normal, kind.root_type());
                assert_eq!((&read.value, read.strict.len(), read.emptied.len()), (&normal, 0, 0), "{}", kind.kind);
            }
        }
        assert!(settled > 1_000, "only {settled} were");
    }
}
