//! GET of a collection: whole, by page, by selector, at a revision; or followed, see [`super::watch`].

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use setpoint_api::{Revision, Status};
use setpoint_store::{Object, Page, Query, Snapshot};

use super::not_acceptable;
use crate::answer::{self, Answer};
use crate::body::Body;
use crate::call::Call;
use crate::query::{ListOptions, Match};
use crate::representation::{self, Form, Include, Media, Representation};
use crate::{continuation, conversion, pieces};

pub(super) async fn run(call: &mut Call<'_>) -> Answer {
    let options = ListOptions::read(&call.query, call.watch_path)?;
    if options.watch {
        return super::watch::run(call, &options);
    }
    let representation = Representation::of(call.headers, &call.query, false)?;
    let found = find(call, &options).await?;
    show(call, &found, representation).await
}

/// Objects of a list, and what its metadata says.
pub(crate) struct Found {
    pub(crate) revision: Revision,
    pub(crate) items: Vec<Arc<Object>>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// The objects that a list is about.
pub(crate) async fn find(call: &Call<'_>, options: &ListOptions) -> Result<Found, Box<Status>> {
    let selection = call.selection(options)?;
    let resource = &call.served.stored;
    let (snapshot, after, seen) = state(call, options).await?;
    let query = Query {
        resource,
        namespace: call.namespace,
        selection: &selection,
        after: after.as_deref(),
        limit: options.limit.filter(|_| !any_version(options) && !is_of_one(options)),
    };
    let Page { items, next } = snapshot.list(&query);
    let seen = seen + items.len();
    let next = next.map(|last| {
        call.server.store.keep(&snapshot);
        continuation::write(snapshot.revision(), &last, seen)
    });
    let total = snapshot.count(resource, call.namespace);
    let remaining = next.as_ref().filter(|_| selection.is_everything()).map(|_| total.saturating_sub(seen));
    Ok(Found { revision: snapshot.revision(), items, next, remaining })
}

/// Asked for any version there is, Kubernetes answers from its cache, which has no pages.
fn any_version(options: &ListOptions) -> bool {
    options.resource_version == "0" && options.version_match != Match::Exact && options.continue_token.is_empty()
}

/// Asked for the object of one name, there is no page to come.
fn is_of_one(options: &ListOptions) -> bool {
    options.continue_token.is_empty() && options.fields.exact_match("metadata.name").is_some()
}

/// The state to list from, the path to begin behind, and how many objects came before it.
async fn state(call: &Call<'_>, options: &ListOptions) -> Result<(Snapshot, Option<String>, usize), Box<Status>> {
    let store = &call.server.store;
    if !options.continue_token.is_empty() {
        let token = continuation::read(&options.continue_token)?;
        if !options.resource_version.is_empty() && options.resource_version != "0" {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Box::new(Status::bad_request(message)));
        }
        if token.revision > store.snapshot().revision() {
            return Err(too_large(token.revision, store.snapshot().revision()));
        }
        let snapshot = match store.snapshot_at(&call.served.stored, token.revision) {
            Ok(snapshot) => snapshot,
            Err(_) => return Err(continuation::expired(&token, store.snapshot().revision())),
        };
        return Ok((snapshot, Some(token.after), token.seen));
    }
    let snapshot = store.snapshot();
    let Some(revision) = options.revision().map_err(unreadable)? else { return Ok((snapshot, None, 0)) };
    if revision > snapshot.revision() {
        return Err(too_large(revision, snapshot.revision()));
    }
    let exact = match options.version_match {
        Match::Exact => true,
        Match::NotOlderThan => false,
        Match::Unset => options.limit.is_some(),
    };
    if !exact {
        return Ok((snapshot, None, 0));
    }
    let snapshot = store.snapshot_at(&call.served.stored, revision).map_err(|_| {
        Box::new(Status::expired(
            "The provided resource version is too old and can no longer be used: required revision has been compacted",
        ))
    })?;
    Ok((snapshot, None, 0))
}

fn unreadable(status: Box<Status>) -> Box<Status> {
    Box::new(Status::bad_request(format!("invalid resource version: {}", status.message)))
}

/// A revision that has not happened yet: the client saw it elsewhere, or made it up.
fn too_large(asked: Revision, newest: Revision) -> Box<Status> {
    let message = format!("Too large resource version: {asked}, current: {newest}");
    let mut status = Status::timeout(&message, 1);
    status = status.with_cause(setpoint_api::StatusCause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    });
    Box::new(status)
}

/// Answers with a list in the form that was asked for.
pub(crate) async fn show(call: &Call<'_>, found: &Found, representation: Representation) -> Answer {
    let as_stored = representation.media == Media::Json
        && !representation.pretty
        && found.items.iter().all(|object| call.served.shows_as_stored(object));
    if representation.form == Form::Object && as_stored {
        return Ok(whole(call, found));
    }
    if representation.form == Form::Partial {
        return Err(not_acceptable(call, "PartialObjectMetadata", "a list", &call.kind().list_kind));
    }
    let version = representation.version;
    let values = conversion::shown_all(call, &found.items).await?;
    let shown = match representation.form {
        Form::Object => {
            let items: Vec<Value> = match call.served.custom {
                Some(_) => values,
                None => values.into_iter().map(without_type).collect(),
            };
            json!({"kind": call.kind().list_kind, "apiVersion": call.kind().api_version(), "metadata": metadata(found), "items": items})
        }
        Form::Table => {
            let include = Include::of(&call.query)?;
            let now = call.server.clock.seconds();
            representation::table(call.kind(), &values, metadata(found), include, version, now, true)
        }
        Form::PartialList | Form::Partial => {
            let items: Vec<Value> = values.iter().map(|object| representation::partial(object, version)).collect();
            // Kubernetes prints no metadata at all as null.
            let items = if items.is_empty() { Value::Null } else { items.into() };
            json!({"kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata(found), "items": items})
        }
    };
    Ok(super::encode(StatusCode::OK, &shown, representation))
}

fn without_type(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

fn metadata(found: &Found) -> Value {
    let mut metadata = json!({"resourceVersion": found.revision.to_string()});
    if let Some(next) = &found.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = found.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

/// The list as bytes: what is stored, between a head and a tail. Nothing is parsed or encoded again.
fn whole(call: &Call<'_>, found: &Found) -> Response<Body> {
    let head = format!(
        r#"{{"kind":"{}","apiVersion":"{}","metadata":{},"items":["#,
        call.kind().list_kind,
        call.kind().api_version(),
        metadata(found)
    );
    let body = pieces::list(head.into_bytes(), found.items.clone(), call.served.list_skips);
    let mut response = answer::json(StatusCode::OK, "");
    *response.body_mut() = body;
    response
}
