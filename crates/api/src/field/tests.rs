//! Facts about field paths and field errors, taken from how Kubernetes words them.

use serde_json::json;

use super::*;

#[test]
fn a_path_prints_as_a_user_would_write_it() {
    let spec = Path::root("spec");
    let containers = spec.child("containers");
    let first = containers.index(0);
    let env = first.child("env");
    assert_eq!(env.key("FOO BAR").to_string(), "spec.containers[0].env[FOO BAR]");
    assert_eq!(spec.key("").to_string(), "spec[]");
    assert_eq!(Path::nil().to_string(), "<nil>");
    assert_eq!(Path::nil().child("key").to_string(), "key");
    assert_eq!(Path::nil().child("values").index(0).to_string(), "values[0]");
}

#[test]
fn each_kind_of_error_has_its_words() {
    let path = Path::root("f");
    for (error, expected) in [
        (FieldError::not_found(&path, "x"), r#"f: Not found: "x""#),
        (FieldError::required(&path, ""), "f: Required value"),
        (FieldError::required(&path, "say it"), "f: Required value: say it"),
        (FieldError::duplicate(&path, "x"), r#"f: Duplicate value: "x""#),
        (FieldError::invalid(&path, "x", "bad"), r#"f: Invalid value: "x": bad"#),
        (FieldError::invalid(&path, -1, "bad"), "f: Invalid value: -1: bad"),
        (FieldError::type_invalid(&path, "x", "bad"), r#"f: Invalid value: "x": bad"#),
        (
            FieldError::not_supported(&path, "x", &["a", "b"]),
            r#"f: Unsupported value: "x": supported values: "a", "b""#,
        ),
        (FieldError::not_supported(&path, "x", &[""; 0]), r#"f: Unsupported value: "x""#),
        (FieldError::forbidden(&path, "no"), "f: Forbidden: no"),
        (FieldError::too_long(&path, 128), "f: Too long: may not be more than 128 bytes"),
        (FieldError::too_long(&path, 1), "f: Too long: may not be more than 1 byte"),
        (FieldError::too_long_characters(&path, 2), "f: Too long: may not be more than 2 characters"),
        (FieldError::too_short(&path, "x", 2), "f: Too short: must be at least 2 characters"),
        (FieldError::too_many(&path, Some(7), 3), "f: Too many: 7: must have at most 3 items"),
        (FieldError::too_many(&path, None, 1), "f: Too many: must have at most 1 item"),
        (FieldError::too_few(&path, 0, 1), "f: Too few: 0: must have at least 1 item"),
        (FieldError::internal(&path, "disk on fire"), "f: Internal error: disk on fire"),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn values_print_as_go_prints_them() {
    for (value, expected) in [
        (json!("a\"b"), r#""a\"b""#),
        (json!(3), "3"),
        (json!(1.5), "1.5"),
        (json!(1.0), "1"),
        (json!(1e21), "1e+21"),
        (json!(-2.5e-7), "-2.5e-07"),
        (json!(0.0001), "0.0001"),
        (json!(123456789012345680000.0), "123456789012345680000"),
        (json!(true), "true"),
        (json!(null), "null"),
        (json!({"a": [1, "<x>"]}), r#"{"a":[1,"\u003cx\u003e"]}"#),
    ] {
        assert_eq!(BadValue::from(&value).to_string(), expected);
    }
    assert_eq!(BadValue::from("<x>").to_string(), r#""<x>""#);
    assert_eq!(BadValue::json(&json!("<x>")).to_string(), r#""\u003cx\u003e""#);
}

#[test]
fn an_aggregate_says_each_thing_once() {
    let path = Path::root("f");
    let (one, two) = (FieldError::required(&path, ""), FieldError::forbidden(&path, "no"));
    assert_eq!(aggregate(&[]), None);
    assert_eq!(aggregate(&[one.clone(), one.clone()]).as_deref(), Some("f: Required value"));
    assert_eq!(aggregate(&[one.clone(), two, one]).as_deref(), Some("[f: Required value, f: Forbidden: no]"));
}
