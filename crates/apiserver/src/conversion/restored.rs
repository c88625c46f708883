//! That a webhook gave back the object that it was given, in another version: of its metadata it may change labels and annotations.

use serde_json::{Map, Value};
use setpoint_api::field::aggregate;
use setpoint_schema::{Edit, Errors, Node, facts, metadata};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A group, version and kind as Go shows them.
pub(super) fn shown_kind(object: &Value) -> String {
    format!("{}, Kind={}", object.text("apiVersion"), object.text("kind"))
}

/// What the webhook made of an object, with the metadata that the object had.
pub(super) fn restore(given: &Value, mut made: Value, wanted: &str) -> Result<Value, String> {
    let what = format!("conversion webhook for {}", shown_kind(given));
    if made.text("kind").is_empty() {
        return Err(format!("Object 'Kind' is missing in '{made}'"));
    }
    let at = |why: String| format!("{what} returned invalid object at index 0: {why}");
    if made.text("apiVersion") != wanted {
        let received = made.text("apiVersion");
        return Err(at(format!("invalid groupVersion (expected {wanted}, received {received})")));
    }
    if made.text("kind") != given.text("kind") {
        let (expected, received) = (given.text("kind"), made.text("kind"));
        return Err(at(format!("invalid kind (expected {expected}, received {received})")));
    }
    check_same(given, &made).map_err(|why| format!("{what} returned invalid object: {why}"))?;
    let metadata = metadata(given, &made).map_err(|why| format!("{what} returned invalid metadata: {why}"))?;
    made.set("metadata", metadata);
    Ok(made)
}

fn check_same(given: &Value, made: &Value) -> Result<(), String> {
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, received) = (given["metadata"].text(field), made["metadata"].text(field));
        if expected != received {
            return Err(format!("must have the same {name}: {expected} != {received}"));
        }
    }
    Ok(())
}

/// The metadata of an object with labels and annotations of what became of it.
fn metadata(given: &Value, made: &Value) -> Result<Value, String> {
    let said = made.get("metadata").ok_or("missing metadata in converted object")?;
    let said =
        said.as_object().ok_or_else(|| format!("invalid metadata of type {} in converted object", go_type(said)))?;
    let mut metadata = given.get("metadata").filter(|it| it.is_object()).cloned().unwrap_or_else(|| Map::new().into());
    for field in ["labels", "annotations"] {
        match said.get(field).filter(|value| !value.is_null()) {
            None => drop(metadata.remove(field)),
            Some(value) => {
                check_texts(field, value, metadata.get(field))?;
                metadata.set(field, value.clone());
            }
        }
    }
    Ok(metadata)
}

/// That they are texts under good names. What an object had already is good enough.
fn check_texts(field: &str, value: &Value, before: Option<&Value>) -> Result<(), String> {
    let texts = value.as_object();
    let texts =
        texts.ok_or_else(|| format!("invalid metadata.{field} of type {} in converted object", go_type(value)))?;
    if let Some((key, wrong)) = texts.iter().find(|(_, text)| !text.is_string()) {
        let is = go_type(wrong);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {is} in converted object"));
    }
    if before == Some(value) {
        return Ok(());
    }
    let ty = facts::type_named(OBJECT_META).expect("a built-in type");
    let holder = Value::Object(Map::from_iter([(field.to_owned(), value.clone())]));
    let node = Node::root(&holder, ty);
    let mut errors = Errors::new();
    match field {
        "labels" => metadata::validate_labels(&node.get("labels").at("metadata.labels"), &mut errors),
        _ => metadata::validate_annotations(&node.get("annotations").at("metadata.annotation"), &mut errors),
    }
    aggregate(&errors.into_vec()).map_or(Ok(()), Err)
}

/// How Go calls the type of a value that it has read.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
