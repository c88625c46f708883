//! DELETE: at once, after a grace time, or once every finalizer is gone.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use setpoint_api::{FieldError, GroupResource, Path, Status};
use setpoint_schema::Edit;
use setpoint_store::{CommitError, Expectation, Object};

use super::{list, show, show_value};
use crate::answer::{self, Answer};
use crate::audit::Noted;
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::query::{ListOptions, Match, Query, check_dry_run, refuse};
use crate::representation::Representation;
use crate::{admission, conversion, definitions, objects};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// How often a delete that named no version is tried again.
const CONFLICT_TRIES_MAX: usize = 16;

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Orphan,
    Background,
    Foreground,
    /// As the kind and the finalizers that are there decide.
    Unset,
}

/// How to delete.
#[derive(Clone, Debug)]
pub(crate) struct DeleteOptions {
    grace_seconds: Option<i64>,
    uid: Option<String>,
    pub(super) resource_version: Option<String>,
    propagation: Propagation,
    /// `orphanDependents` is false: the old way to say what becomes of dependents.
    dependents_go: bool,
    pub(super) dry_run: bool,
}

impl DeleteOptions {
    /// From the body if there is one, else from the query.
    async fn read(call: &Call<'_>, body: Body) -> Result<DeleteOptions, Box<Status>> {
        let bytes = content::read(body).await?;
        if bytes.is_empty() {
            return DeleteOptions::asked(&call.query);
        }
        let options = DeleteOptions::of(&DeleteOptions::document(call, &bytes)?)?;
        // Kubernetes passes over this one too, and deletes what its user did not mean to.
        let is_dry = call.query.all("dryRun").iter().any(|value| value == "All");
        Ok(DeleteOptions { dry_run: options.dry_run || is_dry, ..options })
    }

    /// From a document.
    pub(super) fn of(object: &Value) -> Result<DeleteOptions, Box<Status>> {
        let text = |path: &[&str]| object.find(path).and_then(Value::as_str);
        let dry_run = object.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        let dry_run: Vec<String> = dry_run.filter_map(Value::as_str).map(str::to_owned).collect();
        let orphan = object.get("orphanDependents").and_then(Value::as_bool);
        Ok(DeleteOptions {
            grace_seconds: object.number("gracePeriodSeconds"),
            uid: text(&["preconditions", "uid"]).map(str::to_owned),
            resource_version: text(&["preconditions", "resourceVersion"]).map(str::to_owned),
            propagation: check(orphan, text(&["propagationPolicy"]), &dry_run)?,
            dependents_go: orphan == Some(false),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// From the query of a request without a body.
    fn asked(query: &Query<'_>) -> Result<DeleteOptions, Box<Status>> {
        let grace_seconds = query.number("gracePeriodSeconds")?;
        let orphan = query.maybe_flag("orphanDependents");
        let policy = query.has("propagationPolicy").then(|| query.get("propagationPolicy"));
        let dry_run = query.all("dryRun");
        let given = |name: &str| Some(query.get(name)).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(DeleteOptions {
            grace_seconds,
            uid: given("uid"),
            resource_version: given("resourceVersion"),
            propagation: check(orphan, policy, &dry_run)?,
            dependents_go: orphan == Some(false),
            dry_run: !dry_run.is_empty(),
        })
    }

    /// The form in which webhooks see them.
    fn to_value(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let mut preconditions = json!({});
        preconditions.set_or_remove("uid", self.uid.as_deref().map(Value::from));
        preconditions.set_or_remove("resourceVersion", self.resource_version.as_deref().map(Value::from));
        let propagation = match self.propagation {
            Propagation::Orphan => Some("Orphan"),
            Propagation::Background => Some("Background"),
            Propagation::Foreground => Some("Foreground"),
            Propagation::Unset => None,
        };
        options.set_or_remove("gracePeriodSeconds", self.grace_seconds.map(Value::from));
        if preconditions != json!({}) {
            options.set("preconditions", preconditions);
        }
        options.set_or_remove("propagationPolicy", propagation.map(Value::from));
        options.set_or_remove("dryRun", self.dry_run.then(|| json!(["All"])));
        options
    }

    fn document(call: &Call<'_>, bytes: &[u8]) -> Result<Value, Box<Status>> {
        let format = Format::of(call.headers)?;
        content::options(bytes, format)
    }
}

fn check(orphan: Option<bool>, policy: Option<&str>, dry_run: &[String]) -> Result<Propagation, Box<Status>> {
    let path = Path::root("propagationPolicy");
    let mut errors = Vec::new();
    if let Some(policy) = policy.filter(|_| orphan.is_some()) {
        errors.push(FieldError::invalid(&path, policy, "orphanDependents and deletionPropagation cannot be both set"));
    }
    let propagation = match (policy, orphan) {
        (None, None) => Propagation::Unset,
        (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
        (Some("Background"), _) | (None, Some(false)) => Propagation::Background,
        (Some("Foreground"), _) => Propagation::Foreground,
        (Some(policy), _) => {
            let allowed = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(&path, policy, &allowed));
            Propagation::Unset
        }
    };
    check_dry_run(dry_run, &mut errors);
    refuse("DeleteOptions", errors)?;
    Ok(propagation)
}

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let options = DeleteOptions::read(call, body).await?;
    call.noted.options(|| options.to_value());
    warn_of_orphans(call, &options);
    let deleted = delete(call, call.object_name(), &options).await?;
    // Who asks in the old way for dependents to go is told that the object waits for them.
    let waits = if options.dependents_go { StatusCode::ACCEPTED } else { StatusCode::OK };
    match deleted {
        Deleted::Waits(object) => show(call, waits, &object).await,
        Deleted::WouldWait(object) => show_value(call, waits, object),
        Deleted::Gone(object) if shows_what_is_gone(call.kind()) => show_value(call, StatusCode::OK, object),
        Deleted::Gone(object) => {
            let (name, uid) = (object["metadata"].text("name"), object["metadata"].text("uid"));
            Ok(answer::status(&Status::deleted(&call.served.resource, name, uid)))
        }
    }
}

/// Jobs leave their pods behind when the request doesn't say what becomes of them, which people don't expect.
fn warn_of_orphans(call: &mut Call<'_>, options: &DeleteOptions) {
    let orphans_pods = &*call.kind().kind == "Job" && call.kind().behaviour.orphans_dependents();
    if options.propagation == Propagation::Unset && orphans_pods {
        call.warnings.push("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".to_owned());
    }
}

/// Kinds whose delete answers with the object rather than with a word.
fn shows_what_is_gone(kind: &setpoint_schema::Kind) -> bool {
    match &*kind.group {
        "resource.k8s.io" => true,
        "storage.k8s.io" => kind.plural != "csistoragecapacities",
        "" => matches!(
            &*kind.plural,
            "resourcequotas"
                | "persistentvolumes"
                | "serviceaccounts"
                | "persistentvolumeclaims"
                | "namespaces"
                | "pods"
                | "services"
                | "podtemplates"
        ),
        _ => false,
    }
}

/// What a delete did.
pub(crate) enum Deleted {
    /// The object is gone; this is its last state.
    Gone(Value),
    /// It waits for its finalizers or its grace time.
    Waits(Arc<Object>),
    /// It would wait.
    WouldWait(Value),
}

/// Deletes one object.
pub(crate) async fn delete(call: &mut Call<'_>, name: &str, options: &DeleteOptions) -> Result<Deleted, Box<Status>> {
    admission::check_delete(call, name)?;
    let mut tries = 0;
    loop {
        let current = objects::find(&call.server.store.snapshot(), call.served, call.namespace, name)?;
        let mut object = conversion::shown(call, &current).await?;
        check_preconditions(call, name, &object, options)?;
        admission::delete(call, name, &object, options.to_value(), options.dry_run).await?;
        let key = objects::key(call.served, call.namespace, name);
        let expectation = Expectation::Unchanged(current.revision());
        let going = object["metadata"].has("deletionTimestamp").then(|| object.clone());
        let waits = begin(call, &mut object, options);
        if options.dry_run {
            return Ok(if waits { Deleted::WouldWait(object) } else { Deleted::Gone(object) });
        }
        let result = if !waits {
            let changes = crate::allocation::changes(call, Some(&object), None)?;
            let delete = setpoint_store::Change::delete(key, expectation);
            let transaction =
                changes.into_iter().fold(objects::transaction(call.served, delete), |all, one| all.and(one));
            call.commit(transaction).await.map(|_| Deleted::Gone(object))
        } else if going.as_ref() == Some(&object) {
            return Ok(Deleted::Waits(current));
        } else {
            let converted = conversion::stored_form(call, &object).await?;
            let object = converted.unwrap_or(object);
            objects::put(call, call.served, key, expectation, object).await.map(Deleted::Waits)
        };
        match result {
            Ok(deleted) => return Ok(deleted),
            Err(CommitError::Conflict { .. } | CommitError::Missing { .. }) if tries < CONFLICT_TRIES_MAX => tries += 1,
            Err(error) => return Err(objects::refusal(call.served, name, error)),
        }
    }
}

/// Deletes one object as if nothing was said of how.
pub(crate) async fn delete_plainly(call: &mut Call<'_>, name: &str) -> Result<(), Box<Status>> {
    let options = DeleteOptions {
        grace_seconds: None,
        uid: None,
        resource_version: None,
        propagation: Propagation::Unset,
        dependents_go: false,
        dry_run: false,
    };
    delete(call, name, &options).await.map(|_| ())
}

pub(super) fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Box<Status>> {
    let kind = call.kind();
    let resource = GroupResource::new(&*kind.group, &*kind.kind);
    let metadata = &object["metadata"];
    if is_namespace(kind) {
        return check_namespace_preconditions(call, name, metadata, options);
    }
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != metadata.text("uid")) {
        let actual = metadata.text("uid");
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({actual}). The object might have been deleted and then recreated"
        );
        return Err(Box::new(Status::conflict(&resource, name, why)));
    }
    if let Some(version) = options.resource_version.as_deref().filter(|v| *v != metadata.text("resourceVersion")) {
        let actual = metadata.text("resourceVersion");
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({actual}). The object might have been modified"
        );
        return Err(Box::new(Status::conflict(&resource, name, why)));
    }
    Ok(())
}

/// Namespaces word it differently.
fn check_namespace_preconditions(
    call: &Call<'_>,
    name: &str,
    metadata: &Value,
    options: &DeleteOptions,
) -> Result<(), Box<Status>> {
    let differs = |what: &str, field: &str, wanted: &Option<String>| {
        let (wanted, actual) = (wanted.as_deref()?, metadata.text(field));
        (wanted != actual)
            .then(|| format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"))
    };
    let why = differs("UID", "uid", &options.uid)
        .or_else(|| differs("ResourceVersion", "resourceVersion", &options.resource_version));
    why.map_or(Ok(()), |why| Err(Box::new(Status::conflict(&call.served.resource, name, why))))
}

/// Marks the object as being deleted where it has to wait; says whether it does.
fn begin(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) -> bool {
    let kind = call.kind();
    if is_definition(kind) && !object["metadata"].has("deletionTimestamp") {
        definitions::mark_deleted(object, &call.server.clock.timestamp());
        return true;
    }
    let is_filled = |object: &Value| object["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    if is_namespace(kind) && object["metadata"].has("deletionTimestamp") && is_filled(object) {
        return true;
    }
    let grace = kind.behaviour.grace_seconds(object, options.grace_seconds).map(|seconds| seconds.max(0));
    let finalizers = finalizers(call, object, options.propagation);
    let held = !finalizers.is_empty();
    object.ensure("metadata").set_or_remove("finalizers", held.then(|| finalizers.into()));
    if is_namespace(kind) {
        mark(call, object, 0);
        // Namespaces have no grace time: they end when their content has.
        object.ensure("metadata").remove("deletionGracePeriodSeconds");
        object.ensure("status").set("phase", "Terminating");
        return held || is_filled(object);
    }
    // Only kinds with a grace time show in their last state that it ran out; others go without ever being marked.
    if held || grace.is_some() {
        mark(call, object, grace.unwrap_or(0));
    }
    held || object["metadata"].number("deletionGracePeriodSeconds").unwrap_or(0) > 0
}

fn is_definition(kind: &setpoint_schema::Kind) -> bool {
    &*kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io"
}

fn is_namespace(kind: &setpoint_schema::Kind) -> bool {
    &*kind.kind == "Namespace" && kind.group.is_empty()
}

/// Says when the object ends. A later delete can only bring that forward.
fn mark(call: &Call<'_>, object: &mut Value, grace: i64) {
    let ends = setpoint_api::time::format_rfc3339(call.server.clock.seconds() + grace);
    let metadata = object.ensure("metadata");
    let marked = metadata.has("deletionTimestamp");
    if marked && grace >= metadata.number("deletionGracePeriodSeconds").unwrap_or(0) {
        return;
    }
    metadata.set("deletionTimestamp", ends);
    metadata.set("deletionGracePeriodSeconds", grace);
    let generation = metadata.number("generation").filter(|generation| !marked && *generation > 0);
    if let Some(generation) = generation {
        metadata.set("generation", generation + 1);
    }
}

/// The finalizers that the object has from now on: the garbage collector's own come and go with the policy.
fn finalizers(call: &Call<'_>, object: &Value, propagation: Propagation) -> Vec<String> {
    let present: Vec<String> = object
        .find(&["metadata", "finalizers"])
        .and_then(Value::as_array)
        .map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match propagation {
        Propagation::Orphan => (true, false),
        Propagation::Foreground => (false, true),
        Propagation::Background => (false, false),
        Propagation::Unset if has(ORPHAN) => (true, false),
        Propagation::Unset if has(FOREGROUND) => (false, true),
        Propagation::Unset => (call.kind().behaviour.orphans_dependents(), false),
    };
    let mut kept: Vec<String> = present.into_iter().filter(|name| name != ORPHAN && name != FOREGROUND).collect();
    if orphan {
        kept.push(ORPHAN.to_owned());
    }
    if foreground {
        kept.push(FOREGROUND.to_owned());
    }
    kept
}

/// DELETE of a collection: each of its objects.
pub(super) async fn run_collection(call: &mut Call<'_>, body: Body) -> Answer {
    let representation = Representation::of(call.headers, &call.query, false)?;
    let mut list_options = ListOptions::read(&call.query, false)?;
    // What is deleted is listed by page, and pages are of exactly the version that was asked for.
    if list_options.version_match == Match::Unset && list_options.revision().is_ok_and(|asked| asked.is_some()) {
        list_options.version_match = Match::Exact;
    }
    call.selection(&list_options)?;
    let options = DeleteOptions::read(call, body).await?;
    call.noted.options(|| options.to_value());
    warn_of_orphans(call, &options);
    let found = list::find(call, &list_options).await?;
    for object in &found.items {
        let value = objects::value(object);
        let (name, namespace) = (value["metadata"].text("name"), value["metadata"].text("namespace"));
        let mut one = Call {
            namespace: Some(namespace).filter(|n| !n.is_empty()),
            name: None,
            query: Query::default(),
            warnings: Vec::new(),
            emptied: Vec::new(),
            audit_annotations: Vec::new(),
            noted: Noted::default(),
            memo: None,
            ..*call
        };
        let deleted = delete(&mut one, name, &options).await;
        call.warnings.append(&mut one.warnings);
        call.audit_annotations.append(&mut one.audit_annotations);
        match deleted {
            Err(status) if status.reason != "NotFound" => return Err(status),
            _ => {}
        }
    }
    list::show(call, &found, representation).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::Server;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    async fn server() -> Server {
        let server = Server::start().await;
        server.done("POST", MAPS, json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}})).await;
        server
    }

    #[tokio::test]
    async fn options_in_a_body_are_all_that_counts_but_for_a_dry_run() {
        let server = server().await;
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        server.done("DELETE", &format!("{MAPS}/a?dryRun=All"), body).await;
        let there = server.done("GET", &format!("{MAPS}/a"), Value::Null).await;
        assert!(there["metadata"].get("deletionTimestamp").is_none());
        let path = format!("{MAPS}/a?propagationPolicy=Orphan&gracePeriodSeconds=x");
        let deleted = server.done("DELETE", &path, json!({"apiVersion": "made-up/v7", "kind": "DeleteOptions"})).await;
        assert_eq!(deleted["metadata"]["finalizers"], json!(["example.com/x"]));
        assert!(
            server.done("GET", &format!("{MAPS}/a"), Value::Null).await["metadata"]["deletionTimestamp"].is_string()
        );
    }

    #[tokio::test]
    async fn the_query_can_say_which_object_is_meant() {
        let server = server().await;
        for (query, expected) in
            [("uid=x", "the UID in the precondition (x)"), ("resourceVersion=0", "ResourceVersion")]
        {
            let (code, message) = server.refused("DELETE", &format!("{MAPS}/a?{query}"), Value::Null).await;
            assert_eq!(code, 409);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[tokio::test]
    async fn who_makes_what_is_about_to_go_is_told() {
        let server = server().await;
        let again = json!({"metadata": {"name": "a"}});
        let there = "configmaps \"a\" already exists";
        assert_eq!(server.refused("POST", MAPS, again.clone()).await, (409, there.to_owned()));
        server.done("DELETE", &format!("{MAPS}/a"), Value::Null).await;
        let going = format!("object is being deleted: {there}");
        assert_eq!(server.refused("POST", MAPS, again.clone()).await, (409, going.clone()));
        assert_eq!(server.refused("POST", &format!("{MAPS}?dryRun=All"), again).await, (409, going));
    }

    #[tokio::test]
    async fn a_policy_that_is_there_and_empty_is_none() {
        let server = server().await;
        for (query, body) in [("?propagationPolicy=", Value::Null), ("", json!({"propagationPolicy": ""}))] {
            let (code, message) = server.refused("DELETE", &format!("{MAPS}/a{query}"), body).await;
            assert_eq!(code, 422);
            assert!(message.contains("propagationPolicy: Unsupported value: \"\""), "{message}");
        }
    }

    #[tokio::test]
    async fn who_asks_in_the_old_way_is_told_that_the_object_waits() {
        let server = server().await;
        let (code, _) = server.send("DELETE", &format!("{MAPS}/a"), json!({"orphanDependents": false})).await;
        assert_eq!(code, 202);
    }

    #[tokio::test]
    async fn a_namespace_that_ends_is_not_changed_by_another_delete() {
        let server = Server::start().await;
        server.done("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
        let first = server.done("DELETE", "/api/v1/namespaces/n", Value::Null).await;
        let second = server.done("DELETE", "/api/v1/namespaces/n?propagationPolicy=Orphan", Value::Null).await;
        assert_eq!(first, second);
    }
}
