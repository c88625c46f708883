//! PUT: a new version of an object; and the way that every change of an object goes.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use setpoint_api::{FieldError, GroupKind, Path, Status};
use setpoint_schema::{Edit, managed};
use setpoint_store::{Change, CommitError, Expectation, Object};

use super::create::{self, Outcome};
use super::{Found, show, show_value};
use crate::admission::quota::{self, Charge};
use crate::answer::Answer;
use crate::authorization::escalation;
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::query::WriteOptions;
use crate::{admission, allocation, conversion, objects, ownership};

/// How often a change is tried again on a newer version.
const CONFLICT_TRIES_MAX: usize = 16;

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let options = WriteOptions::read(&call.query, "UpdateOptions")?;
    let format = Format::of(call.headers)?;
    let bytes = content::read(body).await?;
    let read = content::object(&bytes, format, call.kind(), options.field_validation)?;
    call.warnings.extend(read.warnings);
    call.emptied = read.emptied;
    let mut object = read.object;
    check_name(call, &mut object)?;
    create::check_namespace(call, &mut object)?;
    call.kind().behaviour.default(&mut object);
    call.noted.object(&object);
    let may_create = call.kind().behaviour.allow_create_on_update() && call.subresource.is_none();
    let is_there = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name());
    if let (Err(_), true) = (&is_there, may_create) {
        check_readable_version(&object)?;
        return match create::insert(call, object, &options).await? {
            Outcome::Stored(object) => show(call, StatusCode::CREATED, &object).await,
            Outcome::DryRun(object) => show_value(call, StatusCode::CREATED, object),
        };
    }
    let mut replace = |call: &mut Call<'_>, old: &Value| {
        check_uid(call, &object, old)?;
        Ok(object.clone())
    };
    let replaced = change(call, &options, &mut replace).await?;
    answer(call, replaced).await
}

/// The answer to a change.
pub(super) async fn answer(call: &Call<'_>, outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Stored(object) => show(call, StatusCode::OK, &object).await,
        Outcome::DryRun(object) => show_value(call, StatusCode::OK, object),
    }
}

pub(super) fn check_name(call: &Call<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    let wanted = call.object_name();
    let given = object.find(&["metadata", "name"]).and_then(Value::as_str).unwrap_or("").to_owned();
    if given.is_empty() {
        let message =
            format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided");
        return Err(Box::new(Status::bad_request(message)));
    }
    if given != wanted {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({wanted})");
        return Err(Box::new(Status::bad_request(message)));
    }
    Ok(())
}

/// Makes the next version of an object from the present one. Called again if someone else was faster.
pub(crate) type Make<'m> = dyn FnMut(&mut Call<'_>, &Value) -> Result<Value, Box<Status>> + Send + 'm;

/// The way of every change: read, make, check, commit; from the start again if someone was faster.
pub(crate) async fn change(
    call: &mut Call<'_>,
    options: &WriteOptions,
    make: &mut Make<'_>,
) -> Result<Outcome, Box<Status>> {
    let warnings = call.warnings.len();
    let mut tries = 0;
    loop {
        call.warnings.truncate(warnings);
        let name = call.object_name();
        let current = objects::find(&call.server.store.snapshot(), call.served, call.namespace, name)?;
        let step = next(call, options, make, &current).await?;
        let key = objects::key(call.served, call.namespace, name);
        let expectation = Expectation::Unchanged(current.revision());
        let result = match step {
            Step::Nothing => return Ok(Outcome::Stored(current)),
            Step::Put(object, ..) | Step::Remove(object, _) if options.dry_run => return Ok(Outcome::DryRun(object)),
            Step::Put(object, beside, mut charge) => {
                let converted = conversion::stored_form(call, &object).await?;
                let stored = converted.as_ref().unwrap_or(&object);
                let change = objects::put_change(call.served, key, expectation, stored);
                drop(object); // while it is in the processor's cache
                let beside = beside.into_iter().chain(charge.take_changes());
                let transaction = beside.fold(objects::transaction(call.served, change), |all, one| all.and(one));
                let committed = call.commit(transaction).await;
                committed.map(|c| Outcome::Stored(c.objects.into_iter().flatten().next().expect("a put has an object")))
            }
            Step::Remove(object, beside) => {
                let delete = Change::delete(key, expectation);
                let transaction =
                    beside.into_iter().fold(objects::transaction(call.served, delete), |all, one| all.and(one));
                call.commit(transaction).await.map(|_| Outcome::DryRun(object))
            }
        };
        match result {
            Ok(outcome) => return Ok(outcome),
            // One that named a version finds another now, and is refused.
            Err(CommitError::Conflict { .. } | CommitError::Missing { .. }) if tries < CONFLICT_TRIES_MAX => tries += 1,
            Err(CommitError::Exists { .. }) if tries < CONFLICT_TRIES_MAX => tries += 1,
            Err(CommitError::Exists { key, .. }) => return Err(allocation::exhausted(&key)),
            Err(error) => return Err(objects::refusal(call.served, name, error)),
        }
    }
}

enum Step<'a> {
    /// The object is as it should be.
    Nothing,
    /// It is stored anew, together with what changes beside it and what quotas record.
    Put(Value, Vec<Change>, Charge<'a>),
    /// Its last finalizer went: so does it.
    Remove(Value, Vec<Change>),
}

/// What to do with the present object.
async fn next<'a>(
    call: &mut Call<'a>,
    options: &WriteOptions,
    make: &mut Make<'_>,
    current: &Arc<Object>,
) -> Result<Step<'a>, Box<Status>> {
    let kind = call.kind();
    let name = call.object_name();
    let old = conversion::shown(call, current).await?;
    let mut new = made(call, make, &old).await?;
    check_version(call, &new, &old)?;
    new.ensure("metadata").set("resourceVersion", old["metadata"]["resourceVersion"].clone());
    let subresource = call.subresource.unwrap_or("");
    new["metadata"].remove("selfLink");
    // What a patch leaves twice, nobody sent so.
    if options.kind == "UpdateOptions" {
        super::drop_doubled_owners(call, &mut new, Found::Sent);
    }
    if !options.applied {
        ownership::update(call, options, Some(&old), &mut new).await;
    }
    admission::update(call, &mut new, &old, options).await?;
    super::drop_doubled_owners(call, &mut new, Found::Made);
    if call.subresource.is_none() {
        escalation::check(call, &new)?;
    }
    allocation::begin_update(call, &mut new, &old, options.dry_run)?;
    kind.prepare_update(subresource, &mut new, &old, &call.context(options.dry_run));
    if subresource.is_empty() {
        kind.count_emptied(&mut new, &old, &call.emptied);
    }
    let (errors, forgiven) = kind.judge_update(subresource, &new, &old);
    call.warnings.extend(forgiven);
    if !errors.is_empty() {
        let errors = super::as_given(call, &new, errors, |given| kind.check_update(subresource, given, &old));
        return Err(Box::new(Status::invalid(&kind.group_kind(), name, &errors)));
    }
    call.warnings.extend(kind.behaviour.warnings(&kind.node(&new), Some(&kind.node(&old))));
    admission::check_update(call, &new, &old, options).await?;
    kind.behaviour.canonicalize(&mut new);
    managed::keep_times(&mut new, &old);
    if is_released(&new) {
        let beside = allocation::changes(call, Some(&old), None)?;
        return Ok(Step::Remove(new, beside));
    }
    if new == old {
        return Ok(Step::Nothing);
    }
    let charge = quota::charge(call, &new, Some(&old), options.dry_run).await?;
    let beside = allocation::changes(call, Some(&old), Some(&new))?;
    Ok(Step::Put(new, beside, charge))
}

/// The next version. Who makes it of a kind that a webhook converts may need it in other versions first, and is called again then.
async fn made(call: &mut Call<'_>, make: &mut Make<'_>, old: &Value) -> Result<Value, Box<Status>> {
    let warnings = call.warnings.len();
    loop {
        let made = make(call, old);
        if call.memo.is_none() || !Box::pin(conversion::make_missing(call)).await? {
            return made;
        }
        call.warnings.truncate(warnings);
    }
}

/// Being deleted, with nothing left to wait for.
pub(crate) fn is_released(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let holds = metadata.get("finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    let held_by_namespace = object["kind"] == "Namespace"
        && object.find(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    metadata.has("deletionTimestamp")
        && metadata.number("deletionGracePeriodSeconds").unwrap_or(0) == 0
        && !holds
        && !held_by_namespace
}

fn check_version(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let name = call.object_name();
    let given = new["metadata"].text("resourceVersion");
    if given.is_empty() || given == "0" {
        if call.kind().behaviour.allow_unconditional_update() {
            return Ok(());
        }
        let path = Path::root("metadata");
        let zero = setpoint_api::BadValue::from(&serde_json::json!(0));
        let error = FieldError::invalid(&path.child("resourceVersion"), zero, "must be specified for an update");
        let resource = GroupKind::new(&*call.kind().group, &*call.kind().plural);
        return Err(Box::new(Status::invalid(&resource, name, &[error])));
    }
    check_readable_version(new)?;
    if given != old["metadata"].text("resourceVersion") {
        return Err(Box::new(objects::modified(call.served, name)));
    }
    Ok(())
}

/// A version that was given can be read as one.
pub(super) fn check_readable_version(object: &Value) -> Result<(), Box<Status>> {
    let given = object["metadata"].text("resourceVersion");
    if given.is_empty() || given.parse::<u64>().is_ok() {
        return Ok(());
    }
    let message = format!("strconv.ParseUint: parsing {}: invalid syntax", setpoint_api::quote::quote(given));
    Err(Box::new(Status::bad_request(message)))
}

/// What Kubernetes calls a resource in its storage, where that differs: error messages quote it.
fn storage_name(kind: &setpoint_schema::Kind) -> &str {
    match (&*kind.group, &*kind.plural) {
        ("", "endpoints") => "services/endpoints",
        ("", "services") => "services/specs",
        ("", "nodes") => "minions",
        ("", "replicationcontrollers") => "controllers",
        ("networking.k8s.io", "ingresses") => "ingress",
        (_, plural) => plural,
    }
}

/// An object that was deleted and made again is another one.
pub(crate) fn check_uid(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let (given, actual) = (new["metadata"].text("uid"), old["metadata"].text("uid"));
    if given.is_empty() || given == actual {
        return Ok(());
    }
    let name = call.object_name();
    let scope = call.namespace.filter(|_| call.kind().namespaced).map(|ns| format!("{ns}/")).unwrap_or_default();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{scope}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {actual}",
        storage_name(call.kind())
    );
    Err(Box::new(Status::conflict(&call.served.resource, name, why)))
}
