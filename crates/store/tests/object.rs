//! What can be stored: JSON objects with metadata that the store understands. Anything else is refused with a reason.

mod support;

use setpoint_store::{Change, Expectation, FactsError};
use support::{ByNode, pod};

fn put(json: &str) -> Result<(), FactsError> {
    Change::put(pod("red", "a"), Expectation::Any, json.as_bytes().to_vec(), &ByNode).map(drop)
}

#[test]
fn objects_with_metadata_can_be_stored() {
    for json in [
        r#"{"metadata":{"name":"a"}}"#,
        r#" { "spec" : {} , "metadata" : { "name" : "a" , "labels" : null , "ownerReferences" : null } } "#,
        r#"{"metadata":{"name":"a","labels":{"a":"b","\u0061b":"\n"},"ownerReferences":[{"uid":"u"},{}]}}"#,
    ] {
        assert_eq!(put(json), Ok(()), "{json}");
    }
}

#[test]
fn what_is_no_object_is_refused_and_never_a_panic() {
    let long = "x".repeat(70_000);
    let many = |one: &str| vec![one; 70_000].join(",");
    let labels: Vec<String> = (0..70_000).map(|n| format!(r#""l{n}":"""#)).collect();
    for json in [
        String::new(),
        "{".into(),
        "null".into(),
        "7".into(),
        r#"{"metadata":{"name":"a"}} x"#.into(),
        r#"{"spec":{}}"#.into(),
        r#"{"metadata":null}"#.into(),
        r#"{"metadata":"a"}"#.into(),
        r#"{"metadata":{}}"#.into(),
        r#"{"metadata":{ }}"#.into(),
        r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#.into(),
        r#"{"metadata":{"name":"a","labels":{"a":1}}}"#.into(),
        r#"{"metadata":{"name":"a","labels":["a"]}}"#.into(),
        // Lists whose elements would fit the fields in order.
        r#"[{"name":"a"}]"#.into(),
        r#"{"metadata":["u",null,null,null]}"#.into(),
        // Longer than any limit on metadata allows.
        format!(r#"{{"metadata":{{"labels":{{"a":"{long}"}}}}}}"#),
        format!(r#"{{"metadata":{{"uid":"{long}"}}}}"#),
        format!(r#"{{"metadata":{{"ownerReferences":[{{"uid":"{long}"}}]}}}}"#),
        format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, many("{}")),
        format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")),
        format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"node":"{long}"}}}}"#),
    ] {
        let result = put(&json);
        let shown: String = json.chars().take(60).collect();
        assert!(matches!(&result, Err(FactsError::Malformed(why)) if !why.is_empty()), "{shown}: {result:?}");
    }
}

#[test]
fn an_object_that_has_a_resource_version_is_refused() {
    for json in [
        r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
        r#"{"metadata":{"name":"a","resourceVersion":""}}"#,
        r#"{"metadata":{"name":"a","resourceVersion":null}}"#,
        r#"{"metadata":{"name":"a","resource\u0056ersion":"7"}}"#,
    ] {
        assert_eq!(put(json), Err(FactsError::Versioned), "{json}");
    }
}
