//! POST: a new object.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use setpoint_api::{GroupResource, Status, StatusCause};
use setpoint_schema::Edit;
use setpoint_store::{CommitError, Expectation, Object};

use super::{Found, show, show_value};
use crate::admission::quota;
use crate::answer::Answer;
use crate::authorization::{self, escalation};
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::query::WriteOptions;
use crate::{admission, allocation, conversion, objects, ownership};

/// How often another name is drawn when a generated one is taken.
const GENERATE_TRIES_MAX: usize = 8;

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    if crate::reviews::is_review(call.kind()) {
        crate::reviews::check_form(call)?;
    }
    let format = Format::of(call.headers)?;
    let options = WriteOptions::read(&call.query, "CreateOptions")?;
    let bytes = content::read(body).await?;
    let read = content::object(&bytes, format, call.kind(), options.field_validation)?;
    call.warnings.extend(read.warnings);
    call.emptied = read.emptied;
    let mut object = read.object;
    wipe(&mut object);
    check_namespace(call, &mut object)?;
    call.kind().behaviour.default(&mut object);
    call.noted.object(&object);
    if crate::reviews::is_review(call.kind()) {
        let name = object["metadata"].text("name").to_owned();
        ownership::update(call, &options, None, &mut object).await;
        admission::post(call, &mut object, &name, &options).await?;
        return crate::reviews::answer(call, object, &options).await;
    }
    match insert(call, object, &options).await? {
        Outcome::Stored(object) => show(call, StatusCode::CREATED, &object).await,
        Outcome::DryRun(object) => show_value(call, StatusCode::CREATED, object),
    }
}

/// A write that happened, or would have.
pub(crate) enum Outcome {
    /// It is stored.
    Stored(Arc<Object>),
    /// It would be.
    DryRun(Value),
}

/// The namespace of the URL and that of the object are the same, and the object says it.
pub(crate) fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    if !call.kind().namespaced {
        object.ensure("metadata").remove("namespace");
        return Ok(());
    }
    check_same_namespace(call, object)?;
    let metadata = object.ensure("metadata");
    if let Some(wanted) = call.namespace.filter(|wanted| !wanted.is_empty() && metadata.text("namespace").is_empty()) {
        metadata.set("namespace", wanted);
    }
    Ok(())
}

/// If the object names a namespace, it is that of the URL.
pub(crate) fn check_same_namespace(call: &Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    let given = object["metadata"].text("namespace");
    if !call.kind().namespaced || given.is_empty() || given == call.namespace.unwrap_or("") {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Box::new(Status::bad_request(message)))
}

/// Stores a new object that was read and defaulted.
pub(crate) async fn insert(
    call: &mut Call<'_>,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Outcome, Box<Status>> {
    admit(call, &mut object, options).await?;
    // A name is drawn only now: who changes new objects sees them without one.
    let metadata = object.ensure("metadata");
    let generated = metadata.text("name").is_empty() && !metadata.text("generateName").is_empty();
    if generated {
        draw_name(call, &mut object)?;
    }
    let inserted = match allocation::concerns(call.kind()) {
        false => insert_named(call, object, options).await,
        true => insert_drawing(call, &object, options).await,
    };
    inserted.map_err(|status| match &status.details {
        // Somebody else drew the same name at the same moment.
        Some(details) if generated && status.reason == "AlreadyExists" => name_is_taken(call, &details.name),
        _ => status,
    })
}

/// Stores a new object for which something is drawn that others may draw at the same moment.
async fn insert_drawing(call: &mut Call<'_>, object: &Value, options: &WriteOptions) -> Result<Outcome, Box<Status>> {
    let (warnings, mut draws) = (call.warnings.len(), 0);
    loop {
        call.warnings.truncate(warnings);
        match insert_named(call, object.clone(), options).await {
            Err(status) if allocation::is_lost_race(call.kind(), &status) && draws < allocation::DRAW_TRIES_MAX => {
                draws += 1
            }
            result => return result,
        }
    }
}

/// Gives a new object a name that nobody has.
fn draw_name(call: &Call<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    let snapshot = call.server.store.snapshot();
    let metadata = object.ensure("metadata");
    let mut tries = 0;
    loop {
        let name = generated_name(metadata.text("generateName"), &call.server.chance.suffix());
        let key = objects::key(call.served, call.namespace, &name);
        if snapshot.get(&call.served.stored, key.namespace(), &name).is_none() {
            metadata.set("name", name);
            return Ok(());
        }
        if tries == GENERATE_TRIES_MAX {
            return Err(name_is_taken(call, &name));
        }
        tries += 1;
    }
}

fn name_is_taken(call: &Call<'_>, name: &str) -> Box<Status> {
    Box::new(Status::generate_name_conflict(&call.served.resource, name, 1))
}

/// What is done to a new object before it is judged, once.
async fn admit(call: &mut Call<'_>, object: &mut Value, options: &WriteOptions) -> Result<(), Box<Status>> {
    if !options.applied {
        super::drop_doubled_owners(call, object, Found::Sent);
    }
    if !options.applied {
        ownership::update(call, options, None, object).await;
    }
    admission::create(call, object, options).await?;
    super::drop_doubled_owners(call, object, Found::Made);
    // Who may not give what a role holds isn't told what else is wrong with it.
    escalation::check(call, object)?;
    Ok(())
}

/// Room for the random end within the limit of names.
fn generated_name(base: &str, suffix: &str) -> String {
    const NAME_MAX: usize = 63;
    let room = NAME_MAX - suffix.len();
    let mut end = base.len().min(room);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &base[..end])
}

async fn insert_named(call: &mut Call<'_>, mut object: Value, options: &WriteOptions) -> Result<Outcome, Box<Status>> {
    let kind = call.kind();
    stamp(call, &mut object);
    allocation::begin_create(call, &mut object, options.dry_run)?;
    let context = call.context(options.dry_run);
    kind.prepare_create(&mut object, &context);
    let name = object["metadata"].text("name").to_owned();
    let around = admission::errors_of_surroundings(call, &object);
    let errors = kind.check_create(&object);
    if around.is_some() || !errors.is_empty() {
        let errors = super::as_given(call, &object, errors, |given| kind.check_create(given));
        let errors: Vec<_> = around.into_iter().chain(errors).collect();
        return Err(Box::new(Status::invalid(&kind.group_kind(), &name, &errors)));
    }
    // What is valid is warned of, even if it is refused for another reason.
    call.warnings.extend(kind.behaviour.warnings(&kind.node(&object), None));
    // Who asked for a change that turns out to be a creation may have the right to changes only.
    if call.name.is_some() {
        authorization::check_create(call)?;
    }
    admission::check_create(call, &object, options).await?;
    kind.behaviour.canonicalize(&mut object);
    store(call, &name, object, options).await
}

/// Commits a new object with what has to be recorded beside it.
async fn store(call: &Call<'_>, name: &str, mut object: Value, options: &WriteOptions) -> Result<Outcome, Box<Status>> {
    if options.dry_run {
        quota::charge(call, &object, None, true).await?;
        let key = objects::key(call.served, call.namespace, name);
        let exists = call.server.store.snapshot().get(&call.served.stored, key.namespace(), name);
        return match exists {
            Some(_) => Err(told_of_deletion(call, name, Box::new(Status::already_exists(&call.served.resource, name)))),
            None => Ok(Outcome::DryRun(object)),
        };
    }
    let version = object["metadata"].remove("resourceVersion");
    object["metadata"].remove("selfLink");
    if call.name.is_none() && version.is_some_and(|version| names_a_version(&version)) {
        return Err(Box::new(Status::bad_request("resourceVersion should not be set on objects to be created")));
    }
    let converted = conversion::stored_form(call, &object).await?;
    let mut tries = 0;
    loop {
        let mut charge = quota::charge(call, &object, None, false).await?;
        let beside = allocation::changes(call, None, Some(&object))?.into_iter().chain(charge.take_changes());
        let key = objects::key(call.served, call.namespace, name);
        let change = objects::put_change(call.served, key, Expectation::Absent, converted.as_ref().unwrap_or(&object));
        let transaction = beside.fold(objects::transaction(call.served, change), |all, one| all.and(one));
        // Dropped before the wait, while it is in the processor's cache. Who charges a quota may have to do so again.
        if !charge.is_made() {
            object = Value::Null;
        }
        match call.commit(transaction).await {
            Ok(committed) => {
                let stored = committed.objects.into_iter().flatten().next().expect("a put has an object");
                return Ok(Outcome::Stored(stored));
            }
            Err(error) if quota::is_lost_race(&error) && tries < quota::CONFLICT_TRIES_MAX => tries += 1,
            Err(CommitError::Exists { key, .. }) if *key.resource() != call.served.stored => {
                return Err(allocation::exhausted(&key));
            }
            Err(error) => return Err(told_of_deletion(call, name, objects::refusal(call.served, name, error))),
        }
    }
}

/// Who can't make an object because it is there is told if it is about to go.
fn told_of_deletion(call: &Call<'_>, name: &str, mut refusal: Box<Status>) -> Box<Status> {
    let there = objects::find(&call.server.store.snapshot(), call.served, call.namespace, name);
    let goes = there.is_ok_and(|object| objects::value(&object)["metadata"].has("deletionTimestamp"));
    if refusal.reason == "AlreadyExists" && goes {
        refusal.message = format!("object is being deleted: {}", refusal.message);
    }
    refusal
}

/// Whether it is the version of some object. What can't be read as one is passed over, as by upstream's storage.
fn names_a_version(version: &Value) -> bool {
    version.as_str().and_then(|text| text.parse::<u64>().ok()).is_some_and(|number| number > 0)
}

/// What a client that posts an object has no say in. One that applies or puts a new object keeps what isn't set anew.
fn wipe(object: &mut Value) {
    let metadata = object.ensure("metadata");
    for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
}

/// What only the server decides: identity and time.
fn stamp(call: &Call<'_>, object: &mut Value) {
    let now = call.server.clock.timestamp();
    let metadata = object.ensure("metadata");
    metadata.set("uid", call.server.chance.uid());
    metadata.set("creationTimestamp", now);
}

/// What the JSON of an object contains that is being deleted.
const DELETED: &[u8] = b"\"deletionTimestamp\"";

/// New content needs a namespace that is there and stays.
pub(crate) fn check_namespace_lives(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    let Some(namespace) = call.namespace.filter(|_| call.kind().namespaced) else { return Ok(()) };
    let namespaces = GroupResource::new("", "namespaces");
    let Some(found) = call.server.store.snapshot().get(&namespaces, None, namespace) else {
        return Err(Box::new(Status::not_found(&namespaces, namespace)));
    };
    // The phase is a fact at hand. Only a namespace whose bytes could say that it is being deleted is worth reading.
    let mentions_deletion = found.json().windows(DELETED.len()).any(|bytes| bytes == DELETED);
    let is_deleted = || objects::value(&found).find(&["metadata", "deletionTimestamp"]).is_some();
    if found.facts().field("status.phase") != Some("Terminating") && !(mentions_deletion && is_deleted()) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = StatusCause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    };
    Err(Box::new(Status::forbidden(&call.served.resource, name, why).with_cause(cause)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::generated_name;
    use crate::testing::Server;

    #[tokio::test]
    async fn an_error_quotes_what_was_given_empty_as_it_was_given() {
        let server = Server::start().await;
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"metadata": {"name": "j"}, "spec": {"template": template, "successPolicy": {"rules": []}}});
        let (code, message) = server.refused("POST", "/apis/batch/v1/namespaces/default/jobs", job).await;
        assert_eq!(code, 422);
        assert!(message.contains("spec.successPolicy: Invalid value: {\"Rules\":[]}"), "{message}");

        let classes = "/apis/storage.k8s.io/v1/storageclasses";
        let class = |parameters| json!({"metadata": {"name": "s"}, "provisioner": "x/y", "parameters": parameters});
        server.done("POST", classes, class(json!({"a": "b"}))).await;
        let (_, message) = server.refused("PUT", &format!("{classes}/s"), class(json!({}))).await;
        assert!(message.contains("parameters: Invalid value: {}: field is immutable"), "{message}");
    }

    #[tokio::test]
    async fn what_a_client_has_no_say_in_is_wiped_from_what_is_posted_only() {
        let server = Server::start().await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = |name: &str, version: &str| {
            let time = "2001-01-01T00:00:00Z";
            json!({"metadata": {"name": name, "deletionTimestamp": time, "resourceVersion": version, "uid": "u"}})
        };
        let (_, message) = server.refused("POST", maps, map("_", "5")).await;
        assert!(message.contains("metadata.name"), "{message}");
        let (_, message) = server.refused("POST", maps, map("a", "5")).await;
        assert_eq!(message, "resourceVersion should not be set on objects to be created");
        let tried = server.done("POST", &format!("{maps}?dryRun=All"), map("a", "5")).await;
        assert_eq!(
            (&tried["metadata"]["resourceVersion"], tried["metadata"].get("deletionTimestamp")),
            (&json!("5"), None)
        );
        server.done("POST", maps, map("a", "unreadable")).await;

        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        let put = server.done("PUT", &format!("{leases}/a"), map("a", "5")).await;
        assert!(put["metadata"].get("deletionTimestamp").is_some() && put["metadata"]["uid"] != "u");
        let (_, message) = server.refused("PUT", &format!("{leases}/b"), map("b", "x")).await;
        assert_eq!(message, "strconv.ParseUint: parsing \"x\": invalid syntax");
    }

    #[tokio::test]
    async fn a_list_that_is_given_empty_and_printed_as_null_is_owned() {
        let server = Server::start().await;
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []});
        let made = server.done("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
        assert_eq!(made["endpoints"], json!(null));
        let owned = &made["metadata"]["managedFields"][0]["fieldsV1"];
        assert_eq!(*owned, json!({"f:addressType": {}, "f:endpoints": {}}));
    }

    #[test]
    fn a_generated_name_never_exceeds_a_label() {
        assert_eq!(generated_name("web-", "abcde"), "web-abcde");
        assert_eq!(generated_name(&"x".repeat(80), "abcde").len(), 63);
    }

    /// Two servers draw the same, because they begin with the same seed and are asked for the same.
    #[tokio::test]
    async fn a_name_that_is_taken_is_drawn_anew() {
        let maps = "/api/v1/namespaces/default/configmaps";
        let named_and_drawn = async |server: &Server, name: &str| {
            server.done("POST", maps, json!({"metadata": {"name": name}})).await;
            let drawn = server.done("POST", maps, json!({"metadata": {"generateName": "a-"}})).await;
            drawn["metadata"]["name"].as_str().unwrap().to_owned()
        };
        let first = named_and_drawn(&Server::start().await, "other").await;
        let second = named_and_drawn(&Server::start().await, &first).await;
        assert_ne!(second, first);
        assert!(second.starts_with("a-"), "{second}");
    }
}
