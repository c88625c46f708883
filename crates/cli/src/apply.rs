//! `setpoint apply`: makes objects as files say, by server-side apply.

use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::dry_run::DryRun;
use crate::failure::{Failure, print, say};
use crate::manifest::{self, FileArguments, Known};
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
        ))),
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
        let done = if before.is_some() { "configured" } else { "created" };
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
    let (code, after) = server.ask(dry_run.on(ask)).await.map_err(|trouble| refused(trouble, object, &before))?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let done = match &before {
        _ if arguments.server_side => "serverside-applied",
        _ if code == StatusCode::CREATED => "created",
        Some(before) if unchanged(before, &after) || version(before) == version(&after) => "unchanged",
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

fn refused(trouble: Trouble, object: &Known, before: &Option<Value>) -> Failure {
    if trouble.is("Conflict")
        && let Trouble::Refused(status) = &trouble
    {
        let message = status["message"].as_str().unwrap_or_default();
        return Failure::error(message).hint(format!(
            "others wrote these fields of {}/{}: leave them out of {}, or take them over with `--force-conflicts`",
            object.kind.resource, object.name, object.source
        ));
    }
    let verb = if before.is_some() { "applying patch to" } else { "creating" };
    trouble.while_doing(verb, &object.source).into()
}

fn tell(form: &Output, object: &Known, done: &str, dry_run: DryRun, answer: &Value) -> Result<(), Failure> {
    match form {
        Output::Table { .. } => say(&format!("{}/{} {done}{}", object.kind.word(), object.name, dry_run.suffix())),
        form => print(&form.print(answer, false)?),
    }
    Ok(())
}
