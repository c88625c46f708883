//! `setpoint wait`: until a condition holds, a path leads to a value, or an object is there or gone.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::events;
use crate::failure::{Failure, print, say};
use crate::json_path::{self, Template};
use crate::manifest::{self, FileArguments};
use crate::observe::{Subject, until};
use crate::output::{self, Output, name};
use crate::request::{Ask, METADATA, Server, Trouble};
use crate::selection::{self, Selection};
use crate::terminal::with_progress;
use crate::{absent, go, slip, span};

/// As long as it takes: a week.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// The command line.
#[derive(Args, Debug)]
pub struct WaitArguments {
    /// Kinds and names: `pod/a`, `deploy web`, `pods` with `-l` or `--all`
    #[arg(value_name = "KIND[/NAME]")]
    pub words: Vec<String>,
    /// What to wait for: condition=NAME[=VALUE], jsonpath=PATH[=VALUE], create or delete; may be given more than once
    #[arg(long = "for", value_name = "WHAT")]
    pub conditions: Vec<String>,
    /// How long; 0 to look once, negative for as long as it takes
    #[arg(long, value_name = "TIME", default_value = "30s", allow_hyphen_values = true)]
    pub timeout: String,
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

/// What to wait for.
#[derive(Debug, PartialEq)]
enum Goal {
    Create,
    Delete,
    Condition { name: String, value: String },
    Path { template: Template, value: Option<String> },
}

/// One object to wait for.
struct Target {
    kind: Kind,
    namespace: String,
    name: String,
}

/// Runs it.
pub async fn run(arguments: &WaitArguments) -> Result<(), Failure> {
    let form = Output::parse(arguments.output.as_deref())?;
    let goals: Vec<Goal> = arguments.conditions.iter().map(|text| Goal::parse(text)).collect::<Result<_, _>>()?;
    if goals.is_empty() {
        return Err(Failure::error("unrecognized condition: []")
            .hint("say what to wait for, such as `--for=condition=Ready` or `--for=delete`"));
    }
    let limit = span::parse_signed(&arguments.timeout).map_err(|why| {
        Failure::error(format!("invalid argument {:?} for \"--timeout\" flag: {why}", arguments.timeout))
            .hint("for example `--timeout=90s`; 0 looks once, -1s waits for as long as it takes")
    })?;
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let for_delete = goals.contains(&Goal::Delete);
    let for_create = goals.contains(&Goal::Create);
    let deadline = tokio::time::Instant::now() + limit.unwrap_or(FOREVER);
    let once = limit == Some(Duration::ZERO);
    let targets = targets(arguments, &server, &discovery).await?;
    if targets.is_empty() && !for_delete {
        return Err(Failure::error("no matching resources found")
            .hint("nothing is there to wait for yet: `--for=create` waits for it to come"));
    }
    for target in &targets {
        if !for_create {
            // What is not there is a failure at once, not after the time is up; or it is gone already.
            match server.get(Ask::get(target.kind.path_of(&target.namespace, &target.name))).await {
                Err(trouble) if for_delete && trouble.is("NotFound") => continue,
                Err(trouble) => {
                    return Err(absent::told(&server, &target.kind, &target.namespace, &target.name, trouble).await);
                }
                Ok(_) => {}
            }
        }
        let mut last = None;
        for goal in &goals {
            let object = reach(&server, target, goal, deadline, once).await?;
            last = object.or(last);
            let shown = last.clone().unwrap_or_else(|| target.placeholder());
            match &form {
                Output::Table { .. } => say(&format!("{} condition met", name(&shown))),
                form => print(&form.print(&shown, false)?),
            }
        }
    }
    Ok(())
}

impl Goal {
    fn parse(text: &str) -> Result<Goal, Failure> {
        match text.to_lowercase().as_str() {
            "delete" => return Ok(Goal::Delete),
            "create" => return Ok(Goal::Create),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("condition=") {
            let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
            return Ok(Goal::Condition { name: name.to_owned(), value: value.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            return Goal::path(rest);
        }
        Err(Failure::error(format!("unrecognized condition: {text:?}"))
            .hint("the forms are condition=NAME[=VALUE], jsonpath=PATH[=VALUE], create and delete"))
    }

    fn path(text: &str) -> Result<Goal, Failure> {
        let parts = split(text);
        let form = "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or \
                    --for=jsonpath='{.status.readyReplicas}'";
        let (path, value) = match &parts[..] {
            [path] => (path, None),
            [path, value] => (path, Some(value.trim_matches(['\'', '"']).to_owned())),
            _ => return Err(Failure::error(form).hint("put the value after one `=`, and quote both for the shell")),
        };
        if value.as_deref() == Some("") {
            return Err(Failure::error(
                "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
            )
            .hint("without the equal sign it waits until the path leads to anything"));
        }
        let path = json_path::braced(path).map_err(Failure::error)?;
        if path.is_empty() {
            return Err(Failure::error("jsonpath expression cannot be empty")
                .hint("for example `--for=jsonpath='{.status.phase}'=Running`"));
        }
        let template = Template::parse(&path).map_err(|why| Failure::error(why).hint(output::PATH_EXAMPLE))?;
        Ok(Goal::Path { template, value })
    }

    /// Whether it holds for an object.
    fn holds(&self, object: &Value) -> Result<bool, Failure> {
        match self {
            Goal::Create => Ok(true),
            Goal::Delete => Ok(false),
            Goal::Condition { name, value } => Ok(condition(object, name).is_some_and(|condition| {
                let status = condition["status"].as_str().unwrap_or_default();
                let seen = condition["observedGeneration"].as_i64().or(object["status"]["observedGeneration"].as_i64());
                let current = object["metadata"]["generation"].as_i64();
                let is_stale = matches!((seen, current), (Some(seen), Some(current)) if seen < current);
                !is_stale && status.eq_ignore_ascii_case(value)
            })),
            Goal::Path { template, value } => {
                let found = template.find(object).map_err(Failure::error)?;
                let [values] = &found[..] else {
                    return if found.is_empty() {
                        Ok(false)
                    } else {
                        Err(Failure::error("given jsonpath expression matches more than one list"))
                    };
                };
                match (&values[..], value) {
                    ([], _) => Ok(false),
                    ([_], None) => Ok(true),
                    ([Value::Object(_) | Value::Array(_)], Some(_)) => {
                        Err(Failure::error("jsonpath leads to a nested object or list which is not supported"))
                    }
                    ([found], Some(value)) => Ok(go::text(found).trim() == value.trim()),
                    _ => Err(Failure::error("given jsonpath expression matches more than one value")),
                }
            }
        }
    }
}

/// At each `=` that stands alone.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (vec![String::new()], text);
    while let Some(letter) = rest.chars().next() {
        let piece = if rest.starts_with("==") { "==" } else { &rest[..letter.len_utf8()] };
        rest = &rest[piece.len()..];
        match (piece, parts.last_mut()) {
            ("=", _) => parts.push(String::new()),
            (piece, Some(last)) => last.push_str(piece),
            (_, None) => {}
        }
    }
    parts
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name)))
}

impl Target {
    fn placeholder(&self) -> Value {
        serde_json::json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": {"name": self.name},
        })
    }
}

async fn targets(arguments: &WaitArguments, server: &Server, discovery: &Discovery) -> Result<Vec<Target>, Failure> {
    if !arguments.files.files.is_empty() {
        let (known, failures) = manifest::know(arguments.files.read()?, discovery, server);
        Failure::all(failures)?;
        let target = |known: manifest::Known| Target { kind: known.kind, namespace: known.namespace, name: known.name };
        return Ok(known.into_iter().map(target).collect());
    }
    let selects = arguments.selector.is_some() || arguments.field_selector.is_some() || arguments.all;
    let kinds = match selection::read(&arguments.words, discovery)? {
        Selection::Named(_) if selects => {
            return Err(
                Failure::error("name cannot be provided when a selector is specified").hint(selection::NAME_OR_CHOICE)
            );
        }
        Selection::Named(named) => {
            let namespace = server.namespace.clone();
            let target = |(kind, name)| Target { kind, namespace: namespace.clone(), name };
            return Ok(named.into_iter().map(target).collect());
        }
        Selection::Kinds(_) if !selects => {
            return Err(Failure::error("resource(s) were provided, but no name was specified")
                .hint("name an object, or choose with `-l` or `--all`"));
        }
        Selection::Kinds(kinds) => kinds,
    };
    let mut all = Vec::new();
    for kind in kinds {
        let namespace = (!arguments.all_namespaces).then_some(server.namespace.as_str());
        let ask = Ask::get(kind.path(namespace)).accept(METADATA);
        let ask = ask.with_some("labelSelector", arguments.selector.as_deref());
        let list = server.get(ask.with_some("fieldSelector", arguments.field_selector.as_deref())).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for item in list["items"].as_array().into_iter().flatten() {
            let (namespace, name) = (text(&item["metadata"]["namespace"]), text(&item["metadata"]["name"]));
            all.push(Target { kind: kind.clone(), namespace, name });
        }
    }
    Ok(all)
}

/// Waits for one goal; returns the object as it was then.
async fn reach(
    server: &Server,
    target: &Target,
    goal: &Goal,
    deadline: tokio::time::Instant,
    once: bool,
) -> Result<Option<Value>, Failure> {
    let Target { kind, namespace, name } = target;
    if once {
        return look_once(server, target, goal).await;
    }
    let mut last: Option<Value> = None;
    let subject = Subject { kind, namespace, name };
    let reached = until(server, &subject, |object| {
        last = object.cloned().map(|mut object| {
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.clone().into();
            object
        });
        match (goal, object) {
            (Goal::Delete, object) => Ok(object.is_none()),
            (goal, Some(object)) => goal.holds(object),
            (Goal::Create, None) => Ok(false),
            (Goal::Condition { .. } | Goal::Path { .. }, None) => Err(gone(kind, name).into()),
        }
    });
    let what = format!("waiting for {}/{name}", kind.resource);
    let waited = with_progress(&what, tokio::time::timeout_at(deadline, reached)).await;
    match waited {
        Ok(outcome) => outcome.map(|()| last),
        Err(_) => {
            let failure = Failure::error(format!("timed out waiting for the condition on {}/{name}", kind.resource));
            Err(match why(server, target, goal, last.as_ref()).await {
                Some(why) => failure.hint(why),
                None => failure.hint(format!("`setpoint why {}/{name}` tells the first cause", kind.resource)),
            })
        }
    }
}

async fn look_once(server: &Server, target: &Target, goal: &Goal) -> Result<Option<Value>, Failure> {
    let Target { kind, namespace, name } = target;
    let unmet = || {
        Failure::error(format!("condition not met for {}/{name}", kind.resource))
            .hint(format!("`setpoint why {}/{name}` tells the first cause", kind.resource))
    };
    match server.get(Ask::get(kind.path_of(namespace, name))).await {
        Ok(object) if goal.holds(&object)? => Ok(Some(object)),
        Ok(_) => Err(unmet()),
        Err(trouble) if trouble.is("NotFound") && *goal == Goal::Delete => Ok(None),
        Err(trouble) => Err(trouble.into()),
    }
}

fn gone(kind: &Kind, name: &str) -> Trouble {
    let resource = match kind.group.as_str() {
        "" => kind.resource.clone(),
        group => format!("{}.{group}", kind.resource),
    };
    Trouble::Refused(serde_json::json!({
        "reason": "NotFound", "code": 404, "message": format!("{resource} {name:?} not found"),
    }))
}

/// Why it took too long: what the object says of itself, and the last warning about it.
async fn why(server: &Server, target: &Target, goal: &Goal, object: Option<&Value>) -> Option<String> {
    let object = object?;
    let mut said = Vec::new();
    match goal {
        Goal::Condition { name, .. } => said.push(match condition(object, name) {
            Some(condition) => described(condition),
            None => unknown_condition(object, name),
        }),
        Goal::Path { template, value } => {
            let found = template.print(object).unwrap_or_default();
            let wanted = value.as_deref().map(|value| format!(", not {value}")).unwrap_or_default();
            said.push(format!("{} is {found:?}{wanted}", template.source()));
        }
        Goal::Delete => {
            let names: Vec<_> =
                object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            match (names.is_empty(), object["metadata"]["deletionTimestamp"].is_null()) {
                (_, true) => said.push("nobody has asked for its deletion".to_owned()),
                (false, false) => said.push(format!("it is held by its finalizers: {}", names.join(", "))),
                (true, false) => {}
            }
        }
        Goal::Create => {}
    }
    if let Some(warning) =
        events::last_warning(server, target.kind.namespaced.then_some(&target.namespace), object).await
    {
        // A condition often says the same already.
        let message = warning.split_once(": ").map_or(warning.as_str(), |(_, message)| message);
        if !said.iter().any(|said| said.contains(message)) {
            said.push(format!("last warning: {warning}"));
        }
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// That a condition is not there, and which are: its name may be a slip.
fn unknown_condition(object: &Value, name: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let names: Vec<&str> = conditions.filter_map(|condition| condition["type"].as_str()).collect();
    let there = match &names[..] {
        [] => return format!("it has no condition {name} yet, nor any other"),
        names => format!("it has no condition {name} yet; it has {}", names.join(", ")),
    };
    match slip::nearest(name, names.into_iter()) {
        Some(near) => format!("{there}: did you mean `{near}`?"),
        None => there,
    }
}

fn described(condition: &Value) -> String {
    let text = |name: &str| condition[name].as_str().unwrap_or_default();
    let mut said = format!("{} is {}", text("type"), text("status"));
    if !text("reason").is_empty() {
        said = format!("{said} ({})", text("reason"));
    }
    if text("message").is_empty() { said } else { format!("{said}: {}", text("message")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(goal: &str, expected: Result<bool, &str>) {
        let object = json!({
            "metadata": {"generation": 2},
            "spec": {"n": 3, "list": [1]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 2},
                {"type": "Old", "status": "True", "observedGeneration": 1},
            ]},
        });
        let found = Goal::parse(goal).and_then(|goal| goal.holds(&object));
        let found = found.map_err(|failure| failure.to_string().lines().next().unwrap_or_default().to_owned());
        assert_eq!(found, expected.map_err(str::to_owned), "{goal}");
    }

    #[test]
    fn a_goal_holds_or_not() {
        check("condition=ready", Ok(true));
        check("condition=Ready=False", Ok(false));
        check("condition=Old", Ok(false));
        check("condition=None", Ok(false));
        check("jsonpath={.spec.n}=3", Ok(true));
        check("jsonpath=.spec.n=4", Ok(false));
        check("jsonpath={.spec.n}", Ok(true));
        check("jsonpath={.spec.missing}", Ok(false));
        check("jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True", Ok(true));
        check(
            "jsonpath={.spec.list}=1",
            Err("error: jsonpath leads to a nested object or list which is not supported"),
        );
        check(
            "jsonpath={.spec.n}=",
            Err(
                "error: jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
            ),
        );
        check("ready", Err("error: unrecognized condition: \"ready\""));
        check("create", Ok(true));
        check("delete", Ok(false));
    }

    #[test]
    fn a_condition_that_is_not_there_is_told_with_those_that_are() {
        let object = json!({"status": {"conditions": [{"type": "Available"}, {"type": "Progressing"}]}});
        assert_eq!(
            unknown_condition(&object, "Availabel"),
            "it has no condition Availabel yet; it has Available, Progressing: did you mean `Available`?"
        );
        assert_eq!(unknown_condition(&object, "X"), "it has no condition X yet; it has Available, Progressing");
        assert_eq!(unknown_condition(&json!({}), "X"), "it has no condition X yet, nor any other");
    }

    #[test]
    fn a_value_is_parted_from_its_path_by_one_sign() {
        assert_eq!(split("a[?(@.b==\"c\")]=d"), ["a[?(@.b==\"c\")]", "d"]);
        assert_eq!(split("a"), ["a"]);
    }
}
