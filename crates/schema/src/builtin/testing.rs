//! The way of a write, for tests of kinds: decode, default, prepare, check, as the server does it.

use serde_json::Value;
use setpoint_api::field::aggregate;

use crate::behaviour::Context;
use crate::decode::decode;
use crate::edit::Edit;
use crate::json::Json;
use crate::kind::Kind;

/// The time in tests.
const NOW: i64 = 1_700_000_000;

/// The object that a valid body becomes.
#[track_caller]
pub fn create(api_version: &str, plural: &str, body: Value) -> Value {
    let (object, errors) = try_create(api_version, plural, body);
    assert_eq!(errors, None);
    object
}

/// That a body is refused with these words.
#[track_caller]
pub fn create_fails(api_version: &str, plural: &str, body: Value, expected: &str) {
    assert_eq!(try_create(api_version, plural, body).1.as_deref(), Some(expected));
}

/// The object that a valid update leaves behind.
#[track_caller]
pub fn update(api_version: &str, plural: &str, old: Value, new: Value) -> Value {
    let (object, errors) = try_update(api_version, plural, "", old, new);
    assert_eq!(errors, None);
    object
}

/// That an update is refused with these words.
#[track_caller]
pub fn update_fails(api_version: &str, plural: &str, old: Value, new: Value, expected: &str) {
    assert_eq!(try_update(api_version, plural, "", old, new).1.as_deref(), Some(expected));
}

/// That a write to `/status` is refused with these words.
#[track_caller]
pub fn status_update_fails(api_version: &str, plural: &str, old: Value, new: Value, expected: &str) {
    assert_eq!(try_update(api_version, plural, "status", old, new).1.as_deref(), Some(expected));
}

/// The warnings that a creation gives.
#[track_caller]
pub fn warnings(api_version: &str, plural: &str, body: Value) -> Vec<String> {
    let kind = find(api_version, plural);
    let object = create(api_version, plural, body);
    kind.behaviour.warnings(&kind.node(&object), None)
}

/// The row of the table.
pub fn columns(api_version: &str, plural: &str, object: &Value) -> Value {
    let kind = find(api_version, plural);
    kind.behaviour.columns().iter().map(|column| column.cell(object, NOW)).collect()
}

/// The value of a field that a field selector may name.
#[track_caller]
pub fn selected(api_version: &str, plural: &str, object: &Value, name: &str) -> String {
    let fields = find(api_version, plural).selectable_fields(object);
    fields.into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name} is not selectable")).1
}

/// The kind of a plural name.
#[track_caller]
pub fn find(api_version: &str, plural: &str) -> &'static Kind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    super::by_plural(group, version, plural).unwrap_or_else(|| panic!("no {plural} in {api_version}"))
}

/// The object that a body becomes, and what is wrong with it.
#[track_caller]
pub fn try_create(api_version: &str, plural: &str, body: Value) -> (Value, Option<String>) {
    let kind = find(api_version, plural);
    let mut object = read(kind, body);
    kind.prepare_create(&mut object, &context());
    let errors = aggregate(&kind.check_create(&object));
    kind.behaviour.canonicalize(&mut object);
    kind.normalize(&mut object);
    (object, errors)
}

/// The object that an update leaves behind, and what is wrong with it.
#[track_caller]
pub fn try_update(api_version: &str, plural: &str, sub: &str, old: Value, new: Value) -> (Value, Option<String>) {
    let kind = find(api_version, plural);
    let (old, errors) = try_create(api_version, plural, old);
    assert_eq!(errors, None, "the old object is valid");
    let mut new = read(kind, new);
    new["metadata"].default_to("resourceVersion", "1");
    kind.prepare_update(sub, &mut new, &old, &context());
    let errors = aggregate(&kind.check_update(sub, &new, &old));
    kind.behaviour.canonicalize(&mut new);
    kind.normalize(&mut new);
    (new, errors)
}

#[track_caller]
fn read(kind: &Kind, mut body: Value) -> Value {
    body.set("apiVersion", kind.api_version());
    body.set("kind", &*kind.kind);
    if kind.namespaced {
        body.ensure("metadata").default_to("namespace", "default");
    }
    let decoded = decode(Json::from(body), kind.root_type()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(decoded.strict, [""; 0], "the body has no unknown fields");
    let mut object = decoded.value;
    kind.behaviour.default(&mut object);
    kind.normalize(&mut object);
    object
}

fn context() -> Context {
    Context { now: NOW, ..Context::default() }
}
