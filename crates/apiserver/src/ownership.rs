//! Who owns which fields: every write leaves its mark in `metadata.managedFields`.

use http::header::USER_AGENT;
use serde_json::Value;
use setpoint_schema::Edit;
use setpoint_schema::managed::{OneVersion, Versions, Write};

use crate::call::Call;
use crate::conversion::{self, Tracked};
use crate::query::{FIELD_MANAGER_BYTES_MAX, WriteOptions};

/// Who writes, and when.
pub(crate) struct Author {
    manager: String,
    time: String,
    api_version: String,
    /// The versions of a kind that a webhook converts.
    tracked: Option<Tracked>,
}

impl Author {
    pub(crate) fn of(call: &Call<'_>, options: &WriteOptions) -> Author {
        let manager = match &*options.field_manager {
            "" => program(call),
            named => named.to_owned(),
        };
        let (time, api_version) = (call.server.clock.timestamp(), call.kind().api_version());
        Author { manager, time, api_version, tracked: Tracked::of(call) }
    }

    pub(crate) fn write<'a>(&'a self, call: &Call<'a>) -> Write<'a> {
        let kind = call.kind();
        let subresource = call.subresource.unwrap_or("");
        Write {
            ty: kind.root_type(),
            api_version: &self.api_version,
            kind: &kind.kind,
            subresource,
            manager: &self.manager,
            time: &self.time,
            reset_fields: kind.behaviour.reset_fields(subresource),
            versions: match (&self.tracked, &call.served.custom) {
                (Some(tracked), _) => tracked,
                (None, Some(custom)) => custom as &dyn Versions,
                (None, None) => &OneVersion,
            },
        }
    }
}

/// Marks what a write other than apply sets. What can't be tracked, because it can't be converted, is nobody's.
pub(crate) async fn update(call: &Call<'_>, options: &WriteOptions, live: Option<&Value>, new: &mut Value) {
    if call.memo.is_none() {
        return mark(call, options, live, new);
    }
    loop {
        let mut marked = new.clone();
        mark(call, options, live, &mut marked);
        match Box::pin(conversion::make_missing(call)).await {
            Ok(true) => {}
            Ok(false) => return *new = marked,
            Err(_) => return drop(new.ensure("metadata").remove("managedFields")),
        }
    }
}

/// The same for what nobody has to be asked about.
pub(crate) fn mark(call: &Call<'_>, options: &WriteOptions, live: Option<&Value>, new: &mut Value) {
    let author = Author::of(call, options);
    // A list that was given empty and is printed all the same is a value of its own here, though it is stored as null.
    let shown: Vec<_> = call.emptied.iter().filter(|one| one.is_printed(new)).collect();
    shown.iter().for_each(|one| one.restore(new));
    // Who gives an empty list of managers wants all to be forgotten.
    call.emptied.iter().filter(|one| one.path() == "metadata.managedFields").for_each(|one| one.restore(new));
    author.write(call).update(live, new);
    shown.iter().for_each(|one| one.empty(new));
}

/// The name of the program that asks, where it did not say who manages: its user agent up to the slash.
fn program(call: &Call<'_>) -> String {
    let agent = call.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let name = agent.split('/').next().unwrap_or("");
    let printable: String = name.chars().filter(|c| setpoint_api::quote::is_printable(*c)).collect();
    let mut end = printable.len().min(FIELD_MANAGER_BYTES_MAX);
    while !printable.is_char_boundary(end) {
        end -= 1;
    }
    printable[..end].to_owned()
}
