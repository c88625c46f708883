//! Custom kinds as a whole: from a definition to objects.

use serde_json::{Value, json};

use super::*;
use crate::json::parse;

pub(super) fn definition(schema: Value) -> Value {
    json!({
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            }],
        },
    })
}

pub(super) fn widget(spec: Value) -> Kind {
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}});
    kinds(&definition(schema)).unwrap().remove(0)
}

fn read(kind: &Kind, text: &str) -> (Value, Vec<String>) {
    let decoded = kind.behaviour.decode(parse(text.as_bytes()).unwrap(), kind.root_type()).unwrap();
    let mut value = decoded.value;
    kind.behaviour.default(&mut value);
    (value, decoded.strict)
}

#[test]
fn unknown_fields_go_and_are_named() {
    let kind = widget(json!({"type": "object", "properties": {
        "a": {"type": "string"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"c": {"type": "object"}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "integer"}}}},
    }}));
    let (value, strict) = read(
        &kind,
        r#"{"metadata":{"name":"x","bogus":1},"extra":1,"spec":{"a":"1","a":"2","z":1,"list":[{"b":"1","y":2}],
            "open":{"any":{"x":1},"c":{"gone":1}},"map":{"k":{"d":1,"e":2}}}}"#,
    );
    let expected = json!({"metadata": {"name": "x"}, "spec": {
        "a": "2", "list": [{"b": "1"}], "open": {"any": {"x": 1}, "c": {}}, "map": {"k": {"d": 1}},
    }});
    assert_eq!(value, expected);
    let unknown = ["metadata.bogus", "extra", "spec.list[0].y", "spec.map.k.e", "spec.open.c.gone", "spec.z"];
    let mut complaints = vec!["duplicate field \"spec.a\"".to_owned()];
    complaints.extend(unknown.map(|path| format!("unknown field \"{path}\"")));
    assert_eq!(strict, complaints);
}

#[test]
fn defaults_are_filled_in_and_nulls_go_where_they_are_no_value() {
    let kind = widget(json!({"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "x"},
        "n": {"type": "string", "nullable": true, "default": "x"},
        "inner": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 7}}},
        "gone": {"type": "string"},
        "kept": {"type": "string", "nullable": true},
        "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "boolean", "default": true}}}},
    }}));
    let (value, _) = read(&kind, r#"{"spec":{"a":null,"n":null,"gone":null,"kept":null,"list":[{}]}}"#);
    let expected = json!({"spec": {"a": "x", "n": null, "inner": {"deep": 7}, "kept": null, "list": [{"b": true}]}});
    assert_eq!(value, expected);
    let (value, _) = read(&kind, "{}");
    assert_eq!(value, json!({"spec": {"a": "x", "n": "x", "inner": {"deep": 7}}}));
}

#[test]
fn metadata_is_that_of_every_object() {
    let kind = widget(json!({"type": "object"}));
    let bad = parse(br#"{"metadata":{"labels":"x"}}"#).unwrap();
    let error = kind.behaviour.decode(bad, kind.root_type()).unwrap_err();
    let expected = "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn embedded_objects_keep_their_metadata() {
    let kind = widget(json!({"type": "object", "properties": {"template": {
        "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
    }}}));
    let (value, strict) = read(
        &kind,
        r#"{"spec":{"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"n","bogus":1},"spec":{"x":1}}}}"#,
    );
    let expected = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {}});
    assert_eq!(value["spec"]["template"], expected);
    assert_eq!(strict, ["unknown field \"spec.template.spec.x\"", "unknown field \"spec.template.metadata.bogus\"",]);
}

#[test]
fn equal_schemas_are_one_type() {
    let field = json!({"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}}});
    let mut other = field.clone();
    other["description"] = json!("another one");
    let kind = widget(json!({"type": "object", "properties": {"a": field, "b": other}}));
    let spec = kind.root_type().child("spec").unwrap();
    assert_eq!(spec.field("a").unwrap().ty, spec.field("b").unwrap().ty);
    assert_eq!(kind.root_type().child("metadata").unwrap().get().go, "v1.ObjectMeta");
}

#[test]
fn versions_are_in_the_order_of_discovery() {
    let mut crd = definition(json!({"type": "object"}));
    for name in ["v1beta1", "v2", "v1alpha1"] {
        let mut version = crd["spec"]["versions"][0].clone();
        version["name"] = json!(name);
        version["storage"] = json!(false);
        crd["spec"]["versions"].as_array_mut().unwrap().push(version);
    }
    crd["spec"]["versions"][3]["served"] = json!(false);
    let kinds = kinds(&crd).unwrap();
    let names: Vec<&str> = kinds.iter().map(|kind| &*kind.version).collect();
    assert_eq!(names, ["v2", "v1", "v1beta1"]);
    let mut object = json!({"apiVersion": "example.com/v2", "kind": "Widget"});
    kinds[0].behaviour.to_stored(&mut object);
    assert_eq!(object["apiVersion"], "example.com/v1");
    kinds[2].behaviour.read_stored(&mut object);
    assert_eq!(object["apiVersion"], "example.com/v1beta1");
}
