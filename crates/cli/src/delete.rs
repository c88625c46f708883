//! `setpoint delete`: objects by name, by file, by label or all of a kind, and waits until they are gone.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::absent;
use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::dry_run::DryRun;
use crate::failure::{Failure, note, say};
use crate::manifest::{self, FileArguments};
use crate::observe::{Subject, until};
use crate::request::{Ask, METADATA, Server, Trouble};
use crate::selection::{self, Selection};
use crate::span;
use crate::terminal::{escape, with_progress};

/// How long to wait for the end of objects if nobody says: a week.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// What to do where all and some were chosen.
const ALL_OR_SOME: &str = "`--all` takes everything: leave it out to choose";

/// The command line.
#[derive(Args, Debug)]
pub struct DeleteArguments {
    /// Kinds and names: `pod a b`, `deploy/web`, `pods` with `-l` or `--all`
    #[arg(value_name = "KIND[/NAME]")]
    pub words: Vec<String>,
    /// All objects of the kinds
    #[arg(long)]
    pub all: bool,
    /// In all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only objects with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only objects with these fields
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// What becomes of owned objects: background, foreground or orphan
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_value = "background", default_missing_value = "background")]
    pub cascade: String,
    /// Seconds that pods have to end
    #[arg(long, value_name = "SECONDS", default_value_t = -1, hide_default_value = true, allow_hyphen_values = true)]
    pub grace_period: i64,
    /// At once: the same as `--grace-period=1`
    #[arg(long)]
    pub now: bool,
    /// Ask before anything is deleted, also where it wouldn't be: whole namespaces and `--all` are asked about on a terminal anyway
    #[arg(long, short = 'i', num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub interactive: bool,
    /// Don't ask
    #[arg(long, short = 'y', conflicts_with = "interactive")]
    pub yes: bool,
    /// Without waiting for what runs to end
    #[arg(long)]
    pub force: bool,
    /// Wait until they are gone
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub wait: bool,
    /// How long to wait; 0 for as long as it takes
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = span::parse)]
    pub timeout: Duration,
    /// What is not there is no failure
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set,
          hide_possible_values = true)]
    pub ignore_not_found: Option<bool>,
    /// Only names: `-o name`
    #[arg(long, short, value_name = "FORM")]
    pub output: Option<String>,
    /// Don't do it: none, client or server
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "unchanged")]
    pub dry_run: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: FileArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// One object to delete.
struct Target {
    kind: Kind,
    namespace: String,
    name: String,
    source: String,
}

/// Runs it.
pub async fn run(arguments: &DeleteArguments) -> Result<(), Failure> {
    let plan = Plan::read(arguments)?;
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let mut failures = Vec::new();
    let targets = targets(arguments, &server, &discovery, &mut failures).await?;
    if plan.dry_run == DryRun::None
        && asks(arguments, &targets, std::io::stdin().is_terminal())
        && !confirmed(&targets).await
    {
        note("deletion is cancelled");
        return Ok(());
    }
    let mut deleted = Vec::new();
    let mut warned = !server.explicit_namespace || arguments.all_namespaces;
    let mut found = 0;
    for target in targets {
        found += 1;
        if !target.kind.namespaced && !std::mem::replace(&mut warned, true) {
            note("Warning: deleting cluster-scoped resources, not scoped to the provided namespace");
        }
        match plan.delete(&server, &target).await {
            Ok(uid) => {
                say(&plan.told(&target));
                deleted.push((target, uid));
            }
            Err(trouble) if plan.ignores_missing && trouble.is("NotFound") => {}
            Err(trouble) => {
                let Target { kind, namespace, name, source } = &target;
                failures
                    .push(absent::told(&server, kind, namespace, name, trouble.while_doing("deleting", source)).await);
            }
        }
    }
    Failure::all(failures)?;
    if found == 0 {
        say("No resources found");
        return Ok(());
    }
    if !arguments.wait || plan.dry_run != DryRun::None {
        return Ok(());
    }
    let limit = if arguments.timeout.is_zero() { WAIT_MAX } else { arguments.timeout };
    let deadline = tokio::time::Instant::now() + limit;
    for (target, uid) in &deleted {
        wait(&server, target, uid, deadline).await?;
    }
    Ok(())
}

/// Whether somebody is asked first: about much at once, where somebody is there to answer. Scripts are never asked, as by kubectl.
fn asks(arguments: &DeleteArguments, targets: &[Target], is_terminal: bool) -> bool {
    let is_much = arguments.all || targets.iter().any(|target| target.kind.resource == "namespaces");
    !targets.is_empty() && (arguments.interactive || is_much && is_terminal && !arguments.yes)
}

/// How many names are told before the question.
const NAMES_MAX: usize = 20;

async fn confirmed(targets: &[Target]) -> bool {
    note(&format!("You are about to delete the following {} resource(s):", targets.len()));
    for target in targets.iter().take(NAMES_MAX) {
        note(&escape(&format!("{}/{}", target.kind.word(), target.name)));
    }
    if targets.len() > NAMES_MAX {
        note(&format!("and {} more", targets.len() - NAMES_MAX));
    }
    if targets.iter().any(|target| target.kind.resource == "namespaces") {
        note("A namespace goes with everything that is in it.");
    }
    let _ = write!(std::io::stderr(), "Do you want to continue? (y/N): ");
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// How to delete.
struct Plan {
    options: Value,
    is_forced: bool,
    dry_run: DryRun,
    ignores_missing: bool,
    only_names: bool,
}

impl Plan {
    fn read(arguments: &DeleteArguments) -> Result<Plan, Failure> {
        let selects = arguments.selector.is_some() || arguments.field_selector.is_some();
        let only_names = match arguments.output.as_deref() {
            None | Some("") => false,
            Some("name") => true,
            Some(other) => {
                return Err(Failure::error(format!("unexpected -o output mode: {other}. We only support '-o name'"))
                    .hint("what is deleted can be seen before: `setpoint get … -o yaml`"));
            }
        };
        if arguments.all && arguments.selector.is_some() {
            return Err(Failure::error("cannot set --all and --selector at the same time").hint(ALL_OR_SOME));
        }
        if arguments.all && arguments.field_selector.is_some() {
            return Err(Failure::error("cannot set --all and --field-selector at the same time").hint(ALL_OR_SOME));
        }
        if arguments.now && arguments.grace_period != -1 {
            return Err(Failure::error("--now and --grace-period cannot be specified together")
                .hint("`--now` is `--grace-period=1`: leave out one of them"));
        }
        if arguments.force && arguments.grace_period > 0 {
            return Err(Failure::error("--force and --grace-period greater than 0 cannot be specified together")
                .hint("`--force` waits for nobody: leave out one of them"));
        }
        let grace = match (arguments.now, arguments.grace_period, arguments.force) {
            (true, ..) => Some(1),
            // Without --force nothing is dropped that still runs.
            (_, 0, false) => Some(1),
            (_, ..=0, true) => Some(0),
            (_, 1.., _) => Some(arguments.grace_period),
            (_, ..=-1, false) => None,
        };
        let policy = match arguments.cascade.as_str() {
            "background" | "true" => "Background",
            "foreground" => "Foreground",
            "orphan" | "false" => "Orphan",
            other => {
                return Err(Failure::error(format!(
                    "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
                ))
                .hint("what is owned goes after (background), before (foreground), or stays (orphan)"));
            }
        };
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        if let Some(seconds) = grace {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let dry_run = DryRun::parse(&arguments.dry_run)?;
        // Where there is a body, Kubernetes takes nothing from the query.
        if dry_run == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        let is_forced = grace == Some(0);
        if is_forced {
            note(
                "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
                 The resource may continue to run on the cluster indefinitely.",
            );
        }
        Ok(Plan {
            options,
            is_forced,
            dry_run,
            ignores_missing: arguments.ignore_not_found.unwrap_or(arguments.all || selects),
            only_names,
        })
    }

    /// Deletes one object and returns its identity, by which another of the same name is told from it.
    async fn delete(&self, server: &Server, target: &Target) -> Result<String, Trouble> {
        if self.dry_run == DryRun::Client {
            return Ok(String::new());
        }
        let ask = Ask {
            method: Method::DELETE,
            path: target.kind.path_of(&target.namespace, &target.name),
            query: Vec::new(),
            accept: crate::request::JSON,
            body: Some((crate::request::JSON, self.options.to_string().into_bytes())),
            quietly: false,
        };
        let (_, answer) = server.ask(ask).await?;
        let uid = [&answer["details"]["uid"], &answer["metadata"]["uid"]].into_iter().find_map(Value::as_str);
        Ok(uid.unwrap_or_default().to_owned())
    }

    fn told(&self, target: &Target) -> String {
        let (word, name) = (target.kind.word(), &target.name);
        if self.only_names {
            return format!("{word}/{name}");
        }
        let done = if self.is_forced { "force deleted" } else { "deleted" };
        let place = match target.kind.namespaced {
            true => format!(" from {} namespace", target.namespace),
            false => String::new(),
        };
        format!("{word} \"{name}\" {done}{place}{}", self.dry_run.suffix())
    }
}

async fn targets(
    arguments: &DeleteArguments,
    server: &Server,
    discovery: &Discovery,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Target>, Failure> {
    if !arguments.files.files.is_empty() {
        if !arguments.words.is_empty() {
            return Err(Failure::error(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            )
            .hint(selection::FILES_OR_WORDS));
        }
        let (known, unknown) = manifest::know(arguments.files.read()?, discovery, server);
        failures.extend(unknown);
        let target = |known: manifest::Known| Target {
            kind: known.kind,
            namespace: known.namespace,
            name: known.name,
            source: known.source,
        };
        return Ok(known.into_iter().map(target).collect());
    }
    let selects = arguments.selector.is_some() || arguments.field_selector.is_some();
    match selection::read(&arguments.words, discovery)? {
        Selection::Named(named) => {
            if selects || arguments.all {
                return Err(Failure::error("name cannot be provided when a selector is specified")
                    .hint(selection::NAME_OR_CHOICE));
            }
            if arguments.all_namespaces {
                return Err(Failure::error("a resource cannot be retrieved by name across all namespaces")
                    .hint(selection::NAME_OR_NAMESPACES));
            }
            let target = |(kind, name): (Kind, String)| {
                let namespace = if kind.namespaced { server.namespace.clone() } else { String::new() };
                Target { kind, namespace, name, source: String::new() }
            };
            Ok(named.into_iter().map(target).collect())
        }
        Selection::Kinds(_) if !selects && !arguments.all => {
            Err(Failure::error("resource(s) were provided, but no name was specified")
                .hint("name an object, or choose with `-l` or `--all`"))
        }
        Selection::Kinds(kinds) => {
            let mut all = Vec::new();
            for kind in kinds {
                match members(arguments, server, &kind).await {
                    Ok(found) => all.extend(found),
                    Err(trouble) => failures.push(trouble.into()),
                }
            }
            Ok(all)
        }
    }
}

async fn members(arguments: &DeleteArguments, server: &Server, kind: &Kind) -> Result<Vec<Target>, Trouble> {
    let namespace = (!arguments.all_namespaces).then_some(server.namespace.as_str());
    let ask = Ask::get(kind.path(namespace)).accept(METADATA);
    let ask = ask.with_some("labelSelector", arguments.selector.as_deref());
    let list = server.get(ask.with_some("fieldSelector", arguments.field_selector.as_deref())).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = |item: &Value| Target {
        kind: kind.clone(),
        namespace: text(&item["metadata"]["namespace"]),
        name: text(&item["metadata"]["name"]),
        source: String::new(),
    };
    Ok(list["items"].as_array().into_iter().flatten().map(target).collect())
}

async fn wait(server: &Server, target: &Target, uid: &str, deadline: tokio::time::Instant) -> Result<(), Failure> {
    let Target { kind, namespace, name, .. } = target;
    let mut holders = Vec::new();
    let subject = Subject { kind, namespace, name };
    let gone = until(server, &subject, |object| {
        holders = finalizers(object);
        Ok(object.is_none_or(|object| !uid.is_empty() && object["metadata"]["uid"] != uid))
    });
    let what = format!("waiting for the end of {}/{name}", kind.resource);
    let waited = with_progress(&what, tokio::time::timeout_at(deadline, gone)).await;
    match waited {
        Ok(outcome) => outcome,
        Err(_) => {
            let failure = Failure::error(format!("timed out waiting for the condition on {}/{name}", kind.resource));
            Err(match &holders[..] {
                [] => failure.hint(format!("`setpoint why {}/{name}` tells what holds it", kind.resource)),
                names => failure.hint(format!("it is held by its finalizers: {}", names.join(", "))),
            })
        }
    }
}

fn finalizers(object: Option<&Value>) -> Vec<String> {
    let list = object.and_then(|object| object["metadata"]["finalizers"].as_array());
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
