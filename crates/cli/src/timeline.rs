//! `setpoint timeline`: writes, conditions, events and runs of controllers around one object, in the order of time.

use clap::Args;
use serde_json::Value;
use setpoint_api::time::Timestamp;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::failure::{Failure, note, print};
use crate::request::{Ask, Server};
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
    print(&draw(moments(&object, &happened, &traces, &key)));
    note(
        "fields tell their last write by each manager; events are kept for an hour, the last 1,000 runs of controllers in memory",
    );
    if !missing.is_empty() {
        note(&format!("not available: {}", missing.join(", ")));
    }
    Ok(())
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
fn moments(object: &Value, events: &[Value], traces: &Value, key: &str) -> Vec<Moment> {
    let mut all = Vec::new();
    let mut add = |at: &Value, what, who: String, detail: String| {
        if let Some(at) = moment(at) {
            all.push(Moment { at, what, who, detail });
        }
    };
    let metadata = &object["metadata"];
    add(&metadata["creationTimestamp"], "created", String::new(), String::new());
    add(&metadata["deletionTimestamp"], "deletion", String::new(), "its end was asked for".to_owned());
    for entry in list(&metadata["managedFields"]) {
        let part = match text(&entry["subresource"]) {
            "" => String::new(),
            part => format!(" of {part}"),
        };
        let detail = format!("{}{part}", text(&entry["operation"]));
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
        let time = Timestamp { seconds: moment.at.0, nanoseconds: moment.at.1 }.to_rfc3339();
        tabs.row([time, moment.what.to_owned(), escape(&moment.who), escape(&moment.detail)]);
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
    use serde_json::json;

    use super::*;

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
        let drawn = draw(moments(&object, &events, &traces, "a/b"));
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
            moments(&object, &events, &traces, "a/b").into_iter().map(|it| (it.what, it.at.1)).collect();
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
