//! `setpoint get --watch`: what is there, then every change as it comes, over restarts of the server.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Found, GetArguments, as_table, ask_list, flatten, get, options, print_one};
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, note, print};
use crate::output::Output;
use crate::request::{Ask, Server, Trouble};
use crate::selection::{self, Selection};
use crate::tab::Tabs;
use crate::table::Printer;

/// Pause before a watch that has ended begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// What is watched and how it is printed.
struct Follower<'a> {
    arguments: &'a GetArguments,
    form: &'a Output,
    server: &'a Server,
    kind: Kind,
    name: Option<String>,
    printer: Printer,
    tabs: Tabs,
    printed: bool,
}

pub(super) async fn run(
    arguments: &GetArguments,
    form: &Output,
    server: &Server,
    discovery: &Discovery,
) -> Result<(), Failure> {
    if arguments.sort_by.is_some() {
        note("warning: --watch requested, --sort-by will be ignored for watch events received");
    }
    let too_many = || Failure::error("you may only specify a single resource type");
    let (kind, name) = match selection::read(&arguments.words, discovery)? {
        Selection::Kinds(kinds) => match &kinds[..] {
            [kind] => (kind.clone(), None),
            _ => return Err(too_many()),
        },
        Selection::Named(mut named) if named.len() == 1 => {
            named.pop().map(|(kind, name)| (kind, Some(name))).ok_or_else(too_many)?
        }
        Selection::Named(_) => return Err(too_many()),
    };
    let wide = *form == Output::Table { wide: true };
    let printer = Printer::new(options(arguments, &kind, wide, false));
    let tabs = Tabs::default();
    let mut follower = Follower { arguments, form, server, kind, name, printer, tabs, printed: false };
    let mut version = match follower.look().await {
        Ok(now) => follower.begin(now)?,
        Err(trouble) if arguments.ignore_not_found && trouble.is("NotFound") => return Ok(()),
        Err(trouble) => return Err(trouble.into()),
    };
    let mut told = false;
    loop {
        match follower.follow(&mut version).await {
            Ok(()) => {}
            Err(Trouble::Refused(status)) if status["code"] != 410 && status["reason"] != "Expired" => {
                return Err(Trouble::Refused(status).into());
            }
            Err(trouble) => {
                if !std::mem::replace(&mut told, true) {
                    note(&format!("warning: the watch was cut ({}); it goes on when it can", trouble.words()));
                }
                if matches!(trouble, Trouble::Refused(_)) {
                    // What happened meanwhile is no longer known: from here on, what happens next.
                    version = follower.look().await.map_or(version, |found| found_version(&found.value));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Follower<'_> {
    /// What is there now.
    async fn look(&self) -> Result<Found, Trouble> {
        let value = match &self.name {
            Some(name) => get(self.arguments, self.form, self.server, &self.kind, &self.server.namespace, name).await?,
            None => self.server.get(ask_list(self.arguments, self.form, self.server, &self.kind)).await?,
        };
        Ok(Found { kind: self.kind.clone(), value })
    }

    /// Prints it, and returns the version from which to watch.
    fn begin(&mut self, found: Found) -> Result<String, Failure> {
        let version = found_version(&found.value);
        if !self.arguments.watch_only {
            match self.form {
                Output::Table { .. } => self.print(&as_table(found.value), "ADDED"),
                _ => {
                    flatten(&self.kind, found.value).iter().try_for_each(|object| self.print_object(object, "ADDED"))?
                }
            }
        }
        Ok(version)
    }

    /// Prints changes until the watch ends.
    async fn follow(&mut self, version: &mut String) -> Result<(), Trouble> {
        let ask = match &self.name {
            Some(name) => Ask::get(self.kind.path(Some(&self.server.namespace)))
                .accept(super::accept(self.arguments, self.form))
                .with("fieldSelector", format!("metadata.name={name}")),
            None => ask_list(self.arguments, self.form, self.server, &self.kind),
        };
        let mut watch = self.server.watch(ask.with("resourceVersion", version.clone())).await?;
        while let Some((event, object)) = watch.next().await {
            if event == "ERROR" {
                return Err(Trouble::Refused(object));
            }
            if event == "BOOKMARK" {
                continue;
            }
            match self.form {
                Output::Table { .. } => {
                    let table = as_table(object);
                    let last = table["rows"].as_array().and_then(|rows| rows.last());
                    remember(last.map(|row| &row["object"]), version);
                    self.print(&table, &event);
                }
                _ => {
                    remember(Some(&object), version);
                    if let Err(failure) = self.print_object(&object, &event) {
                        note(&failure.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    fn print(&mut self, table: &Value, event: &str) {
        let event = self.arguments.output_watch_events.then_some(event);
        self.printer.print(table, event, &mut self.tabs);
        print(&self.tabs.flush());
    }

    fn print_object(&mut self, object: &Value, event: &str) -> Result<(), Failure> {
        let first = !std::mem::replace(&mut self.printed, true);
        if self.arguments.output_watch_events {
            return print_one(self.form, &json!({"type": event, "object": object}), self.arguments, first);
        }
        print_one(self.form, object, self.arguments, first)
    }
}

fn found_version(value: &Value) -> String {
    value["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned()
}

fn remember(object: Option<&Value>, version: &mut String) {
    if let Some(found) = object.and_then(|object| object["metadata"]["resourceVersion"].as_str()) {
        found.clone_into(version);
    }
}
