//! What can be done with objects, one file each.

mod apply;
mod create;
mod custom;
mod delete;
mod get;
mod list;
mod patch;
mod subresource;
#[cfg(test)]
mod tests;
mod update;
mod watch;

use http::{Method, Response, StatusCode};
use serde_json::Value;
use setpoint_api::{FieldError, Status};
use setpoint_store::Object;
use std::sync::Arc;

use crate::answer::{self, Answer};
use crate::body::Body;
use crate::call::Call;
use crate::representation::{self, Form, Include, Media, Representation};
use crate::server::unknown_resource;
use crate::{conversion, health};

pub(crate) use create::{check_namespace_lives, insert};
pub(crate) use custom::check_lives;
pub(crate) use delete::delete_plainly;
pub(crate) use list::find;
pub(crate) use subresource::bind;
pub(crate) use update::change;

/// Runs the verb that the method and the path stand for.
///
/// Each verb is a task's worth of state of its own: boxed here, where it is known which one runs, so that no request carries the room of the
/// largest through every layer above.
pub(crate) async fn run(call: &mut Call<'_>, method: &Method, body: Body) -> Answer {
    if let Some(fence) = call.fence {
        fence.check(call)?;
    }
    if let Some(name) = call.subresource {
        return Box::pin(subresource::run(call, name, method, body)).await;
    }
    let verb = match call.served.custom {
        Some(_) => custom::verb(call, method)?,
        None => verb(call, method).ok_or_else(not_allowed)?,
    };
    let changes_all = matches!(verb, "create" | "deletecollection");
    if changes_all && call.kind().namespaced && call.namespace.is_none() {
        return Err(not_allowed());
    }
    if call.name.is_some() && !has_objects(call) {
        return Err(unknown_resource());
    }
    if !call.kind().allows(verb) {
        return Err(not_allowed());
    }
    // What a patch is written in is looked at before.
    if verb != "patch" {
        check_form(call, verb == "list")?;
    }
    match verb {
        "get" => get::run(call).await,
        "list" => Box::pin(list::run(call)).await,
        "create" => Box::pin(create::run(call, body)).await,
        "update" => Box::pin(update::run(call, body)).await,
        "patch" => Box::pin(patch::run(call, body)).await,
        "delete" => Box::pin(delete::run(call, body)).await,
        "deletecollection" => Box::pin(delete::run_collection(call, body)).await,
        _ => Err(not_allowed()),
    }
}

/// An answer that the client can't read is refused before anything is done.
fn check_form(call: &Call<'_>, is_collection: bool) -> Result<(), Box<Status>> {
    if call.served.custom.is_none() {
        representation::check_available(call.headers, is_collection)?;
    }
    Representation::of(call.headers, &call.query, false).map(drop)
}

/// Reviews and the like are only ever posted: they have no objects to name.
fn has_objects(call: &Call<'_>) -> bool {
    call.kind().verbs.iter().any(|verb| verb != "create")
}

fn verb(call: &Call<'_>, method: &Method) -> Option<&'static str> {
    Some(match (method.as_str(), call.name.is_some() && !call.watch_path) {
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

pub(crate) fn not_allowed() -> Box<Status> {
    Box::new(health::method_not_allowed())
}

/// When owners that stand twice are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In what the client sent.
    Sent,
    /// In what became of it.
    Made,
}

/// An owner that stands twice is kept once, and the user is told.
pub(crate) fn drop_doubled_owners(call: &mut Call<'_>, object: &mut Value, found: Found) {
    let Some(owners) = object["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut doubled: Vec<String> = Vec::new();
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            doubled.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    if !doubled.is_empty() {
        let when = match found {
            Found::Sent => "",
            Found::Made => " after mutating admission happens",
        };
        call.warnings.push(format!(".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}", doubled.join(", ")));
    }
}

/// The errors of a write, quoting lists and maps that were given empty as they were given. Rules take them for absent; should one
/// not, what was said first counts.
pub(crate) fn as_given(
    call: &Call<'_>,
    object: &Value,
    errors: Vec<FieldError>,
    check: impl Fn(&Value) -> Vec<FieldError>,
) -> Vec<FieldError> {
    if call.emptied.is_empty() {
        return errors;
    }
    let mut given = object.clone();
    call.emptied.iter().for_each(|one| one.restore(&mut given));
    let quoted = check(&given);
    let about = |errors: &[FieldError]| errors.iter().map(|e| (e.kind, e.field.clone())).collect::<Vec<_>>();
    if about(&quoted) == about(&errors) { quoted } else { errors }
}

/// Answers with one stored object in the form that was asked for.
pub(crate) async fn show(call: &Call<'_>, code: StatusCode, object: &Arc<Object>) -> Answer {
    let representation = Representation::of(call.headers, &call.query, false)?;
    let as_stored =
        representation.media == Media::Json && !representation.pretty && call.served.shows_as_stored(object);
    if representation.form == Form::Object && as_stored {
        return Ok(answer::line(code, object.json()));
    }
    show_value(call, code, conversion::shown(call, object).await?)
}

/// Answers with one object in the form that was asked for.
pub(crate) fn show_value(call: &Call<'_>, code: StatusCode, object: Value) -> Answer {
    let representation = Representation::of(call.headers, &call.query, false)?;
    let version = representation.version;
    let shown = match representation.form {
        Form::Object => object,
        Form::Partial => representation::partial(&object, version),
        Form::Table => {
            // What a dry run makes has no version.
            let version_of = object["metadata"].get("resourceVersion").cloned();
            let metadata = version_of.map_or(serde_json::json!({}), |of| serde_json::json!({"resourceVersion": of}));
            let include = Include::of(&call.query)?;
            let now = call.server.clock.seconds();
            representation::table(call.kind(), &[object], metadata, include, version, now, true)
        }
        Form::PartialList => {
            return Err(not_acceptable(call, "PartialObjectMetadataList", "not a list", &call.kind().kind));
        }
    };
    Ok(encode(code, &shown, representation))
}

pub(crate) fn not_acceptable(call: &Call<'_>, asked: &str, is: &str, kind: &str) -> Box<Status> {
    let mut status = Status::not_acceptable(&[]);
    let of = go_type(call, kind);
    status.message = format!("you requested {asked}, but the requested object is {is} (*{of})");
    Box::new(status)
}

/// What a kind, or its list, is called in the source of Kubernetes.
fn go_type(call: &Call<'_>, kind: &str) -> String {
    if call.served.custom.is_some() {
        let list = if kind == call.kind().list_kind { "List" } else { "" };
        return format!("unstructured.Unstructured{list}");
    }
    let package = match &*call.kind().group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("{package}.{kind}")
}

/// Writes a document as it was asked for.
pub(crate) fn encode(code: StatusCode, value: &Value, representation: Representation) -> Response<Body> {
    match representation.media {
        Media::Yaml => {
            let mut response = answer::text(code, crate::yaml_out::write(value));
            let media = http::HeaderValue::from_static("application/yaml");
            response.headers_mut().insert(http::header::CONTENT_TYPE, media);
            response
        }
        Media::Json if representation.pretty => answer::pretty(code, value),
        Media::Json => answer::value(code, value),
    }
}
