//! `setpoint timeline`: writes, conditions, events and runs of controllers around one object, in the order of time.
//!
//! Most servers tell times to the second. What is within one is ordered by versions and by what runs of controllers saw and wrote (`timeline/bounds.rs`).

mod bounds;
mod writers;

use clap::Args;
use serde_json::{Value, json};
use setpoint_api::time::Timestamp;

use bounds::Instant;
use writers::Write;

use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, note, print};
use crate::output::FormArguments;
use crate::request::{Ask, Server, Trouble};
use crate::tab::Tabs;
use crate::terminal::{escape, with_progress};
use crate::{absent, events, selection};

/// The command line.
#[derive(Args, Debug)]
pub struct TimelineArguments {
    /// The object: KIND/NAME or KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Something that happened.
#[derive(Debug)]
struct Moment {
    at: Instant,
    /// What comes first of what is at the same time: causes, a run, its writes in their order, and what they led to.
    place: (usize, u64),
    /// What is told as its time, if that is another.
    told_at: Option<Instant>,
    what: &'static str,
    who: String,
    detail: String,
}

const CAUSE: usize = 0;
const RUN: usize = 1;
const WRITE: usize = 2;
const EFFECT: usize = 3;

impl Moment {
    fn time(&self) -> String {
        let (seconds, nanoseconds) = self.told_at.unwrap_or(self.at);
        Timestamp { seconds, nanoseconds }.to_rfc3339()
    }

    fn told(&self) -> Value {
        json!({"time": self.time(), "what": self.what, "who": self.who, "detail": self.detail})
    }
}

/// The object of a timeline, and what is known of it.
struct Subject<'a> {
    object: &'a Value,
    /// Its group and its plural name, as runs name what they write.
    resource: (&'a str, &'a str),
    /// Its namespace and name, as runs name it.
    key: String,
    /// The versions that the server keeps, oldest first.
    history: &'a [Value],
    events: &'a [Value],
    /// The last runs of controllers.
    traces: &'a Value,
}

/// Runs it.
pub async fn run(arguments: &TimelineArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let (kind, name) = selection::one(&arguments.words, &discovery)?;
    let mut object = absent::find(&server, &kind, &server.namespace, &name).await?;
    object["kind"] = kind.kind.clone().into();
    let namespace = kind.namespaced.then_some(server.namespace.as_str());
    let fields = format!("involvedObject.uid={}", text(&object["metadata"]["uid"]));
    let happened = with_progress("reading", events::list(&server, namespace.or(Some("default")), Some(&fields))).await;
    let traces = traces(&server).await;
    let history = with_progress("reading what is kept", history(&server, &kind, &name, &object)).await;
    let mut missing = Vec::new();
    let happened = happened.unwrap_or_else(|trouble| {
        missing.push(format!("events ({})", trouble.words()));
        Vec::new()
    });
    let traces = traces.unwrap_or_else(|why| {
        missing.push(format!("runs of controllers ({why})"));
        Value::Null
    });
    let key = match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.clone(),
    };
    let resource = (kind.group.as_str(), kind.resource.as_str());
    let subject = Subject { object: &object, resource, key, history: &history, events: &happened, traces: &traces };
    let moments = moments(&subject);
    if !arguments.form.print(|| json!({"moments": moments.iter().map(Moment::told).collect::<Vec<_>>()})) {
        print(&draw(moments));
    }
    let before = if is_whole(&history) { "" } else { "older writes: the last of each manager; " };
    note(&format!("{before}events are kept for an hour, the last 1,000 runs of controllers in memory"));
    if !missing.is_empty() {
        note(&format!("not available: {}", missing.join(", ")));
    }
    Ok(())
}

/// Most versions of one object that are read.
const VERSIONS_MAX: usize = 1000;

/// How long to wait for the next version of what is kept: all of it is there already.
const VERSION_PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// The versions of an object that the server still keeps, oldest first, by a watch from its oldest change.
async fn history(server: &Server, kind: &Kind, name: &str, object: &Value) -> Vec<Value> {
    let now = number(object);
    let ask = |from: u64| {
        let namespace = kind.namespaced.then_some(server.namespace.as_str());
        Ask::get(kind.path(namespace))
            .with("fieldSelector", format!("metadata.name={name}"))
            .with("resourceVersion", from.to_string())
            .with("timeoutSeconds", "5")
            .quietly()
    };
    let mut from = 1;
    // A server that keeps no more of it says from where on it does, at the second try.
    for _ in 0..2 {
        let Ok(mut watch) = server.watch(ask(from)).await.map_err(|trouble| from = oldest(&trouble).unwrap_or(from))
        else {
            continue;
        };
        let mut versions: Vec<Value> = Vec::new();
        while let Ok(Some((event, version))) = tokio::time::timeout(VERSION_PAUSE, watch.next()).await {
            if event == "ERROR" {
                from = oldest(&Trouble::Refused(version)).unwrap_or(from);
                break;
            }
            if event != "BOOKMARK" && version["metadata"]["uid"] == object["metadata"]["uid"] {
                versions.push(version);
            }
            if versions.len() >= VERSIONS_MAX || versions.last().is_some_and(|last| number(last) >= now) {
                break;
            }
        }
        if !versions.is_empty() {
            return versions;
        }
    }
    Vec::new()
}

/// The oldest version that a server that refused an older one still has: `too old resource version: 1 (42)`.
fn oldest(trouble: &Trouble) -> Option<u64> {
    let Trouble::Refused(status) = trouble else { return None };
    let (_, rest) = text(&status["message"]).rsplit_once('(')?;
    rest.trim_end_matches(')').parse().ok()
}

fn number(object: &Value) -> u64 {
    text(&object["metadata"]["resourceVersion"]).parse().unwrap_or(0)
}

/// Whether the first version that is kept is that of its creation.
fn is_whole(history: &[Value]) -> bool {
    history.first().is_some_and(|first| {
        let managers = list(&first["metadata"]["managedFields"]);
        managers.count() <= 1 && first["metadata"]["generation"].as_i64().unwrap_or(1) <= 1
    })
}

/// The last runs of controllers, by controller.
pub(crate) async fn traces(server: &Server) -> Result<Value, String> {
    let (code, text) = server.text("/debug/traces").await.map_err(|trouble| trouble.words())?;
    match code.as_u16() {
        200 => serde_json::from_str(&text).map_err(|error| error.to_string()),
        404 => Err("this server keeps none; `setpoint up` does".to_owned()),
        code => Err(format!("the server answers {code} at /debug/traces")),
    }
}

/// Everything that happened, oldest first.
fn moments(subject: &Subject<'_>) -> Vec<Moment> {
    let writes = writers::writes(subject);
    let mut all = beginning(subject);
    all.extend(writers::older(subject).into_iter().map(|(at, who, detail)| plain(at, WRITE, "write", who, detail)));
    all.extend(writes.iter().map(written));
    all.extend(conditions(subject, &writes));
    all.extend(subject.events.iter().filter_map(happened));
    let runs = bounds::runs(subject.traces).filter(|(controller, run)| subject.is_about(controller, run));
    all.extend(runs.filter_map(|(controller, run)| {
        Some(plain(moment(&run["started"])?, RUN, "reconcile", controller.to_owned(), told(run)))
    }));
    all.sort_by_key(|moment: &Moment| (moment.at, moment.place));
    all
}

fn plain(at: Instant, place: usize, what: &'static str, who: String, detail: String) -> Moment {
    Moment { at, place: (place, 0), told_at: None, what, who, detail }
}

/// Its creation; and that its end was asked for, where no version that is kept tells of it.
fn beginning(subject: &Subject<'_>) -> Vec<Moment> {
    let metadata = &subject.object["metadata"];
    let created = moment(&metadata["creationTimestamp"]);
    let mut all: Vec<Moment> =
        created.into_iter().map(|at| plain(at, CAUSE, "created", String::new(), String::new())).collect();
    if subject.history.first().is_none_or(|first| !first["metadata"]["deletionTimestamp"].is_null())
        && let Some((seconds, part)) = moment(&metadata["deletionTimestamp"])
    {
        // It names the end of the grace period.
        let asked = seconds - metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        all.push(plain((asked, part), CAUSE, "deletion", String::new(), "its end was asked for".to_owned()));
    }
    all
}

fn written(write: &Write) -> Moment {
    let what = if write.is_deletion { "deletion" } else { "write" };
    let place = if write.is_before_its_time { CAUSE } else { WRITE };
    let (who, detail) = (write.who.clone(), write.detail.clone());
    Moment { at: write.at, place: (place, write.version), told_at: None, what, who, detail }
}

/// What the object says of itself, each beside the write that first said so.
fn conditions(subject: &Subject<'_>, writes: &[Write]) -> Vec<Moment> {
    let same = |one: &Value, other: &Value| {
        ["type", "status", "lastTransitionTime"].iter().all(|field| one[*field] == other[*field])
    };
    let says =
        |version: &Value, condition: &Value| list(&version["status"]["conditions"]).any(|other| same(other, condition));
    let told = |condition: &Value| {
        let own = moment(&condition["lastTransitionTime"])?;
        let first = subject.history.iter().position(|version| says(version, condition));
        // What the oldest version says may have been so long before.
        let write = first.filter(|at| *at > 0 || is_whole(subject.history)).map(|at| &writes[at]);
        let (at, version) = write.map_or((own, 0), |write| (write.at, write.version));
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        let detail = format!("{kind} became {status} ({})", text(&condition["reason"]));
        // Beside its write, before the next one.
        let place = if version == 0 { (EFFECT, 0) } else { (WRITE, version) };
        Some(Moment { at, place, told_at: Some(own), what: "condition", who: String::new(), detail })
    };
    list(&subject.object["status"]["conditions"]).filter_map(told).collect()
}

fn happened(event: &Value) -> Option<Moment> {
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
    let times = if count > 1 { format!(" (x{count})") } else { String::new() };
    let who = [&event["source"]["component"], &event["reportingComponent"]].map(text);
    let who = who.into_iter().find(|who| !who.is_empty()).unwrap_or_default();
    let detail = format!("{}: {}{times}", text(&event["reason"]), text(&event["message"]).trim());
    let at = moment(&Value::from(events::moment(event)))?;
    // What tells no part of a second, not even in its name, comes after whatever may have led to it.
    let placed = if at.1 == 0 { (at.0, named_part(event, at.0).unwrap_or(bounds::LAST_PART)) } else { at };
    let mut told = plain(placed, EFFECT, "event", who.to_owned(), detail);
    told.told_at = Some(at);
    Some(told)
}

/// The part of a second at which an event was first recorded: who records events names them after that moment, in nanoseconds.
fn named_part(event: &Value, seconds: i64) -> Option<u32> {
    const NANOSECONDS: i64 = 1_000_000_000;
    let (_, moment) = text(&event["metadata"]["name"]).rsplit_once('.')?;
    let moment = i64::from_str_radix(moment, 16).ok()?;
    (moment / NANOSECONDS == seconds).then(|| u32::try_from(moment % NANOSECONDS).ok())?
}

impl Subject<'_> {
    /// Whether a run was for this object: others may have the same name.
    fn is_about(&self, controller: &str, run: &Value) -> bool {
        let seen = text(&run["objectVersion"]);
        let is_own = |version: &Value| text(&version["metadata"]["resourceVersion"]) == seen;
        run["key"] == self.key.as_str()
            && (!seen.is_empty() && self.history.iter().chain([self.object]).any(is_own)
                || ["reads", "writes"].iter().any(|list| bounds::accesses(run, list).any(|one| self.is_accessed(one)))
                || (seen.is_empty() || !is_whole(self.history)) && self.is_likely(controller, run))
    }

    /// Whether a run read or wrote it.
    fn is_accessed(&self, access: &Value) -> bool {
        (text(&access["group"]), text(&access["plural"])) == self.resource && access["key"] == self.key.as_str()
    }

    /// Whether a run that names no version was for this object, by what woke it, or by whose run it is.
    fn is_likely(&self, controller: &str, run: &Value) -> bool {
        let kind = text(&self.object["kind"]);
        let source = format!("{kind} {}", self.key);
        list(&run["causes"]["first"]).any(|cause| cause["source"] == source.as_str())
            || controller.starts_with(&kind.to_lowercase())
    }
}

/// One run of a controller.
fn told(run: &Value) -> String {
    let took = run["tookSeconds"].as_f64().unwrap_or(0.0) * 1000.0;
    let mut said = format!("took {took:.1} ms");
    match run["writes"].as_array().map_or(0, Vec::len) {
        0 => {}
        1 => said.push_str(", 1 write"),
        writes => said = format!("{said}, {writes} writes"),
    }
    // That it is asked to run again is told by when.
    match text(&run["outcome"]["result"]) {
        "requeueAfter" => {}
        result => said = format!("{said}, {result}"),
    }
    if let Some(message) = run["outcome"]["message"].as_str() {
        said = format!("{said}: {message}");
    }
    match run["nextRunSeconds"].as_f64() {
        Some(next) => format!("{said}, runs again in {next:.0} s"),
        None => said,
    }
}

fn draw(moments: Vec<Moment>) -> String {
    let mut tabs = Tabs::default();
    tabs.row(["TIME", "WHAT", "WHO", "DETAIL"]);
    for moment in moments {
        tabs.row([moment.time(), moment.what.to_owned(), escape(&moment.who), escape(&moment.detail)]);
    }
    tabs.flush()
}

fn moment(value: &Value) -> Option<Instant> {
    let time = Timestamp::parse(value.as_str()?).ok()?;
    Some((time.seconds, time.nanoseconds))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
