//! Facts of JSON patches.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::json::NESTING_MAX;
use crate::patch::json_text;

const DOCUMENT: &str = r#"{"m":{"z":1,"y":2},"o":{"b":"2","a":"1","n":null},"l":["x","y","z"]}"#;

fn run(original: &str, patch: &str) -> Result<String, PatchError> {
    let patch = JsonPatch::decode(patch.as_bytes(), Strictness::Lax)?;
    patch.apply(json::parse(original.as_bytes()).unwrap()).map(|json| json_text(&json))
}

/// Operations on the object `o`, and what it then is.
#[track_caller]
fn check(patch: &str, expected: &str) {
    let expected = format!(r#"{{"l":["x","y","z"],"m":{{"z":1,"y":2}},"o":{expected}}}"#);
    assert_eq!(run(DOCUMENT, patch), Ok(expected));
}

/// Operations on the list `l`, and what it then is.
#[track_caller]
fn list(patch: &str, expected: &str) {
    let result = run(DOCUMENT, patch).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["l"].to_string(), expected);
}

#[track_caller]
fn fails(patch: &str, expected: &str) {
    assert_eq!(run(DOCUMENT, patch), Err(PatchError::Unprocessable(expected.to_owned())));
}

#[test]
fn objects_are_changed() {
    check(r#"[{"op":"add","path":"/o/c","value":"3"}]"#, r#"{"a":"1","b":"2","c":"3","n":null}"#);
    check(r#"[{"op":"add","path":"/o/a","value":{"z":1,"b":2}}]"#, r#"{"a":{"z":1,"b":2},"b":"2","n":null}"#);
    check(r#"[{"op":"remove","path":"/o/b"}]"#, r#"{"a":"1","n":null}"#);
    check(r#"[{"op":"replace","path":"/o","value":{"z":[]}}]"#, r#"{"z":[]}"#);
    check(r#"[{"op":"replace","path":"/o/a","value":1.50}]"#, r#"{"a":1.50,"b":"2","n":null}"#);
    check(r#"[{"op":"move","from":"/o/b","path":"/o/c"}]"#, r#"{"a":"1","c":"2","n":null}"#);
    check(r#"[{"op":"move","from":"/o/b","path":"/o/b"}]"#, r#"{"a":"1","b":"2","n":null}"#);
    check(r#"[{"op":"copy","from":"/o/b","path":"/o/c"}]"#, r#"{"a":"1","b":"2","c":"2","n":null}"#);
    check(
        r#"[{"op":"copy","from":"/o","path":"/o/c"}]"#,
        r#"{"a":"1","b":"2","c":{"a":"1","b":"2","n":null},"n":null}"#,
    );
    check(r#"[{"op":"add","path":"/o/a~1b~0c","value":1}]"#, r#"{"a":"1","a/b~c":1,"b":"2","n":null}"#);
    check(r#"[{"op":"add","path":"/o/~01","value":1}]"#, r#"{"a":"1","b":"2","n":null,"~1":1}"#);
    check("[]", r#"{"b":"2","a":"1","n":null}"#);
}

#[test]
fn habits_of_kubernetes_beyond_the_rfc() {
    check(r#"[{"op":"replace","path":"/o/new","value":"v"}]"#, r#"{"a":"1","b":"2","n":null,"new":"v"}"#);
    check(r#"[{"op":"copy","from":"/o/none","path":"/o/c"}]"#, r#"{"a":"1","b":"2","c":null,"n":null}"#);
    check(r#"[{"op":"add","path":"/o/c"}]"#, r#"{"a":"1","b":"2","c":null,"n":null}"#);
    check(r#"[{"op":"add","path":"x/o/c","value":1}]"#, r#"{"a":"1","b":"2","c":1,"n":null}"#);
    check(r#"[{"op":"add","path":"/o/c","value":1,"op":"test","op":"add"}]"#, r#"{"a":"1","b":"2","c":1,"n":null}"#);
    assert_eq!(
        run(DOCUMENT, "null").unwrap(),
        r#"{"l":["x","y","z"],"m":{"z":1,"y":2},"o":{"b":"2","a":"1","n":null}}"#
    );
    assert_eq!(
        run(DOCUMENT, r#"[{"op":"replace","path":"","value":[1]},{"op":"add","path":"/-","value":2}]"#).unwrap(),
        "[1,2]"
    );
}

#[test]
fn the_whole_document_is_replaced() {
    let patch = r#"[{"op":"replace","path":"","value":{"b":{"z":1,"y":2},"a":1}}]"#;
    assert_eq!(run(DOCUMENT, patch).unwrap(), r#"{"a":1,"b":{"z":1,"y":2}}"#);
}

#[test]
fn lists_are_changed() {
    list(r#"[{"op":"add","path":"/l/-","value":"n"}]"#, r#"["x","y","z","n"]"#);
    list(r#"[{"op":"add","path":"/l/0","value":"n"}]"#, r#"["n","x","y","z"]"#);
    list(r#"[{"op":"add","path":"/l/3","value":"n"}]"#, r#"["x","y","z","n"]"#);
    list(r#"[{"op":"add","path":"/l/-1","value":"n"}]"#, r#"["x","y","z","n"]"#);
    list(r#"[{"op":"add","path":"/l/-2","value":"n"}]"#, r#"["x","y","n","z"]"#);
    list(r#"[{"op":"replace","path":"/l/-1","value":"n"}]"#, r#"["x","y","n"]"#);
    list(r#"[{"op":"replace","path":"/l/01","value":"n"}]"#, r#"["x","n","z"]"#);
    list(r#"[{"op":"remove","path":"/l/-3"}]"#, r#"["y","z"]"#);
    list(r#"[{"op":"remove","path":"/l/1"}]"#, r#"["x","z"]"#);
    list(r#"[{"op":"move","from":"/l/0","path":"/l/2"}]"#, r#"["y","z","x"]"#);
    list(r#"[{"op":"copy","from":"/l/0","path":"/l/-"}]"#, r#"["x","y","z","x"]"#);
}

#[test]
fn tests_compare_documents() {
    let holds = |path: &str, value: &str| {
        run(DOCUMENT, &format!(r#"[{{"op":"test","path":"{path}","value":{value}}}]"#)).is_ok()
    };
    assert!(holds("/o/a", r#""1""#));
    assert!(holds("/o/a", r#""\u0031""#));
    assert!(!holds("/o/a", "1"));
    assert!(holds("/m", r#"{"y":2,"z":1}"#));
    assert!(!holds("/m", r#"{"y":2}"#));
    assert!(!holds("/m/z", "1.0"));
    assert!(holds("/l", r#"["x","y","z"]"#));
    assert!(!holds("/l", r#"["x","z","y"]"#));
    assert!(holds("/l/-1", r#""z""#));
    assert!(holds("/o/n", "null"));
    assert!(holds("/o/none", "null"));
    assert!(!holds("/o/none", "1"));
    assert!(holds("", DOCUMENT));
    assert!(!holds("", "{}"));
    fails(r#"[{"op":"test","path":"/o/a","value":"2"}]"#, "testing value /o/a failed: test failed");
    fails(r#"[{"op":"test","path":"/o/a"}]"#, "testing value /o/a failed: test failed");
}

#[test]
fn what_cannot_be_done_is_told_to_the_log() {
    fails(
        r#"[{"op":"add","path":"/none/x","value":1}]"#,
        r#"add operation does not apply: doc is missing path: "/none/x": missing value"#,
    );
    fails(
        r#"[{"op":"add","path":"","value":1}]"#,
        r#"add operation does not apply: doc is missing path: "": missing value"#,
    );
    fails(
        r#"[{"op":"add","path":"/o/a/x","value":1}]"#,
        r#"add operation does not apply: doc is missing path: "/o/a/x": missing value"#,
    );
    fails(r#"[{"op":"add","value":1}]"#, "add operation failed to decode path: missing value");
    fails(
        r#"[{"op":"remove","path":"/o/none"}]"#,
        "error in remove for path: '/o/none': Unable to remove nonexistent key: none: missing value",
    );
    fails(
        r#"[{"op":"add","path":"/l/4","value":1}]"#,
        "error in add for path: '/l/4': Unable to access invalid index: 4: invalid index referenced",
    );
    fails(
        r#"[{"op":"add","path":"/l/-5","value":1}]"#,
        "error in add for path: '/l/-5': Unable to access invalid index: -5: invalid index referenced",
    );
    fails(
        r#"[{"op":"add","path":"/l/x","value":1}]"#,
        r#"error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax"#,
    );
    fails(
        r#"[{"op":"remove","path":"/l/99999999999999999999"}]"#,
        r#"error in remove for path: '/l/99999999999999999999': strconv.Atoi: parsing "99999999999999999999": value out of range"#,
    );
    fails(
        r#"[{"op":"replace","path":"/l/3","value":1}]"#,
        "replace operation does not apply: doc is missing key: /l/3: missing value",
    );
    fails(
        r#"[{"op":"replace","path":"/none/x","value":1}]"#,
        "replace operation does not apply: doc is missing path: /none/x: missing value",
    );
    fails(r#"[{"op":"replace","path":"","value":"x"}]"#, "replace operation value must be object or array");
    fails(
        r#"[{"op":"move","from":"/o","path":"/o/x"}]"#,
        "move operation does not apply: doc is missing destination path: /o/x: missing value",
    );
    fails(
        r#"[{"op":"move","from":"/o/none","path":"/x"}]"#,
        "error in move for path: 'none': Unable to remove nonexistent key: none: missing value",
    );
    fails(
        r#"[{"op":"copy","path":"/o/c"}]"#,
        "copy operation failed to decode from: operation, missing from field: missing value",
    );
    fails(r#"[{"path":"/o/a","value":"1"}]"#, "Unexpected kind: unknown");
    fails(r#"[{"op":"bogus","path":"/o/a"}]"#, "Unexpected kind: bogus");
    fails("[null]", "Unexpected kind: unknown");
    fails(
        r#"[{"op":"add","path":"/o/c","value":1},{"op":"remove","path":"/o/none"}]"#,
        "error in remove for path: '/o/none': Unable to remove nonexistent key: none: missing value",
    );
}

#[test]
fn bodies_that_are_no_list_of_operations_are_refused() {
    let refused = |body: &str, strictness| match JsonPatch::decode(body.as_bytes(), strictness) {
        Err(PatchError::BadRequest(message)) => message,
        other => panic!("{other:?}"),
    };
    let checked = |body: &str| refused(body, Strictness::Checked);
    assert_eq!(
        checked(r#"{"op":"add"}"#),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    assert_eq!(
        checked(r#""x""#),
        "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"
    );
    assert_eq!(
        checked("[1]"),
        "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
    );
    assert_eq!(checked(r#"[{"op""#), "error decoding patch: unexpected end of JSON input");
    assert_eq!(
        checked(r#"[{"op":1,"path":"/a"}]"#),
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
    );
    assert_eq!(
        checked(r#"[{"op":"add","path":"/a","value":[1e400]}]"#),
        "error decoding patch: json: cannot unmarshal number 1e400 into Go struct field jsonPatchOp.value of type float64"
    );
    assert_eq!(refused("{}", Strictness::Lax), "json: cannot unmarshal object into Go value of type jsonpatch.Patch");
    assert_eq!(
        refused("[1]", Strictness::Lax),
        "json: cannot unmarshal number into Go value of type jsonpatch.Operation"
    );
    assert_eq!(refused("[", Strictness::Lax), "unexpected end of JSON input");
}

#[test]
fn strict_decoding_complains() {
    let body =
        br#"[{"op":"add","path":"/a","op":"add","bogus":{"x":1,"x":2},"value":{"l":[{"k":1,"k":2}]}},{"Op":"add"}]"#;
    let patch = JsonPatch::decode(body, Strictness::Checked).unwrap();
    assert_eq!(
        patch.complaints(),
        [
            r#"json patch duplicate field "[0].op""#,
            r#"json patch unknown field "[0].bogus""#,
            r#"json patch duplicate field "[0].value.l[0].k""#,
            r#"json patch unknown field "[1].Op""#,
        ]
    );
    assert!(JsonPatch::decode(body, Strictness::Lax).unwrap().complaints().is_empty());
}

fn many(count: usize, operation: &str) -> String {
    format!("[{}]", vec![operation; count].join(","))
}

#[test]
fn operations_are_bounded() {
    let test = r#"{"op":"test","path":"/o/a","value":"1"}"#;
    assert!(run(DOCUMENT, &many(OPERATIONS_MAX, test)).is_ok());
    assert_eq!(run(DOCUMENT, &many(OPERATIONS_MAX + 1, test)), Err(PatchError::TooManyOperations(OPERATIONS_MAX + 1)));
}

#[test]
fn copies_are_bounded() {
    let original = json!({"a": "x".repeat(1024 * 1024)}).to_string();
    let copies = |count| many(count, r#"{"op":"copy","from":"/a","path":"/b"}"#);
    assert!(run(&original, &copies(2)).is_ok());
    let sum = 3 * (1024 * 1024 + 2);
    let expected = format!(
        "Unable to complete the copy, the accumulated size increase of copy is {sum}, exceeding the limit 3145728"
    );
    assert_eq!(run(&original, &copies(3)), Err(PatchError::Unprocessable(expected)));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| format!("{}{}", r#"{"a":"#.repeat(levels) + "1", "}".repeat(levels));
    let deepest = format!(r#"[{{"op":"add","path":"/b","value":{}}}]"#, nested(NESTING_MAX - 3));
    assert!(run("{}", &deepest).is_ok());
    // Each move puts all there is one level deeper.
    let deeper = many(
        OPERATIONS_MAX,
        r#"{"op":"move","from":"/a","path":"/t"},{"op":"add","path":"/a","value":{}},{"op":"move","from":"/t","path":"/a/a"}"#,
    );
    let deeper = JsonPatch::decode(deeper.as_bytes(), Strictness::Lax);
    assert!(matches!(deeper, Err(PatchError::TooManyOperations(_))));
    let deeper = many(
        1000,
        r#"{"op":"move","from":"/a","path":"/t"},{"op":"add","path":"/a","value":{}},{"op":"move","from":"/t","path":"/a/a"}"#,
    );
    assert_eq!(run(r#"{"a":{}}"#, &deeper), Err(PatchError::Unprocessable("exceeded max depth".to_owned())));
}

/// Ten thousand steps within a document of a megabyte. Were the document copied by each, or a list shifted by each, this
/// would move tens of gigabytes and be noticed by whoever waits for it.
#[test]
fn a_step_does_not_cost_the_document() {
    let items = vec!["0"; 500_000].join(",");
    let original = format!(r#"{{"l":[{items}],"o":{{"a":{{}}}}}}"#);
    let insert = run(&original, &many(OPERATIONS_MAX, r#"{"op":"add","path":"/l/0","value":1}"#)).unwrap();
    assert_eq!(insert.len(), original.len() + 2 * OPERATIONS_MAX);
    let around = many(
        OPERATIONS_MAX / 2,
        r#"{"op":"move","from":"/l","path":"/o/a/l"},{"op":"move","from":"/o/a/l","path":"/l"}"#,
    );
    assert_eq!(run(&original, &around).unwrap(), original);
    assert!(run(&original, &many(OPERATIONS_MAX, r#"{"op":"test","path":"/l/250000","value":0}"#)).is_ok());
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        "[a-c~/]{0,2}".prop_map(Value::from)
    ];
    scalar.prop_recursive(4, 48, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "bogus"]);
    let pointer = || "(/([a-c]|-?[0-4]|-|~[01]|)){0,4}|[a-c]";
    (op, pointer(), pointer(), value())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #[test]
    fn any_patch_of_any_document_has_an_answer(document in prop::collection::btree_map("[a-c]", value(), 0..4), operations in prop::collection::vec(prop_oneof![9 => operation(), 1 => value()], 0..12)) {
        let (document, patch) = (json!(document).to_string(), json!(operations).to_string());
        let lax = run(&document, &patch);
        if let Ok(result) = &lax {
            prop_assert!(serde_json::from_str::<Value>(result).is_ok());
        }
        if let Ok(checked) = JsonPatch::decode(patch.as_bytes(), Strictness::Checked) {
            let result = checked.apply(json::parse(document.as_bytes()).unwrap()).map(|json| json_text(&json));
            prop_assert_eq!(result, lax);
        }
    }

    #[test]
    fn what_was_added_tests_equal_and_can_be_removed(document in prop::collection::btree_map("[a-c]", value(), 0..4), value in value()) {
        let document = json!(document);
        let patch = json!([{"op": "add", "path": "/new", "value": value}, {"op": "test", "path": "/new", "value": value}, {"op": "remove", "path": "/new"}]);
        let result = run(&document.to_string(), &patch.to_string()).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&result).unwrap(), document);
    }
}
