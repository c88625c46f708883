//! Facts of merge patches.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::patch::json_text;

#[track_caller]
fn check(original: &str, patch: &str, expected: &str) {
    let patch = MergePatch::decode(patch.as_bytes(), Strictness::Lax).unwrap();
    let result = patch.apply(json::parse(original.as_bytes()).unwrap());
    assert_eq!(json_text(&result), expected);
}

#[test]
fn the_examples_of_the_rfc_hold() {
    check(r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check(r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#);
    check(r#"{"a":"b"}"#, r#"{"a":null}"#, "{}");
    check(r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#);
    check(r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check(r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#);
    check(r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#);
    check(r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#);
    check(r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#);
    check("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#);
}

#[test]
fn nulls_stay_where_kubernetes_keeps_them() {
    check("{}", r#"{"a":[null,{"b":null,"c":1}]}"#, r#"{"a":[null,{"c":1}]}"#);
    check(r#"{"a":{}}"#, r#"{"a":[{"b":null}]}"#, r#"{"a":[{"b":null}]}"#);
    check(r#"{"a":1}"#, r#"{"a":{"b":null}}"#, r#"{"a":{}}"#);
    check(r#"{"a":null}"#, r#"{"a":{"b":null}}"#, r#"{"a":{}}"#);
}

#[test]
fn objects_that_the_patch_enters_come_out_sorted() {
    check(
        r#"{"m":{"z":1,"a":2},"d":{"z":1.0,"a":2}}"#,
        r#"{"d":{"n":3}}"#,
        r#"{"d":{"a":2,"n":3,"z":1.0},"m":{"z":1,"a":2}}"#,
    );
    check(r#"{"d":{"a":"1"}}"#, r#"{"d":{"a":"5","a":"6"}}"#, r#"{"d":{"a":"6"}}"#);
}

#[test]
fn what_is_no_object_is_refused() {
    let refused = |body: &str, strictness| match MergePatch::decode(body.as_bytes(), strictness) {
        Err(PatchError::BadRequest(message)) => message,
        other => panic!("{other:?}"),
    };
    let checked = |body: &str| refused(body, Strictness::Checked);
    let no_map = |found: &str| {
        format!("error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
    };
    assert_eq!(checked("[]"), no_map("array"));
    assert_eq!(checked("1"), no_map("number"));
    assert_eq!(checked("null"), "Invalid JSON Patch");
    assert_eq!(checked(""), "error decoding patch: unexpected end of JSON input");
    assert_eq!(checked("d"), "error decoding patch: invalid character 'd' looking for beginning of value");
    assert_eq!(refused("null", Strictness::Lax), "Invalid JSON Patch");
    assert_eq!(refused("1", Strictness::Lax), "Invalid JSON Patch");
    assert_eq!(refused("{", Strictness::Lax), "Invalid JSON Patch");
    check("{}", r#"[{"a":null}]"#, "[{}]");
}

#[test]
fn doubled_fields_are_complained_about() {
    let patch = MergePatch::decode(br#"{"data":{"a":"5","a":"6"}}"#, Strictness::Checked).unwrap();
    assert_eq!(patch.complaints(), [r#"duplicate field "data.a""#]);
    let patch = MergePatch::decode(br#"{"data":{"a":"5","a":"6"}}"#, Strictness::Lax).unwrap();
    assert!(patch.complaints().is_empty());
}

/// The merge patch that makes `to` out of `from`, written the obvious way.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Value {
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match (from.get(key), value) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(key.clone(), difference(old, new));
            }
            (_, new) => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    Value::Object(patch)
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    let scalar = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,4}".prop_map(Value::from)
    ];
    let value = scalar.prop_recursive(4, 64, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-e]", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-e]", value, 0..6).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn a_difference_makes_the_one_out_of_the_other(from in object(), to in object()) {
        let patch = difference(&from, &to).to_string();
        let patch = MergePatch::decode(patch.as_bytes(), Strictness::Checked).unwrap();
        let result = patch.apply(Json::from(json!(from))).into_value();
        prop_assert_eq!(result, json!(to));
    }

    #[test]
    fn a_second_application_changes_nothing(original in object(), patch in object()) {
        let patch = json!(patch).to_string();
        let patch = MergePatch::decode(patch.as_bytes(), Strictness::Checked).unwrap();
        let once = patch.apply(Json::from(json!(original)));
        prop_assert_eq!(patch.apply(once.clone()).into_value(), once.into_value());
    }
}
