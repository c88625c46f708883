//! `setpoint apply`: makes objects as files say, by server-side apply.

use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::dry_run::DryRun;
use crate::failure::{Failure, print, say};
use crate::manifest::{self, FileArguments, Known};
use crate::misnamed;
use crate::output::Output;
use crate::request::{Ask, JSON, Server, Trouble};
use crate::terminal::with_progress;

/// Whose fields they are unless it is said otherwise.
const MANAGER: &str = "setpoint";

/// The command line.
#[derive(Args, Debug)]
pub struct ApplyArguments {
    /// Take fields over that others wrote
    #[arg(long)]
    pub force_conflicts: bool,
    /// Say `serverside-applied`, as kubectl does; the server merges in any case
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub server_side: bool,
    /// Whose fields they are
    #[arg(long, value_name = "NAME", default_value = MANAGER)]
    pub field_manager: String,
    /// Don't do it: none, client or server
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "unchanged")]
    pub dry_run: String,
    /// What becomes of fields that a kind doesn't have: strict, warn or ignore
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_value = "strict", default_missing_value = "strict")]
    pub validate: String,
    /// Form of the output: json, yaml, name, jsonpath=…
    #[arg(long, short, value_name = "FORM")]
    pub output: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: FileArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Runs it.
pub async fn run(arguments: &ApplyArguments) -> Result<(), Failure> {
    let form = Output::parse(arguments.output.as_deref())?;
    let dry_run = DryRun::parse(&arguments.dry_run)?;
    let validation = validation(&arguments.validate)?;
    if arguments.files.files.is_empty() {
        return Err(Failure::error("must specify one of -f and -k")
            .hint("name a file, a directory, or - for standard input: `setpoint apply -f web.yaml`"));
    }
    let manifests = arguments.files.read()?;
    if manifests.is_empty() {
        return Err(Failure::error("no objects passed to apply").hint("the files have nothing but comments in them"));
    }
    let server = arguments.connection.connect().await?;
    let mut failures = Vec::new();
    let mut rest = manifests;
    // A definition in the same files makes kinds known that were not when we began.
    let mut discovery = Discovery::read(&server).await?;
    loop {
        let (known, unknown) = manifest::know(rest.clone(), &discovery, &server);
        let defines = known.iter().any(|object| object.kind.kind == "CustomResourceDefinition");
        for object in &known {
            let what = format!("applying {}", object.source);
            match with_progress(&what, apply(arguments, &server, object, dry_run, validation)).await {
                Ok((done, answer)) => tell(&form, object, done, dry_run, &answer)?,
                Err(failure) => failures.push(failure),
            }
        }
        if unknown.is_empty() || !defines || dry_run != DryRun::None {
            failures.extend(unknown);
            break;
        }
        rest.retain(|manifest| {
            let text = |name: &str| manifest.object[name].as_str().unwrap_or_default().to_owned();
            discovery.of_manifest(&text("apiVersion"), &text("kind")).is_none()
        });
        discovery = Discovery::read(&server).await?;
    }
    Failure::all(failures)
}

fn validation(text: &str) -> Result<&'static str, Failure> {
    match text {
        "strict" | "true" => Ok("Strict"),
        "warn" => Ok("Warn"),
        "ignore" | "false" => Ok("Ignore"),
        other => Err(Failure::error(format!(
            "invalid - validate option {other:?}; must be one of: strict (or true), warn, ignore (or false)"
        ))
        .hint("strict refuses fields that a kind doesn't have, warn tells of them, ignore drops them")),
    }
}

async fn apply(
    arguments: &ApplyArguments,
    server: &Server,
    object: &Known,
    dry_run: DryRun,
    validation: &str,
) -> Result<(&'static str, Value), Failure> {
    let Known { kind, namespace, name, source, .. } = object;
    if name.is_empty() {
        return Err(Failure::error(format!(
            "error when retrieving current configuration from {source:?}: resource name may not be empty"
        ))
        .hint("give it a `metadata.name`; objects with `generateName` can't be applied, only created"));
    }
    let path = kind.path_of(namespace, name);
    let before = match server.get(Ask::get(path.clone())).await {
        Ok(before) => Some(before),
        Err(trouble) if trouble.is("NotFound") => None,
        Err(trouble) => return Err(trouble.while_doing("retrieving current configuration of", source).into()),
    };
    if dry_run == DryRun::Client {
        let done = match &before {
            None => "created",
            Some(before) if holds_all(before, &object.object, &arguments.field_manager) => "unchanged",
            Some(_) => "configured",
        };
        return Ok((done, object.object.clone()));
    }
    let ask = Ask {
        method: Method::PATCH,
        path,
        query: vec![("fieldManager", arguments.field_manager.clone()), ("fieldValidation", validation.to_owned())],
        accept: JSON,
        body: Some(("application/apply-patch+yaml", object.object.to_string().into_bytes())),
        quietly: false,
    };
    let ask = if arguments.force_conflicts { ask.with("force", "true") } else { ask };
    let (code, after) = match server.ask(dry_run.on(ask)).await {
        Ok(answer) => answer,
        Err(trouble) => {
            let advice = misnamed::advice(server, object, &trouble.words()).await;
            return Err(advice.into_iter().fold(refused(trouble, object, &before), Failure::hint));
        }
    };
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let done = match &before {
        _ if arguments.server_side => "serverside-applied",
        _ if code == StatusCode::CREATED => "created",
        Some(before) if unchanged(before, &after) => "unchanged",
        // A dry run leaves the version as it was, whatever it would change.
        Some(before) if dry_run == DryRun::None && version(before) == version(&after) => "unchanged",
        _ => "configured",
    };
    Ok((done, after))
}

/// A dry run hands out a version of its own, so what counts is what is in it.
fn unchanged(before: &Value, after: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        object
    };
    bare(before) == bare(after)
}

/// Whether an object is already as a manifest says, by our own reckoning: it has everything that is in it, and nothing that was in
/// the last one and is no longer.
fn holds_all(live: &Value, wanted: &Value, manager: &str) -> bool {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut own = entries.filter(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
    has(live, wanted) && own.all(|entry| wants(wanted, &entry["fieldsV1"]))
}

/// Whether all of `part` is in `whole`.
pub fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|found| has(found, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| has(whole, part))
        }
        (whole, part) => whole == part,
    }
}

/// Whether every named field that somebody owns is in an object. What is in lists is told by [`has`].
fn wants(object: &Value, fields: &Value) -> bool {
    fields.as_object().into_iter().flatten().all(|(name, inner)| match name.strip_prefix("f:") {
        Some(name) => object.get(name).is_some_and(|value| !value.is_object() || wants(value, inner)),
        None => true,
    })
}

fn refused(trouble: Trouble, object: &Known, before: &Option<Value>) -> Failure {
    if trouble.is("Conflict")
        && let Trouble::Refused(status) = &trouble
    {
        let message = status["message"].as_str().unwrap_or_default();
        let who = before.as_ref().map(|before| holders(before, message)).filter(|who| !who.is_empty());
        return Failure::error(message).hint(format!(
            "{} wrote these fields of {}/{}: leave them out of {}, or take them over with `--force-conflicts`",
            who.unwrap_or_else(|| "others".to_owned()),
            object.kind.resource,
            object.name,
            object.source
        ));
    }
    let verb = if before.is_some() { "applying patch to" } else { "creating" };
    trouble.while_doing(verb, &object.source).into()
}

/// Those who own the fields that a conflict names, each with when it wrote last.
fn holders(before: &Value, message: &str) -> String {
    let mut told: Vec<String> = Vec::new();
    for entry in before["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let (manager, time) = (entry["manager"].as_str().unwrap_or_default(), entry["time"].as_str());
        let is_named = message.contains(&format!("with {manager:?}"));
        if let Some(time) = time.filter(|_| is_named && owns_any(entry, message)) {
            told.push(format!("{manager} (last at {time})"));
        }
    }
    told.join(" and ")
}

/// Whether an entry has one of the fields that a message names, as far as their names tell.
fn owns_any(entry: &Value, message: &str) -> bool {
    let mut fields = message.split_whitespace().filter(|word| word.starts_with('.'));
    fields.any(|field| {
        let names = field.split('[').next().unwrap_or_default().split('.').filter(|name| !name.is_empty());
        let mut owned = Some(&entry["fieldsV1"]);
        names.for_each(|name| owned = owned.and_then(|owned| owned.get(format!("f:{name}"))));
        owned.is_some()
    })
}

fn tell(form: &Output, object: &Known, done: &str, dry_run: DryRun, answer: &Value) -> Result<(), Failure> {
    match form {
        Output::Table { .. } => say(&format!("{}/{} {done}{}", object.kind.word(), object.name, dry_run.suffix())),
        form => print(&form.print(answer, false)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conflict_is_told_with_who_wrote_and_when() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time, "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let before = json!({"metadata": {"managedFields": [
            entry("kubectl-patch", "2026-01-01T00:00:00Z"), entry("other", "2026-01-02T00:00:00Z"), {"manager": "scale"},
            {"manager": "kubectl-patch", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}},
        ]}});
        let message = "Apply failed with 1 conflict: conflict with \"kubectl-patch\" using apps/v1: .spec.replicas";
        assert_eq!(holders(&before, message), "kubectl-patch (last at 2026-01-01T00:00:00Z)");
        assert_eq!(holders(&before, "conflict with \"scale\""), "");
    }

    #[test]
    fn an_object_is_as_a_manifest_says_or_not() {
        let live = json!({
            "metadata": {"name": "a", "uid": "u", "managedFields": [
                {"manager": "setpoint", "operation": "Apply", "fieldsV1": {"f:data": {".": {}, "f:x": {}}}},
                {"manager": "other", "operation": "Apply", "fieldsV1": {"f:data": {"f:y": {}}}},
            ]},
            "data": {"x": "1", "y": "2"}, "list": [{"name": "c", "default": 1}],
        });
        for (wanted, expected) in [
            (json!({"metadata": {"name": "a"}, "data": {"x": "1"}}), true),
            (json!({"data": {"x": "1"}, "list": [{"name": "c"}]}), true),
            (json!({"data": {"x": "2"}}), false),
            (json!({"data": {"x": "1", "z": "1"}}), false),
            (json!({"data": {"y": "2"}}), false),
            (json!({"data": {"x": "1"}, "list": []}), false),
        ] {
            assert_eq!(holds_all(&live, &wanted, "setpoint"), expected, "{wanted}");
        }
    }
}
