//! Server-side apply: a manager says all it wants of an object; fields that others own are theirs unless it insists.

use http::StatusCode;
use serde_json::Value;
use setpoint_api::{GroupVersion, Status};
use setpoint_schema::json::{self, Json};
use setpoint_schema::managed::OnConflict;
use setpoint_schema::{Edit, patch, yaml};

use super::create::{self, Outcome};
use super::{show, show_value, update};
use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::ownership::Author;
use crate::query::{FieldValidation, WriteOptions};
use crate::{content, objects};

/// The media type of what is applied: YAML, and so JSON too.
pub(super) const MEDIA: &str = "application/apply-patch+yaml";

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    super::check_form(call, false)?;
    let options = WriteOptions::of_apply(&call.query)?;
    let config = read(call, &content::read(body).await?, &options)?;
    call.noted.object(&config);
    let live = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name());
    match live {
        Err(status) if call.subresource.is_some() => Err(status),
        Err(_) => {
            check_no_uid(call, &config)?;
            let object = merged(call, None, &config, &options)?;
            update::check_readable_version(&object)?;
            match create::insert(call, object, &options).await? {
                Outcome::Stored(object) => show(call, StatusCode::CREATED, &object).await,
                Outcome::DryRun(object) => show_value(call, StatusCode::CREATED, object),
            }
        }
        Ok(_) => {
            let mut make = |call: &mut Call<'_>, old: &Value| merged(call, Some(old), &config, &options);
            let outcome = update::change(call, &options, &mut make).await?;
            update::answer(call, outcome).await
        }
    }
}

/// Who applies to an object of a certain identity doesn't want another one made.
fn check_no_uid(call: &Call<'_>, config: &Value) -> Result<(), Box<Status>> {
    match config["metadata"].text("uid") {
        "" => Ok(()),
        uid => {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            Err(Box::new(Status::conflict(&call.served.resource, call.object_name(), why)))
        }
    }
}

/// The live object with what is applied.
pub(super) fn merged(
    call: &mut Call<'_>,
    live: Option<&Value>,
    config: &Value,
    options: &WriteOptions,
) -> Result<Value, Box<Status>> {
    let on_conflict = if options.force == Some(true) { OnConflict::Take } else { OnConflict::Refuse };
    let author = Author::of(call, options);
    let applied = author.write(call).apply(live, config, on_conflict).map_err(|error| Box::new(error.status()))?;
    complete(call, applied.object)
}

/// The document that is applied, of the right kind and for the right object.
pub(super) fn read(call: &mut Call<'_>, bytes: &[u8], options: &WriteOptions) -> Result<Value, Box<Status>> {
    let bad = |message: String| Box::new(Status::bad_request(message));
    let (config, doubled) = match plain_json(bytes) {
        Some(json) => (json.into_value(), Vec::new()),
        None => {
            let document = yaml::parse(bytes)
                .map_err(|error| bad(format!("error decoding YAML: error converting YAML to JSON: {error}")))?;
            (document.json.into_value(), document.doubled)
        }
    };
    if options.field_validation == FieldValidation::Strict && !doubled.is_empty() {
        let lines = doubled.join("\n  ");
        return Err(bad(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
        )));
    }
    if options.field_validation == FieldValidation::Warn {
        call.warnings.extend(doubled);
    }
    if !matches!(config, Value::Object(_) | Value::Null) {
        let found = setpoint_schema::json::Json::of(&config).kind().to_owned();
        return Err(bad(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    let kind = call.kind();
    let version: GroupVersion = config.text("apiVersion").parse().map_err(|error| bad(format!("{error}")))?;
    if config.text("kind") != kind.kind || config.text("apiVersion") != kind.api_version() {
        let (group, version) = (&version.group, &version.version);
        return Err(bad(format!("invalid object type: {group}/{version}, Kind={}", config.text("kind"))));
    }
    // Checked only: a namespace that was not applied is not part of what is.
    create::check_same_namespace(call, &config)?;
    Ok(config)
}

/// Most fields of an object that is looked through for doubled ones here.
const FIELDS_MAX: usize = 64;

/// A document that is JSON, and that reads as JSON as it does as YAML: without fractions, which YAML writes in its own way, and without
/// doubled fields, which are told by their lines. Controllers apply such documents, and as YAML they would take longer to read than all else.
fn plain_json(bytes: &[u8]) -> Option<Json<'_>> {
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_object {
        return None;
    }
    json::parse(bytes).ok().filter(is_plain)
}

fn is_plain(json: &Json<'_>) -> bool {
    match json {
        Json::Null | Json::Bool(_) | Json::String(_) => true,
        Json::Number(text) => text.parse::<i64>().is_ok(),
        Json::Array(items) => items.iter().all(is_plain),
        Json::Object(fields) => {
            let is_first = |at: usize| !fields[..at].iter().any(|(name, _)| *name == fields[at].0);
            fields.len() <= FIELDS_MAX
                && (0..fields.len()).all(is_first)
                && fields.iter().all(|(_, value)| is_plain(value))
        }
    }
}

/// What was merged is read and defaulted like an object that a client sent whole.
fn complete(call: &mut Call<'_>, mut object: Value) -> Result<Value, Box<Status>> {
    let kind = call.kind();
    if call.served.custom.is_none() {
        patch::convert_numbers(&mut object, kind.root_type());
    }
    let decoded = kind
        .behaviour
        .decode_merged(Json::from(object), kind.root_type())
        .map_err(|error| Box::new(Status::bad_request(error.to_string())))?;
    let (mut object, emptied) = (decoded.value, decoded.emptied);
    object.set("apiVersion", kind.api_version());
    object.set("kind", &*kind.kind);
    // Only now, because conflicts are told before.
    update::check_name(call, &mut object)?;
    create::check_namespace(call, &mut object)?;
    kind.behaviour.default(&mut object);
    call.emptied = emptied;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_as_json_reads_the_same_as_yaml() {
        let plain = [
            r#"{}"#,
            r#" {"a": {"b": [1, -2, true, null, "x\n\u00e9 \"q\""]}, "b": "1.5"}"#,
            "{\"z\": 1,\n \"a\": {\"y\": 9223372036854775807}}",
        ];
        for text in plain {
            let json = plain_json(text.as_bytes()).expect(text).into_value();
            assert_eq!(json, yaml::parse(text.as_bytes()).unwrap().json.into_value(), "{text}");
        }
        let others =
            ["a: 1", "", "[1]", r#"{"a": 1.50}"#, r#"{"a": 1e3}"#, r#"{"a": 1, "a": 2}"#, r#"{"a": 1"#, "{a: 1}"];
        for text in others {
            assert!(plain_json(text.as_bytes()).is_none(), "{text}");
        }
    }
}
