//! `setpoint get --watch`: what is there, then every change as it comes, over restarts of the server.

use serde_json::{Value, json};

use super::{Found, GetArguments, as_table, ask_list, flatten, get, options, print_one};
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, note, print};
use crate::observe::{Following, Next};
use crate::output::Output;
use crate::request::{Ask, Server, Trouble};
use crate::selection::{self, Selection};
use crate::tab::Tabs;
use crate::table::Printer;

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
    let too_many =
        || Failure::error("you may only specify a single resource type").hint("watch each in a terminal of its own");
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
    let version = match follower.look().await {
        Ok(now) => follower.begin(now)?,
        Err(trouble) if arguments.ignore_not_found && trouble.is("NotFound") => return Ok(()),
        Err(trouble) => return Err(trouble.into()),
    };
    let mut following = Following::from(server, version);
    let (watched, name) = (follower.kind.clone(), follower.name.clone());
    let ask = || match &name {
        Some(name) => Ask::get(watched.path(Some(&server.namespace)))
            .accept(super::accept(arguments, form))
            .with("fieldSelector", format!("metadata.name={name}")),
        None => ask_list(arguments, form, server, &watched),
    };
    loop {
        match following.next(ask).await? {
            Next::Event(event, object) => follower.tell(&event, object),
            Next::Expired => match follower.look().await {
                Ok(found) => {
                    let since = following.version().to_owned();
                    following.go_on_from(found_version(&found.value));
                    follower.catch_up(found, &since);
                }
                Err(Trouble::Refused(status)) => return Err(Trouble::Refused(status).into()),
                // It is away again, and the next look tells so.
                Err(Trouble::Nobody(_) | Trouble::Unreachable(_)) => {}
            },
        }
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

    /// Prints one change.
    fn tell(&mut self, event: &str, object: Value) {
        match self.form {
            Output::Table { .. } => self.print(&as_table(object), event),
            _ => {
                if let Err(failure) = self.print_object(&object, event) {
                    note(&failure.to_string());
                }
            }
        }
    }

    /// Prints what has changed since a version. What was deleted meanwhile can't be told any more.
    fn catch_up(&mut self, found: Found, since: &str) {
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let since = number(since);
        let is_newer = |object: &Value| number(object["metadata"]["resourceVersion"].as_str().unwrap_or("0")) > since;
        match self.form {
            Output::Table { .. } => {
                let mut table = as_table(found.value);
                if let Some(rows) = table["rows"].as_array_mut() {
                    rows.retain(|row| is_newer(&row["object"]));
                }
                self.print(&table, "MODIFIED");
            }
            _ => flatten(&self.kind, found.value).into_iter().filter(is_newer).for_each(|object| {
                self.tell("MODIFIED", object);
            }),
        }
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
