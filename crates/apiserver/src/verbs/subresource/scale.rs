//! `/scale`: the size of a workload, as a small object of its own.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::behaviour::{Behaviour, ScalePaths};
use setpoint_schema::builtin::{self, autoscaling::scale};
use setpoint_schema::{Column, Edit, Errors, Kind, managed};

use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::query::WriteOptions;
use crate::registry::Served;
use crate::verbs::create::{self, Outcome};
use crate::verbs::{apply, not_allowed, patch, show_value, update};
use crate::{conversion, objects, ownership};

/// Scale as if it were a kind with objects: so it is read, patched and shown like one.
static SCALE: LazyLock<Arc<Served>> = LazyLock::new(|| {
    let deployment = builtin::by_plural("apps", "v1", "deployments").expect("a built-in kind");
    let part = deployment.subresource("scale").expect("a deployment has a size");
    Arc::new(Served::new(Arc::new(Kind {
        group: part.group.clone(),
        version: part.version.clone(),
        kind: part.kind.clone(),
        root: part.root,
        behaviour: Arc::new(Scale),
        ..(**deployment).clone()
    })))
});

#[derive(Debug)]
struct Scale;

impl Behaviour for Scale {
    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        scale::COLUMNS.into()
    }
}

pub(super) async fn run(call: &mut Call<'_>, verb: &str, body: Body) -> Answer {
    let paths = call.kind().behaviour.scale().ok_or_else(not_allowed)?;
    match verb {
        "get" => {
            let object = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name())?;
            let object = conversion::shown(call, &object).await?;
            if call.served.custom.is_some() && !has_size(&object, &paths) {
                let why = format!("the spec replicas field \"{}\" does not exist", dotted(&paths));
                return Err(Box::new(Status::internal_error(why)));
            }
            answer(call, &object, &paths)
        }
        "update" => replace(call, body, &paths).await,
        "patch" => {
            let media = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
            match patch::is_apply(media) {
                true => apply(call, body, &paths).await,
                false => patch(call, body, &paths).await,
            }
        }
        _ => Err(not_allowed()),
    }
}

async fn patch(call: &mut Call<'_>, body: Body, paths: &ScalePaths) -> Answer {
    let options = WriteOptions::read(&call.query, "PatchOptions")?;
    let mut through = |call: &mut Call<'_>, old: &Value, patched: &patch::Patched<'_>| {
        let before = tracked(call, old, paths)?;
        let mut scale = as_scale(call, |call| patched(call, &before))?;
        track(call, &options, &before, &mut scale);
        check_is_given(call, old, &scale, paths)?;
        resized(call, old, &scale, paths)
    };
    let outcome = patch::apply(call, body, patch::Ownership::Told, &mut through).await?;
    let scaled = value(call, outcome).await?;
    answer(call, &scaled, paths)
}

async fn apply(call: &mut Call<'_>, body: Body, paths: &ScalePaths) -> Answer {
    let options = WriteOptions::of_apply(&call.query)?;
    let bytes = content::read(body).await?;
    let config = as_scale(call, |call| apply::read(call, &bytes, &options))?;
    let mut make = |call: &mut Call<'_>, old: &Value| {
        update::check_uid(call, &config, old)?;
        let before = tracked(call, old, paths)?;
        let mut scale = as_scale(call, |call| apply::merged(call, Some(&before), &config, &options))?;
        let version = config["metadata"].get("resourceVersion").cloned();
        scale.ensure("metadata").set_or_remove("resourceVersion", version);
        check_is_given(call, old, &scale, paths)?;
        resized(call, old, &scale, paths)
    };
    let outcome = update::change(call, &options, &mut make).await?;
    let scaled = value(call, outcome).await?;
    answer(call, &scaled, paths)
}

async fn replace(call: &mut Call<'_>, body: Body, paths: &ScalePaths) -> Answer {
    let options = WriteOptions { applied: true, ..WriteOptions::read(&call.query, "UpdateOptions")? };
    let format = Format::of(call.headers)?;
    let bytes = content::read(body).await?;
    let read = content::object(&bytes, format, &SCALE.kind, options.field_validation);
    let read = read.map_err(|status| if is_other_kind(call, &bytes) { unregistered() } else { status })?;
    call.warnings.extend(read.warnings);
    let mut scale = read.object;
    update::check_name(call, &mut scale)?;
    create::check_namespace(call, &mut scale)?;
    let mut make = |call: &mut Call<'_>, old: &Value| {
        update::check_uid(call, &scale, old)?;
        let (before, mut scale) = (tracked(call, old, paths)?, scale.clone());
        track(call, &options, &before, &mut scale);
        resized(call, old, &scale, paths)
    };
    let outcome = update::change(call, &options, &mut make).await?;
    let scaled = value(call, outcome).await?;
    answer(call, &scaled, paths)
}

/// Whether a custom kind's scale was sent something else.
fn is_other_kind(call: &Call<'_>, bytes: &[u8]) -> bool {
    let sent = || serde_json::from_slice::<Value>(bytes).ok().map(|object| object.text("kind") != "Scale");
    call.served.custom.is_some() && sent().unwrap_or(false)
}

fn unregistered() -> Box<Status> {
    let scheme = "pkg/apiserver/customresource_handler.go:781";
    Box::new(Status::bad_request(format!("no kind is registered for the type v1.Scale in scheme \"{scheme}\"")))
}

/// The scale of an object, with those who own its size.
fn tracked(call: &Call<'_>, object: &Value, paths: &ScalePaths) -> Result<Value, Box<Status>> {
    let mut scale = scale::scale_of(object, paths);
    let ways = ways(call, paths);
    let managed = managed::to_scale(object["metadata"].get("managedFields"), &as_versions(&ways));
    scale.ensure("metadata").set_or_remove("managedFields", managed.map_err(untracked)?);
    Ok(scale)
}

/// Marks what a write other than apply sets.
fn track(call: &mut Call<'_>, options: &WriteOptions, before: &Value, scale: &mut Value) {
    as_scale(call, |call| ownership::mark(call, options, Some(before), scale));
}

fn untracked(why: String) -> Box<Status> {
    Box::new(Status::internal_error(why))
}

/// Where each version of a kind has its size.
fn ways(call: &Call<'_>, paths: &ScalePaths) -> Vec<(String, Option<Vec<String>>)> {
    match &call.served.custom {
        Some(custom) => {
            let way = |kind: &Kind| kind.behaviour.scale().map(|paths| paths.spec_replicas);
            custom.versions().iter().map(|kind| (kind.api_version(), way(kind))).collect()
        }
        None => vec![(call.kind().api_version(), Some(paths.spec_replicas.clone()))],
    }
}

fn as_versions(ways: &[(String, Option<Vec<String>>)]) -> Vec<(&str, Option<&[String]>)> {
    ways.iter().map(|(version, way)| (version.as_str(), way.as_deref())).collect()
}

fn has_size(object: &Value, paths: &ScalePaths) -> bool {
    paths.spec_replicas.iter().try_fold(object, |at, name| at.get(name)).is_some_and(|size| !size.is_null())
}

fn dotted(paths: &ScalePaths) -> String {
    paths.spec_replicas.iter().map(|name| format!(".{name}")).collect()
}

/// A patch has to give a custom object without a size one. Who sends a whole scale without a size sends zero.
fn check_is_given(call: &Call<'_>, old: &Value, scale: &Value, paths: &ScalePaths) -> Result<(), Box<Status>> {
    if call.served.custom.is_none() || scale["spec"].number("replicas").is_some() || has_size(old, paths) {
        return Ok(());
    }
    let why = format!("the spec replicas field \"{}\" cannot be empty", dotted(paths));
    Err(Box::new(Status::bad_request(why)))
}

/// The object with the size of a scale.
fn resized(call: &Call<'_>, old: &Value, scale: &Value, paths: &ScalePaths) -> Result<Value, Box<Status>> {
    let mut errors = Errors::new();
    scale::validate(&SCALE.kind.node(scale), &mut errors);
    let errors = errors.into_vec();
    if !errors.is_empty() {
        return Err(Box::new(Status::invalid(&SCALE.kind.group_kind(), call.object_name(), &errors)));
    }
    let size = scale["spec"].number("replicas");
    let mut new = old.clone();
    let version = scale["metadata"].get("resourceVersion").cloned();
    // Custom kinds take no update without a version, but their scale does.
    if version.is_some() || call.served.custom.is_none() {
        new.ensure("metadata").set_or_remove("resourceVersion", version);
    }
    let ways = ways(call, paths);
    let (before, after) = (old["metadata"].get("managedFields"), scale["metadata"].get("managedFields"));
    let managed = managed::from_scale(before, after, &as_versions(&ways), &call.kind().api_version());
    new.ensure("metadata").set_or_remove("managedFields", managed.map_err(untracked)?);
    let Some((last, way)) = paths.spec_replicas.split_last() else { return Ok(new) };
    let at = way.iter().fold(&mut new, |at, name| at.ensure(name));
    at.set(last, size.unwrap_or(0));
    Ok(new)
}

async fn value(call: &Call<'_>, outcome: Outcome) -> Result<Value, Box<Status>> {
    match outcome {
        Outcome::Stored(object) => conversion::shown(call, &object).await,
        Outcome::DryRun(object) => Ok(object),
    }
}

fn answer(call: &mut Call<'_>, object: &Value, paths: &ScalePaths) -> Answer {
    let shown = scale::scale_of(object, paths);
    as_scale(call, |call| show_value(call, StatusCode::OK, shown))
}

/// Does something with a call as if it were about objects of kind Scale.
fn as_scale<T>(call: &mut Call<'_>, work: impl FnOnce(&mut Call<'_>) -> T) -> T {
    let served = std::mem::replace(&mut call.served, &SCALE);
    let result = work(call);
    call.served = served;
    result
}
