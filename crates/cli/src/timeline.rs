//! `setpoint timeline`: writes, conditions, events and runs of controllers around one object, in the order of time.

use clap::Args;
use serde_json::{Value, json};
use setpoint_api::time::Timestamp;

use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, note, print};
use crate::output::FormArguments;
use crate::request::{Ask, Server, Trouble};
use crate::tab::Tabs;
use crate::terminal::{escape, with_progress};
use crate::{events, selection};

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
    at: (i64, u32),
    what: &'static str,
    who: String,
    detail: String,
}

impl Moment {
    fn time(&self) -> String {
        Timestamp { seconds: self.at.0, nanoseconds: self.at.1 }.to_rfc3339()
    }

    fn told(&self) -> Value {
        json!({"time": self.time(), "what": self.what, "who": self.who, "detail": self.detail})
    }
}

/// Runs it.
pub async fn run(arguments: &TimelineArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let (kind, name) = selection::one(&arguments.words, &discovery)?;
    let mut object = server.get(Ask::get(kind.path_of(&server.namespace, &name))).await?;
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
    let moments = moments(&object, &history, &happened, &traces, &key);
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

/// Who made a version of the one before it, and which part of it: the entries that are new or younger.
fn writers<'a>(before: Option<&'a Value>, version: &'a Value) -> Vec<&'a Value> {
    let entries =
        |object: Option<&'a Value>| object.map_or(&Value::Null, |object| &object["metadata"]["managedFields"]);
    let old: Vec<&Value> = list(entries(before)).collect();
    list(entries(Some(version))).filter(|entry| !old.contains(entry)).collect()
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
fn moments(object: &Value, history: &[Value], events: &[Value], traces: &Value, key: &str) -> Vec<Moment> {
    let mut all = Vec::new();
    let mut add = |at: &Value, what, who: String, detail: String| {
        if let Some(at) = moment(at) {
            all.push(Moment { at, what, who, detail });
        }
    };
    let metadata = &object["metadata"];
    add(&metadata["creationTimestamp"], "created", String::new(), String::new());
    add(&metadata["deletionTimestamp"], "deletion", String::new(), "its end was asked for".to_owned());
    let mut kept = Vec::new();
    for (at, version) in history.iter().enumerate() {
        for entry in writers(at.checked_sub(1).map(|before| &history[before]), version) {
            kept.push((entry, Some(number(version))));
        }
    }
    // What the server keeps no more is told by the last write of each manager.
    let is_kept = |entry: &Value| kept.iter().any(|(other, _)| *other == entry);
    let older: Vec<_> =
        list(&metadata["managedFields"]).filter(|entry| !is_kept(entry)).map(|entry| (entry, None)).collect();
    for (entry, version) in older.into_iter().chain(kept.iter().copied()) {
        let part = match text(&entry["subresource"]) {
            "" => String::new(),
            part => format!(" of {part}"),
        };
        let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
        let detail = format!("{}{part}{version}", text(&entry["operation"]));
        add(&entry["time"], "write", text(&entry["manager"]).to_owned(), detail);
    }
    for condition in list(&object["status"]["conditions"]) {
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        let detail = format!("{kind} became {status} ({})", text(&condition["reason"]));
        add(&condition["lastTransitionTime"], "condition", String::new(), detail);
    }
    for event in events {
        let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
        let times = if count > 1 { format!(" (x{count})") } else { String::new() };
        let who = [&event["source"]["component"], &event["reportingComponent"]].map(text);
        let who = who.into_iter().find(|who| !who.is_empty()).unwrap_or_default();
        let detail = format!("{}: {}{times}", text(&event["reason"]), text(&event["message"]).trim());
        add(&Value::from(events::moment(event)), "event", who.to_owned(), detail);
    }
    for (controller, runs) in traces.as_object().into_iter().flatten() {
        for run in list(runs).filter(|run| run["key"] == key) {
            add(&run["started"], "reconcile", controller.clone(), told(run));
        }
    }
    // Most of it is told to the second: within one, causes come before what they led to.
    all.sort_by_key(|moment: &Moment| (moment.at.0, place(moment.what), moment.at.1));
    all
}

fn place(what: &str) -> usize {
    ["created", "deletion", "write", "reconcile", "event", "condition"].iter().position(|it| *it == what).unwrap_or(0)
}

/// One run of a controller.
fn told(run: &Value) -> String {
    let took = run["tookSeconds"].as_f64().unwrap_or(0.0) * 1000.0;
    let result = text(&run["outcome"]["result"]);
    let writes = run["writes"].as_array().map_or(0, Vec::len);
    let mut said = format!("{result} in {took:.1} ms");
    if writes > 0 {
        said = format!("{said}, {writes} writes");
    }
    if let Some(message) = run["outcome"]["message"].as_str() {
        said = format!("{said}: {message}");
    }
    match run["nextRunSeconds"].as_f64() {
        Some(next) => format!("{said}, next in {next:.0} s"),
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

fn moment(value: &Value) -> Option<(i64, u32)> {
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
mod tests {
    use super::*;

    #[test]
    fn every_write_that_is_kept_is_told_with_its_version() {
        let entry = |manager: &str, second: u32| json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:0{second}Z")});
        let version = |number: u32, entries: Vec<Value>| json!({"metadata": {"resourceVersion": number.to_string(), "managedFields": entries}});
        let history = [
            version(5, vec![entry("a", 1)]),
            version(7, vec![entry("a", 2)]),
            version(9, vec![entry("a", 2), entry("b", 3)]),
        ];
        let moments = moments(&history[2], &history, &[], &Value::Null, "a/b");
        let told: Vec<_> = moments.iter().map(|moment| format!("{} {}", moment.who, moment.detail)).collect();
        assert_eq!(told, ["a Update, version 5", "a Update, version 7", "b Update, version 9"]);
        assert!(is_whole(&history) && !is_whole(&history[2..]) && !is_whole(&[]));
    }

    #[test]
    fn a_server_says_from_where_on_it_keeps_changes() {
        let refused = |message: &str| oldest(&Trouble::Refused(json!({"message": message})));
        assert_eq!(refused("too old resource version: 1 (42)"), Some(42));
        assert_eq!(refused("no"), None);
    }

    #[test]
    fn everything_is_on_one_axis() {
        let object = json!({
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:03Z", "subresource": "status"}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:05Z"}]},
        });
        let events = [
            json!({"reason": "Pulled", "message": "got it", "lastTimestamp": "2026-01-01T00:00:01Z", "count": 2, "source": {"component": "node"}}),
        ];
        let traces = json!({"deployment": [
            {"key": "a/b", "started": "2026-01-01T00:00:02.5Z", "tookSeconds": 0.0015, "outcome": {"result": "done"}, "writes": [{}]},
            {"key": "a/c", "started": "2026-01-01T00:00:02Z"},
        ]});
        let drawn = draw(moments(&object, &[], &events, &traces, "a/b"));
        let expected = "\
TIME                   WHAT        WHO          DETAIL
2026-01-01T00:00:00Z   created                  \n\
2026-01-01T00:00:01Z   event       node         Pulled: got it (x2)
2026-01-01T00:00:02Z   reconcile   deployment   done in 1.5 ms, 1 writes
2026-01-01T00:00:03Z   write       kubectl      Update of status
2026-01-01T00:00:05Z   condition                Ready became True (Ok)
";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn within_a_second_causes_come_first() {
        let at = |time: &str| json!(format!("2026-01-01T00:00:{time}Z"));
        let object = json!({
            "metadata": {"creationTimestamp": at("00"), "managedFields": [{"manager": "kubectl", "operation": "Apply", "time": at("00")}]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at("00")}]},
        });
        let events = [json!({"reason": "Scaled", "lastTimestamp": at("00")})];
        let traces =
            json!({"deployment": [{"key": "a/b", "started": at("00.9")}, {"key": "a/b", "started": at("00.2")}]});
        let order: Vec<_> =
            moments(&object, &[], &events, &traces, "a/b").into_iter().map(|it| (it.what, it.at.1)).collect();
        let expected = [
            ("created", 0),
            ("write", 0),
            ("reconcile", 200_000_000),
            ("reconcile", 900_000_000),
            ("event", 0),
            ("condition", 0),
        ];
        assert_eq!(order, expected);
    }
}
