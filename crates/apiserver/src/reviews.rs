//! Kinds that are asked, not stored: reviews of who someone is and what they may do.

use http::StatusCode;
use serde_json::{Value, json};
use setpoint_api::{GroupKind, Status};
use setpoint_schema::{Edit, Errors, Kind};

use crate::answer::Answer;
use crate::call::Call;
use crate::content;
use crate::query::WriteOptions;
use crate::representation::{Form, Representation};
use crate::{tokens, verbs};

/// Who may do everything.
const MASTERS: &str = "system:masters";

/// Whether objects of a kind are answered instead of stored.
pub(crate) fn is_review(kind: &Kind) -> bool {
    kind.verbs.iter().all(|verb| verb == "create")
}

/// Answers what was posted.
pub(crate) async fn answer(call: &mut Call<'_>, object: Value, options: &WriteOptions) -> Answer {
    if call.kind().plural == "bindings" {
        let name = object["metadata"].text("name").to_owned();
        return verbs::bind(call, &name, &object, options).await;
    }
    let status = review(call, &object)?;
    let mut review = object;
    review.set("status", status);
    if call.kind().plural == "selfsubjectreviews" {
        review.ensure("metadata").set("creationTimestamp", call.server.clock.timestamp());
    }
    call.kind().normalize(&mut review);
    let representation = Representation::of(call.headers, &call.query, false)?;
    if representation.form == Form::Table {
        return Err(Box::new(Status::not_acceptable(&content::ACCEPTED)));
    }
    verbs::show_value(call, StatusCode::CREATED, review)
}

fn review(call: &Call<'_>, object: &Value) -> Result<Value, Box<Status>> {
    let kind = call.kind();
    check(kind, object)?;
    match &*kind.plural {
        "selfsubjectreviews" => Ok(json!({"userInfo": user_info(call)})),
        "tokenreviews" => tokens::review(call, object),
        "selfsubjectaccessreviews" if is_master(call) => Ok(json!({"allowed": true})),
        _ => Err(unanswered(&kind.kind)),
    }
}

/// A review has no name, so only its own rules count; a refusal names the group alone.
fn check(kind: &Kind, object: &Value) -> Result<(), Box<Status>> {
    if kind.group != "authorization.k8s.io" || kind.plural == "selfsubjectrulesreviews" {
        return Ok(());
    }
    let mut errors = Errors::new();
    kind.behaviour.check_create(kind, &kind.node(object), &mut errors);
    let errors = errors.into_vec();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Box::new(Status::invalid(&GroupKind::new(&*kind.group, ""), "", &errors))),
    }
}

fn is_master(call: &Call<'_>) -> bool {
    call.user.groups.iter().any(|group| group == MASTERS)
}

fn user_info(call: &Call<'_>) -> Value {
    let user = call.user;
    let mut info = json!({"username": user.name, "groups": user.all_groups()});
    if !user.uid.is_empty() {
        info.set("uid", &*user.uid);
    }
    if !user.extra.is_empty() {
        info.set("extra", json!(user.extra));
    }
    info
}

/// Nobody here knows yet: better no answer than a made-up one.
fn unanswered(kind: &str) -> Box<Status> {
    let mut status = Status::bad_request(format!("{kind} is not answered by this server yet"));
    status.code = StatusCode::NOT_IMPLEMENTED.as_u16();
    status.reason = "NotImplemented".to_owned();
    Box::new(status)
}
