//! A stored definition without its schemas: enough for its names and conditions, and a small part of a large one.

use serde_json::Value;
use setpoint_schema::partial::{self, Part};

/// What is left out.
const SCHEMA: &str = "openAPIV3Schema";

/// Reads the JSON of a stored definition.
pub(super) fn read(json: &[u8]) -> Value {
    partial::read(json, Outline).expect("what is stored was encoded by us")
}

#[derive(Clone, Copy)]
struct Outline;

impl Part for Outline {
    fn of_member(self, name: &str) -> Option<Outline> {
        (name != SCHEMA).then_some(Outline)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn all_but_schemas_is_read() {
        let json = r#"{"a":[1,-2,0.5,true,null,"x"],"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
        let mut expected: Value = serde_json::from_str(json).unwrap();
        expected["spec"]["versions"][0]["schema"] = Value::Object(Map::new());
        assert_eq!(read(json.as_bytes()), expected);
    }
}
