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
fn nulls_that_were_applied_are_values() {
    let kind = widget(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let document = || parse(br#"{"spec":{"a":null}}"#).unwrap();
    let posted = kind.behaviour.decode(document(), kind.root_type()).unwrap().value;
    let applied = kind.behaviour.decode_merged(document(), kind.root_type()).unwrap().value;
    assert_eq!((&posted["spec"], &applied["spec"]), (&json!({}), &json!({"a": null})));
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

fn try_create(kind: &Kind, mut object: Value) -> String {
    object["apiVersion"] = json!("example.com/v1");
    object["kind"] = json!("Widget");
    object["metadata"] = json!({"name": "w", "namespace": "n"});
    let text = object.to_string();
    let (mut object, _) = read(kind, &text);
    kind.prepare_create(&mut object, &crate::Context::default());
    setpoint_api::field::aggregate(&kind.check_create(&object)).unwrap_or_default()
}

/// What is said about a value of `spec.x` under a schema.
#[track_caller]
fn check(schema: Value, value: Value, expected: &str) {
    let kind = widget(json!({"type": "object", "properties": {"x": schema}}));
    assert_eq!(try_create(&kind, json!({"spec": {"x": value}})), expected);
}

#[test]
fn types_are_checked() {
    for (schema, good, bad, found) in [
        ("string", json!("a"), json!(1), "integer"),
        ("integer", json!(1), json!("a"), "string"),
        ("integer", json!(-5), json!(1.5), "number"),
        ("integer", json!(9007199254740991.0), json!(9223372036854775808_u64), "number"),
        ("number", json!(1), json!(true), "boolean"),
        ("boolean", json!(true), json!({}), "object"),
        ("object", json!({}), json!([]), "array"),
    ] {
        check(json!({"type": schema}), good, "");
        let said = format!("spec.x: Invalid value: \"{found}\": spec.x in body must be of type {schema}: \"{found}\"");
        let range = "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.x";
        let said = if found == "number" { format!("[{said}, {range}]") } else { said };
        check(json!({"type": schema}), bad, &said);
    }
    check(json!({"x-kubernetes-int-or-string": true}), json!("1"), "");
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
    );
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        json!(["a", null]),
        "spec.x[1]: Invalid value: \"null\": spec.x[1] in body must be of type string: \"null\"",
    );
}

#[test]
fn each_keyword_takes_what_it_should() {
    let invalid = |value: &str, what: &str| format!("spec.x: Invalid value: {value}: spec.x in body {what}");
    for (schema, good, bad, expected) in [
        (json!({"type": "integer", "maximum": 5}), json!(5), json!(6), invalid("6", "should be less than or equal to 5")),
        (json!({"type": "integer", "minimum": 5}), json!(5), json!(4), invalid("4", "should be greater than or equal to 5")),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.25),
            json!(1.5),
            invalid("1.5", "should be less than 1.5"),
        ),
        (
            json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
            json!(0.5),
            json!(0),
            invalid("0", "should be greater than 0"),
        ),
        (json!({"type": "integer", "multipleOf": 3}), json!(9), json!(10), invalid("10", "should be a multiple of 3")),
        (json!({"type": "string", "minLength": 2}), json!("éé"), json!("é"), invalid("\"é\"", "should be at least 2 chars long")),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("éé"),
            json!("abc"),
            "spec.x: Too long: may not be more than 2 bytes".to_owned(),
        ),
        (json!({"type": "string", "pattern": "^a+$"}), json!("aa"), json!("b"), invalid("\"b\"", "should match '^a+$'")),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("1.2.3.4"),
            json!("x"),
            invalid("\"x\"", "must be of type ipv4: \"x\""),
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("a"),
            json!("c"),
            "spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\"".to_owned(),
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
            json!(["a"]),
            json!([]),
            invalid("0", "should have at least 1 items"),
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a"]),
            json!(["a", "b"]),
            "spec.x: Too many: 2: must have at most 1 item".to_owned(),
        ),
        (
            json!({"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}),
            json!({"a": "b"}),
            json!({}),
            invalid("0", "should have at least 1 properties"),
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({"a": "b"}),
            json!({}),
            "spec.x.a: Required value".to_owned(),
        ),
        (
            json!({"type": "string", "not": {"enum": ["a"]}}),
            json!("b"),
            json!("a"),
            "<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)".to_owned(),
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 5}]}),
            json!(4),
            json!(5),
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
                .to_owned(),
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(0),
            json!(3),
            "[<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf), spec.x: Invalid value: 3: \
             spec.x in body should be greater than or equal to 5]"
                .to_owned(),
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b"]),
            json!(["a", "b", "a", "a"]),
            "spec.x[2]: Duplicate value: \"a\"".to_owned(),
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}]),
            json!([{"k": "a"}, {"k": "a"}]),
            "spec.x[1]: Duplicate value: {\"k\":\"a\"}".to_owned(),
        ),
    ] {
        check(schema.clone(), good, "");
        check(schema, bad, &expected);
    }
}

#[test]
fn what_did_not_change_is_no_error() {
    let strict = json!({"type": "object", "properties": {
        "x": {"type": "string", "maxLength": 2},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
        }},
    }});
    let kind = widget(strict);
    let object = |spec: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
               "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": spec})
    };
    let old = object(json!({"x": "long", "list": [{"k": "a", "v": 5}, {"k": "b"}]}));
    for (spec, expected) in [
        (json!({"x": "long", "list": [{"k": "b"}, {"k": "a", "v": 5}]}), ""),
        (json!({"x": "longer"}), "spec.x: Too long: may not be more than 2 bytes"),
        (
            json!({"list": [{"k": "a", "v": 6}]}),
            "spec.list[0].v: Invalid value: 6: spec.list[0].v in body should be less than or equal to 1",
        ),
    ] {
        let errors = kind.check_update("", &object(spec), &old);
        assert_eq!(setpoint_api::field::aggregate(&errors).unwrap_or_default(), expected);
    }
}

#[test]
fn a_write_to_status_is_checked_against_the_status_alone() {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["gone"], "properties": {"gone": {"type": "string"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "enum": ["A"]}, "replicas": {"type": "integer"}}},
    }});
    let kind = kinds(&definition(schema)).unwrap().remove(0);
    let object = |status: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
               "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": {}, "status": status})
    };
    let errors = kind.check_update("status", &object(json!({"phase": "B", "replicas": -1})), &object(json!({})));
    let expected = "[status.phase: Unsupported value: \"B\": supported values: \"A\", .status.replicas: Invalid value: -1: \
                    should be a non-negative integer]";
    assert_eq!(setpoint_api::field::aggregate(&errors).unwrap_or_default(), expected);
}

#[test]
fn rules_are_asked_about_every_value() {
    let rules = |rules: Value| {
        json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'"}]}},
        }})
    };
    for (rule, spec, expected) in [
        (json!([{"rule": "self.a < self.b"}]), json!({"a": 1, "b": 2}), ""),
        (
            json!([{"rule": "self.a < self.b"}]),
            json!({"a": 2, "b": 2}),
            "spec: Invalid value: failed rule: self.a < self.b",
        ),
        (json!([{"rule": "self.a < 1", "message": "too much"}]), json!({"a": 2}), "spec: Invalid value: too much"),
        (
            json!([{"rule": "self.a < 1", "messageExpression": "'a is ' + string(self.a)", "fieldPath": ".a"}]),
            json!({"a": 2}),
            "spec.a: Invalid value: a is 2",
        ),
        (
            json!([{"rule": "self.a < 1", "message": "no", "reason": "FieldValueForbidden"}]),
            json!({"a": 2}),
            "spec: Forbidden: no",
        ),
        (
            json!([{"rule": "self.a < 1"}]),
            json!({}),
            "spec: Invalid value: \"object\": no such key: a evaluating rule: self.a < 1",
        ),
        (json!([{"rule": "self.a == oldSelf.a"}]), json!({"a": 1}), ""),
        (
            json!([{"rule": "true"}]),
            json!({"l": ["a", "x"]}),
            "spec.l[1]: Invalid value: \"x\": failed rule: self != 'x'",
        ),
        (
            json!([{"rule": "self.a < 1"}]),
            json!({"a": "no"}),
            "[spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\", <nil>: Invalid value: \
             null: some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation]",
        ),
    ] {
        assert_eq!(try_create(&widget(rules(rule)), json!({"spec": spec})), expected);
    }
}

#[test]
fn transitions_are_ruled_and_what_did_not_change_is_no_error() {
    let kind = widget(json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        "b": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
        "c": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": true},
        ]},
    }}));
    let object = |spec: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
               "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": spec})
    };
    let old = object(json!({"a": 3, "b": 9}));
    for (spec, expected) in [
        (json!({"a": 4, "b": 9}), ""),
        (json!({"a": 2, "b": 9}), "spec.a: Invalid value: 2: failed rule: self >= oldSelf"),
        (json!({"a": 3, "b": 8}), "spec.b: Invalid value: 8: failed rule: self < 5"),
        (json!({"c": "old"}), "spec.c: Invalid value: \"old\": failed rule: oldSelf.hasValue() || self == 'new'"),
        (json!({"c": "new"}), ""),
    ] {
        let errors = kind.check_update("", &object(spec), &old);
        assert_eq!(setpoint_api::field::aggregate(&errors).unwrap_or_default(), expected);
    }
}

mod never_panics {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-cé:/. -]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "string", "maxLength": 3, "pattern": "^[a-c]*$", "default": "a"})),
            Just(json!({"type": "string", "format": "date-time", "nullable": true})),
            Just(json!({"type": "integer", "format": "int32", "minimum": -5, "multipleOf": 2})),
            Just(json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true, "default": 1})),
            Just(json!({"type": "boolean", "enum": [true]})),
            Just(json!({"x-kubernetes-int-or-string": true})),
            Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
            Just(
                json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
            ),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(
                    |items| json!({"type": "array", "items": items, "x-kubernetes-list-type": "set", "maxItems": 2})
                ),
                inner
                    .clone()
                    .prop_map(|items| json!({"type": "array", "items": {"type": "object", "properties": {"a": items}},
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]})),
                inner
                    .clone()
                    .prop_map(|value| json!({"type": "object", "additionalProperties": value, "minProperties": 1})),
                (prop::collection::btree_map("[a-d]", inner, 0..4), any::<bool>()).prop_map(|(fields, open)| {
                    let mut schema = json!({"type": "object", "properties": fields, "required": ["a"], "default": {},
                        "anyOf": [{"required": ["b"]}, {"properties": {"a": {"maxLength": 1}}}]});
                    if open {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    schema
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn validation_of_anything_ends_and_reading_twice_changes_nothing(
            schema in any_schema(), spec in any_json(), before in any_json(),
        ) {
            let kind = widget(schema);
            let object = |spec: &Value| json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": spec});
            let read = |object: &Value| kind.behaviour.decode(parse(object.to_string().as_bytes()).unwrap(), kind.root_type());
            let (Ok(new), Ok(old)) = (read(&object(&spec)), read(&object(&before))) else { return Ok(()) };
            let (mut once, mut old) = (new.value, old.value);
            kind.behaviour.default(&mut once);
            kind.behaviour.default(&mut old);
            let mut twice = once.clone();
            kind.behaviour.read_stored(&mut twice);
            prop_assert_eq!(&once, &twice);
            kind.check_create(&once);
            kind.check_update("", &once, &old);
            kind.check_update("status", &once, &old);
        }
    }
}
