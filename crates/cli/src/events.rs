//! `setpoint events`: what happened, oldest first.

use clap::Args;
use serde_json::{Value, json};
use setpoint_api::time::Timestamp;
use setpoint_schema::human;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::failure::{Failure, note, print};
use crate::get::now;
use crate::observe::{Following, Next};
use crate::output::Output;
use crate::request::{Ask, Server, Trouble};
use crate::selection;
use crate::tab::Tabs;
use crate::terminal::escape;

/// Events in one answer.
const PAGE: &str = "500";

/// The command line.
#[derive(Args, Debug)]
pub struct EventsArguments {
    /// Only of this object: KIND/NAME
    #[arg(long = "for", value_name = "KIND/NAME")]
    pub subject: Option<String>,
    /// Only of these types: Normal, Warning
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Of all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Go on with events as they come
    #[arg(long, short)]
    pub watch: bool,
    /// No header above the table
    #[arg(long)]
    pub no_headers: bool,
    /// Form of the output: json, yaml, name, jsonpath=…
    #[arg(long, short, value_name = "FORM")]
    pub output: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Runs it.
pub async fn run(arguments: &EventsArguments) -> Result<(), Failure> {
    let form = Output::parse(arguments.output.as_deref())?;
    let is_type = |word: &String| word.eq_ignore_ascii_case("Normal") || word.eq_ignore_ascii_case("Warning");
    if !arguments.types.iter().all(is_type) {
        return Err(Failure::error("valid --types are Normal or Warning").hint("for example `--types=Warning`"));
    }
    let server = arguments.connection.connect().await?;
    let fields = match &arguments.subject {
        None => None,
        Some(word) if !word.contains('/') => {
            let failure = Failure::error("--for must be in resource/name form");
            return Err(failure.hint(format!("say the kind too: `--for pod/{word}`")));
        }
        Some(word) => {
            let (kind, name) = selection::pair(word, &Discovery::read(&server).await?)?;
            Some(of(&kind.kind, &kind.api_version(), &name))
        }
    };
    let namespace = (!arguments.all_namespaces).then_some(server.namespace.as_str());
    let is_wanted = |event: &Value| {
        let found = event["type"].as_str().unwrap_or_default();
        arguments.types.is_empty() || arguments.types.iter().any(|word| word.eq_ignore_ascii_case(found))
    };
    let mut printer = Printer { arguments, tabs: Tabs::default(), is_first: true };
    if arguments.watch {
        let ask = || Ask::get(path(namespace)).with_some("fieldSelector", fields.as_deref());
        // Without a version, what is there comes first.
        let mut following = Following::from(&server, String::new());
        loop {
            match following.next(ask).await? {
                Next::Event(kind, event) if matches!(kind.as_str(), "ADDED" | "MODIFIED") && is_wanted(&event) => {
                    printer.print(&[event], &form)?;
                }
                Next::Event(..) => {}
                // What happened meanwhile is no longer kept: from here on, what happens next.
                Next::Expired => match server.get(ask().with("limit", "1")).await {
                    Ok(list) => {
                        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                        following.go_on_from(version.to_owned());
                    }
                    Err(Trouble::Refused(status)) => return Err(Trouble::Refused(status).into()),
                    Err(Trouble::Nobody(_) | Trouble::Unreachable(_)) => {}
                },
            }
        }
    }
    let mut events = list(&server, namespace, fields.as_deref()).await?;
    events.retain(is_wanted);
    if events.is_empty() {
        match namespace {
            None => note("No events found."),
            Some(namespace) => note(&format!("No events found in {namespace} namespace.")),
        }
        return Ok(());
    }
    events.sort_by_key(moment);
    printer.print(&events, &form)
}

/// All events, or those of one object.
pub async fn list(server: &Server, namespace: Option<&str>, fields: Option<&str>) -> Result<Vec<Value>, Trouble> {
    let (mut events, mut next) = (Vec::new(), String::new());
    loop {
        let ask = Ask::get(path(namespace)).with("limit", PAGE).with_some("fieldSelector", fields);
        let mut page = server.get(ask.with_some("continue", Some(&next))).await?;
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if let Value::Array(items) = page["items"].take() {
            events.extend(items);
        }
        if next.is_empty() {
            return Ok(events);
        }
    }
}

/// The last warning about an object, in one line.
pub async fn last_warning(server: &Server, namespace: Option<&String>, object: &Value) -> Option<String> {
    let fields = format!("involvedObject.uid={},type=Warning", object["metadata"]["uid"].as_str()?);
    let mut events = list(server, namespace.map(String::as_str).or(Some("default")), Some(&fields)).await.ok()?;
    events.sort_by_key(moment);
    let last = events.pop()?;
    let text = |name: &str| last[name].as_str().unwrap_or_default().trim().to_owned();
    Some(escape(&format!("{}: {}", text("reason"), text("message"))))
}

/// What selects the events of an object.
pub fn of(kind: &str, api_version: &str, name: &str) -> String {
    format!("involvedObject.kind={kind},involvedObject.apiVersion={api_version},involvedObject.name={name}")
}

/// When an event was seen last, as it says.
pub fn moment(event: &Value) -> String {
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    times.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
}

fn path(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{}/events", crate::request::segment(namespace)),
        None => "/api/v1/events".to_owned(),
    }
}

struct Printer<'a> {
    arguments: &'a EventsArguments,
    tabs: Tabs,
    is_first: bool,
}

impl Printer<'_> {
    fn print(&mut self, events: &[Value], form: &Output) -> Result<(), Failure> {
        if !matches!(form, Output::Table { .. }) {
            let list = json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": events.iter().map(named).collect::<Vec<_>>()});
            let single = events.first().filter(|_| self.arguments.watch).map(named);
            print(&form.print(&single.unwrap_or(list), false)?);
            return Ok(());
        }
        if std::mem::take(&mut self.is_first) && !self.arguments.no_headers {
            let namespace = self.arguments.all_namespaces.then_some("NAMESPACE");
            self.tabs.row(namespace.into_iter().chain(["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]));
        }
        for event in events {
            let text = |value: &Value| escape(value.as_str().unwrap_or_default());
            let about = &event["involvedObject"];
            let namespace = self.arguments.all_namespaces.then(|| text(&event["metadata"]["namespace"]));
            self.tabs.row(namespace.into_iter().chain([
                interval(event, now()),
                text(&event["type"]),
                text(&event["reason"]),
                format!("{}/{}", text(&about["kind"]), text(&about["name"])),
                text(&event["message"]).trim().to_owned(),
            ]));
        }
        print(&self.tabs.flush());
        Ok(())
    }
}

fn named(event: &Value) -> Value {
    let mut event = event.clone();
    event["apiVersion"] = "v1".into();
    event["kind"] = "Event".into();
    event
}

/// How long ago, and how often since when.
fn interval(event: &Value, now: i64) -> String {
    let ago = |value: &Value| {
        let then = value.as_str().and_then(|text| Timestamp::parse(text).ok());
        then.map_or_else(|| "<unknown>".to_owned(), |then| human::duration(now - then.seconds))
    };
    let first = if event["eventTime"].is_null() { ago(&event["firstTimestamp"]) } else { ago(&event["eventTime"]) };
    let (series, count) = (&event["series"], event["count"].as_i64().unwrap_or(0));
    if series.is_object() {
        let times = series["count"].as_i64().unwrap_or(0);
        return format!("{} (x{times} over {first})", ago(&series["lastObservedTime"]));
    }
    if count > 1 { format!("{} (x{count} over {first})", ago(&event["lastTimestamp"])) } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_how_often_it_was_seen() {
        let now = Timestamp::parse("2026-01-01T00:10:00Z").unwrap().seconds;
        let time = |minute: u32| format!("2026-01-01T00:0{minute}:00Z");
        for (event, expected) in [
            (json!({"firstTimestamp": time(9)}), "60s"),
            (json!({"firstTimestamp": time(5), "lastTimestamp": time(9), "count": 3}), "60s (x3 over 5m)"),
            (json!({"eventTime": time(5), "series": {"count": 4, "lastObservedTime": time(9)}}), "60s (x4 over 5m)"),
            (json!({}), "<unknown>"),
        ] {
            assert_eq!(interval(&event, now), expected);
        }
    }
}
