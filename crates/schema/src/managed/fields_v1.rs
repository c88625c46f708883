//! The wire form of a [`FieldSet`]: a tree of objects, where `{}` is an owned field and `"."` says that a field is owned
//! besides what is below it.

use serde_json::{Map, Value};

use super::element::{Element, ElementError};
use super::field_set::{Entry, FieldSet};

impl FieldSet {
    /// Reads `fieldsV1`. Kinds of steps that are not known are left out with all below them.
    pub fn decode(json: &Value) -> Result<Self, ElementError> {
        decode_entry(json).map(|entry| entry.children)
    }

    /// Writes `fieldsV1`.
    pub fn encode(&self) -> Value {
        Value::Object(self.entries().map(|(step, entry)| (step.encode(), encode_entry(entry))).collect())
    }
}

fn decode_entry(json: &Value) -> Result<Entry, ElementError> {
    let nothing = Map::new();
    let fields = match json {
        Value::Object(fields) => fields,
        Value::Null => &nothing,
        _ => return Err(ElementError::Malformed("a set of fields must be an object".to_owned())),
    };
    let mut entry = Entry::default();
    for (key, below) in fields {
        match Element::parse(key) {
            _ if key == "." => entry.member = true,
            Ok(step) => entry.children.add(step, decode_entry(below)?),
            Err(ElementError::Unknown) => {}
            Err(error) => return Err(error),
        }
    }
    entry.member |= entry.children.is_empty();
    Ok(entry)
}

fn encode_entry(entry: &Entry) -> Value {
    let mut below = entry.children.encode();
    if entry.member && !entry.children.is_empty() {
        below["."] = Value::Object(Map::new());
    }
    below
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_are_read_and_written() {
        let wire = json!({
            "f:data": {".": {}, "f:a": {}, "f:b": {}},
            "f:metadata": {"f:labels": {"f:x/y": {}}},
            "f:spec": {"f:ports": {r#"k:{"port":1,"protocol":"TCP"}"#: {".": {}, "f:port": {}}}, "f:set": {"v:\"p\"": {}}}
        });
        let set = FieldSet::decode(&wire).unwrap();
        assert_eq!(set.encode(), wire);
        let shown = r#".data
.data.a
.data.b
.metadata.labels.x/y
.spec.ports[port=1,protocol="TCP"]
.spec.ports[port=1,protocol="TCP"].port
.spec.set[="p"]"#;
        assert_eq!(set.to_string(), shown);
    }

    #[test]
    fn odd_forms_mean_what_they_mean_in_kubernetes() {
        for (wire, expected) in [
            (json!({}), json!({})),
            (json!({".": {}}), json!({})),
            (json!({"x:y": {}}), json!({})),
            (json!({"f:a": {"x:y": {}}}), json!({"f:a": {}})),
            (json!({"f:a": {".": {}}}), json!({"f:a": {}})),
            (json!({"f:a": null}), json!({"f:a": {}})),
            (json!({r#"k:{"b":1,"a":2.0}"#: {}}), json!({r#"k:{"a":2,"b":1}"#: {}})),
        ] {
            assert_eq!(FieldSet::decode(&wire).unwrap().encode(), expected, "{wire}");
        }
        for wire in [json!([]), json!({"f:a": 1}), json!({"f": {}}), json!({"v:x": {}})] {
            assert!(FieldSet::decode(&wire).is_err(), "{wire}");
        }
    }
}
