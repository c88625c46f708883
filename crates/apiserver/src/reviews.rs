//! Kinds that are asked, not stored: reviews of who someone is and what they may do.

mod selectors;

use http::StatusCode;
use serde_json::{Value, json};
use setpoint_api::{GroupKind, Status};
use setpoint_schema::{Edit, Errors, Kind};

use crate::answer::Answer;
use crate::authorization::{Asked, What};
use crate::call::Call;
use crate::content;
use crate::query::WriteOptions;
use crate::representation::{Form, Representation};
use crate::user::User;
use crate::{tokens, verbs};

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
    // What is answered is another one than was posted.
    if call.kind().plural == "selfsubjectrulesreviews" {
        review.ensure("metadata").remove("managedFields");
        review.set("spec", json!({}));
    }
    if call.kind().plural == "selfsubjectreviews" {
        review.ensure("metadata").set("creationTimestamp", call.server.clock.timestamp());
    }
    call.kind().normalize(&mut review);
    verbs::show_value(call, StatusCode::CREATED, review)
}

/// Reviews have no table.
pub(crate) fn check_form(call: &Call<'_>) -> Result<(), Box<Status>> {
    let representation = Representation::of(call.headers, &call.query, false)?;
    if representation.form == Form::Table && call.kind().plural != "bindings" {
        return Err(Box::new(Status::not_acceptable(&content::ACCEPTED)));
    }
    Ok(())
}

fn review(call: &Call<'_>, object: &Value) -> Result<Value, Box<Status>> {
    let kind = call.kind();
    check(kind, object)?;
    let spec = &object["spec"];
    match &*kind.plural {
        "selfsubjectreviews" => Ok(json!({"userInfo": user_info(call)})),
        "tokenreviews" => tokens::review(call, object),
        "selfsubjectaccessreviews" => Ok(verdict(call, call.user, spec)),
        "subjectaccessreviews" | "localsubjectaccessreviews" => Ok(verdict(call, &subject(spec), spec)),
        "selfsubjectrulesreviews" => rules(call, spec.text("namespace")),
        _ => Err(Box::new(Status::internal_error(format!("{} is not answered", kind.kind)))),
    }
}

/// The user that a review asks about: in the groups that it names and no others.
fn subject(spec: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: spec.text("user").to_owned(),
        groups: texts(&spec["groups"]),
        uid: spec.text("uid").to_owned(),
        extra: extra.map(|(key, values)| (key.to_lowercase(), texts(values))).collect(),
    }
}

/// Whether a user may do what a review asks about.
fn verdict(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let asked = match &spec["resourceAttributes"] {
        Value::Object(_) => {
            let of = &spec["resourceAttributes"];
            let what = What::Resource {
                group: of.text("group"),
                resource: of.text("resource"),
                subresource: of.text("subresource"),
                namespace: of.text("namespace"),
                name: of.text("name"),
            };
            Asked { verb: of.text("verb"), what, on_node: selected_node(of) }
        }
        _ => {
            let of = &spec["nonResourceAttributes"];
            Asked::of_path(of.text("verb"), of.text("path"))
        }
    };
    let (allowed, reason) = call.server.access.judge(&call.server.store, user, &asked);
    let ignored = selectors::ignored(&spec["resourceAttributes"]);
    let mut verdict = json!({"allowed": allowed});
    verdict.set_or_remove("reason", (!reason.is_empty()).then(|| reason.into()));
    verdict.set_or_remove("evaluationError", (!ignored.is_empty()).then(|| ignored.into()));
    verdict
}

/// The node that the field selector of a review asks for.
fn selected_node(attributes: &Value) -> Option<&str> {
    let requirements = attributes["fieldSelector"]["requirements"].as_array()?;
    let found = requirements.iter().find(|it| it.text("key") == "spec.nodeName" && it.text("operator") == "In")?;
    match found["values"].as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    }
}

/// All that the user may do in a namespace.
fn rules(call: &Call<'_>, namespace: &str) -> Result<Value, Box<Status>> {
    if namespace.is_empty() {
        return Err(Box::new(Status::bad_request("no namespace on request")));
    }
    let policies = call.server.access.current(&call.server.store);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in policies.rules_of(call.user, namespace) {
        let (resource, path) = rule.reviewed();
        resources.extend(resource);
        paths.extend(path);
    }
    Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
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

fn user_info(call: &Call<'_>) -> Value {
    let user = call.user;
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info.set("uid", &*user.uid);
    }
    if !user.extra.is_empty() {
        info.set("extra", json!(user.extra));
    }
    info
}
