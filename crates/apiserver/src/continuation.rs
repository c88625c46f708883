//! Where a page ended, as a token that the client hands back.

use serde_json::{Value, json};
use setpoint_api::{Revision, Status};
use setpoint_schema::{Edit, base64, json};

/// Where to go on.
#[derive(Debug)]
pub struct Continuation {
    /// The revision of the first page.
    pub revision: Revision,
    /// The path of the last object of the page before.
    pub after: String,
    /// Objects on the pages before.
    pub seen: usize,
}

const VERSION: &str = "meta.k8s.io/v1";

/// The token for the page after the object at `path`.
pub fn write(revision: Revision, path: &str, seen: usize) -> String {
    let token = json!({"v": VERSION, "rv": revision.get(), "start": path, "seen": seen});
    // The alphabet for URLs, without padding.
    base64::encode(token.to_string().as_bytes()).replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned()
}

/// Reads a token.
pub fn read(text: &str) -> Result<Continuation, Box<Status>> {
    let invalid = |why: String| {
        Box::new(Status::bad_request(format!("invalid continue token: continue key is not valid: {why}")))
    };
    if text.len() % 4 == 1 {
        return Err(invalid(format!("illegal base64 data at input byte {}", text.len() - 1)));
    }
    let padding = "=".repeat((4 - text.len() % 4) % 4);
    let standard = text.replace('-', "+").replace('_', "/") + &padding;
    let bytes = base64::decode(&standard).map_err(|error| invalid(error.to_string()))?;
    let token: Value = json::parse(&bytes).map_err(|error| invalid(error.to_string()))?.into_value();
    let version = token.text("v");
    if version != VERSION {
        return Err(invalid(format!("server does not recognize this encoded version {version}")));
    }
    let revision = token.get("rv").and_then(Value::as_u64).unwrap_or(0);
    if revision == 0 {
        return Err(invalid(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    let start = token.text("start");
    if start.is_empty() {
        return Err(invalid(format!("empty encoded start key (version {VERSION})")));
    }
    if start.starts_with('/') || start.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(invalid(start.to_owned()));
    }
    let seen = token.get("seen").and_then(Value::as_u64).unwrap_or(0);
    Ok(Continuation {
        revision: Revision::new(revision),
        after: start.to_owned(),
        seen: usize::try_from(seen).unwrap_or(usize::MAX / 2),
    })
}

/// The answer to a token whose state is gone. It carries one that goes on from the present state.
pub fn expired(token: &Continuation, newest: Revision) -> Box<Status> {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    let mut status = Status::expired(message);
    status.metadata.continue_token = write(newest, &token.after, token.seen);
    Box::new(status)
}
