//! `/scale`: the size of a workload, as a small object of its own.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use http::StatusCode;
use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::behaviour::{Behaviour, ScalePaths};
use setpoint_schema::builtin::{self, autoscaling::scale};
use setpoint_schema::{Column, Edit, Errors, Kind};

use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::objects;
use crate::query::WriteOptions;
use crate::registry::Served;
use crate::verbs::create::{self, Outcome};
use crate::verbs::{not_allowed, patch, show_value, update};

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
            answer(call, &objects::value(&object), &paths)
        }
        "update" => replace(call, body, &paths).await,
        "patch" => {
            let mut through = |call: &mut Call<'_>, old: &Value, patched: &patch::Patched<'_>| {
                let before = scale::scale_of(old, &paths);
                let scale = as_scale(call, |call| patched(call, &before))?;
                resized(call, old, &scale, &paths)
            };
            let outcome = patch::apply(call, body, &mut through).await?;
            answer(call, &value(outcome), &paths)
        }
        _ => Err(not_allowed()),
    }
}

async fn replace(call: &mut Call<'_>, body: Body, paths: &ScalePaths) -> Answer {
    let options = WriteOptions::read(&call.query, "UpdateOptions")?;
    let format = Format::of(call.headers)?;
    let bytes = content::read(body).await?;
    let read = content::object(&bytes, format, &SCALE.kind, options.field_validation)?;
    call.warnings.extend(read.warnings);
    let mut scale = read.object;
    update::check_name(call, &mut scale)?;
    create::check_namespace(call, &mut scale)?;
    let mut make = |call: &mut Call<'_>, old: &Value| {
        update::check_uid(call, &scale, old)?;
        resized(call, old, &scale, paths)
    };
    let outcome = update::change(call, &options, &mut make).await?;
    answer(call, &value(outcome), paths)
}

/// The object with the size of a scale.
fn resized(call: &Call<'_>, old: &Value, scale: &Value, paths: &ScalePaths) -> Result<Value, Box<Status>> {
    let mut errors = Errors::new();
    scale::validate(&SCALE.kind.node(scale), &mut errors);
    let errors = errors.into_vec();
    if !errors.is_empty() {
        return Err(Box::new(Status::invalid(&SCALE.kind.group_kind(), call.object_name(), &errors)));
    }
    let mut new = old.clone();
    let version = scale["metadata"].get("resourceVersion").cloned();
    new.ensure("metadata").set_or_remove("resourceVersion", version);
    let Some((last, way)) = paths.spec_replicas.split_last() else { return Ok(new) };
    let at = way.iter().fold(&mut new, |at, name| at.ensure(name));
    at.set(last, scale["spec"].number("replicas").unwrap_or(0));
    Ok(new)
}

fn value(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Stored(object) => objects::value(&object),
        Outcome::DryRun(object) => object,
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
