//! Server-side apply: a manager says all it wants of an object; fields that others own are theirs unless it insists.

use http::StatusCode;
use serde_json::Value;
use setpoint_api::{FieldError, GroupVersion, Path, Status};
use setpoint_schema::json::Json;
use setpoint_schema::managed::OnConflict;
use setpoint_schema::{Edit, yaml};

use super::create::{self, Outcome};
use super::{show, show_value, update};
use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::ownership::Author;
use crate::query::{FieldValidation, WriteOptions, refuse};
use crate::{authorization, content, objects};

/// The media type of what is applied: YAML, and so JSON too.
pub(super) const MEDIA: &str = "application/apply-patch+yaml";

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let options = options(call)?;
    let config = read(call, &content::read(body).await?, &options)?;
    call.noted.object(&config);
    let live = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name());
    match live {
        Err(status) if call.subresource.is_some() => Err(status),
        Err(_) => {
            authorization::check_create(call)?;
            check_no_uid(call, &config)?;
            let mut object = merged(call, None, &config, &options)?;
            object["metadata"].remove("resourceVersion");
            match create::insert(call, object, &options).await? {
                Outcome::Stored(object) => show(call, StatusCode::CREATED, &object),
                Outcome::DryRun(object) => show_value(call, StatusCode::CREATED, object),
            }
        }
        Ok(_) => {
            let mut make = |call: &mut Call<'_>, old: &Value| {
                update::check_uid(call, &config, old)?;
                merged(call, Some(old), &config, &options)
            };
            let outcome = update::change(call, &options, &mut make).await?;
            update::answer(call, outcome)
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

/// The options of an apply.
pub(super) fn options(call: &Call<'_>) -> Result<WriteOptions, Box<Status>> {
    let options = WriteOptions { applied: true, ..WriteOptions::read(&call.query, "PatchOptions")? };
    if options.field_manager.is_empty() {
        let error = FieldError::required(&Path::root("fieldManager"), "is required for apply patch");
        refuse("PatchOptions", vec![error])?;
    }
    Ok(options)
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
    let document = yaml::parse(bytes)
        .map_err(|error| bad(format!("error decoding YAML: error converting YAML to JSON: {error}")))?;
    if options.field_validation == FieldValidation::Strict && !document.doubled.is_empty() {
        let lines = document.doubled.join("\n  ");
        return Err(bad(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
        )));
    }
    if options.field_validation == FieldValidation::Warn {
        call.warnings.extend(document.doubled.iter().cloned());
    }
    let mut config = document.json.into_value();
    let kind = call.kind();
    let version: GroupVersion = config.text("apiVersion").parse().map_err(|error| bad(format!("{error}")))?;
    if config.text("kind") != kind.kind || config.text("apiVersion") != kind.api_version() {
        let (group, version) = (&version.group, &version.version);
        return Err(bad(format!("invalid object type: {group}/{version}, Kind={}", config.text("kind"))));
    }
    if config["metadata"].text("name").is_empty() {
        config.ensure("metadata").set("name", call.object_name());
    }
    update::check_name(call, &mut config)?;
    // Checked only: a namespace that was not applied is not part of what is.
    create::check_same_namespace(call, &config)?;
    Ok(config)
}

/// What was merged is read and defaulted like an object that a client sent whole.
fn complete(call: &Call<'_>, object: Value) -> Result<Value, Box<Status>> {
    let kind = call.kind();
    let decoded = kind
        .behaviour
        .decode(Json::from(object), kind.root_type())
        .map_err(|error| Box::new(Status::bad_request(error.to_string())))?;
    let mut object = decoded.value;
    object.set("apiVersion", kind.api_version());
    object.set("kind", &*kind.kind);
    create::check_namespace(call, &mut object)?;
    kind.behaviour.default(&mut object);
    Ok(object)
}
