//! Who owns which fields: every write leaves its mark in `metadata.managedFields`.

use http::header::USER_AGENT;
use serde_json::Value;
use setpoint_schema::managed::{OneVersion, Versions, Write};

use crate::call::Call;
use crate::query::{FIELD_MANAGER_BYTES_MAX, WriteOptions};

/// Who writes, and when.
pub(crate) struct Author {
    manager: String,
    time: String,
    api_version: String,
}

impl Author {
    pub(crate) fn of(call: &Call<'_>, options: &WriteOptions) -> Author {
        let manager = match &*options.field_manager {
            "" => program(call),
            named => named.to_owned(),
        };
        Author { manager, time: call.server.clock.timestamp(), api_version: call.kind().api_version() }
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
            versions: call.served.custom.as_ref().map_or(&OneVersion as &dyn Versions, |custom| custom),
        }
    }
}

/// Marks what a write other than apply sets.
pub(crate) fn update(call: &Call<'_>, options: &WriteOptions, live: Option<&Value>, new: &mut Value) {
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
