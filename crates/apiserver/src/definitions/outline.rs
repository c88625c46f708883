//! A stored definition without its schemas: enough for its names and conditions, and a small part of a large one.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is left out.
const SCHEMA: &str = "openAPIV3Schema";

/// Reads the JSON of a stored definition.
pub(super) fn read(json: &[u8]) -> Value {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Outline.deserialize(&mut deserializer).expect("what is stored was encoded by us")
}

struct Outline;

impl<'de> DeserializeSeed<'de> for Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == SCHEMA {
                members.next_value::<IgnoredAny>()?;
            } else {
                map.insert(name, members.next_value_seed(Outline)?);
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = members.next_element_seed(Outline)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_schemas_is_read() {
        let json = r#"{"a":[1,-2,0.5,true,null,"x"],"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
        let mut expected: Value = serde_json::from_str(json).unwrap();
        expected["spec"]["versions"][0]["schema"] = Value::Object(Map::new());
        assert_eq!(read(json.as_bytes()), expected);
    }
}
