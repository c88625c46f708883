//! What a connection to a part of an object asks for, as an object that webhooks can judge.

use serde_json::{Map, Value, json};

use crate::call::Call;

/// The options of a connection, from its query.
pub(super) fn options(call: &Call<'_>, part: &str) -> Value {
    let kind = call.kind().subresource(part).map(|part| part.kind.to_string()).unwrap_or_default();
    let mut options = Map::new();
    options.insert("kind".into(), kind.into());
    options.insert("apiVersion".into(), "v1".into());
    let flags: &[&str] = if matches!(part, "exec" | "attach") { &["stdin", "stdout", "stderr", "tty"] } else { &[] };
    for flag in flags.iter().filter(|flag| call.query.flag(flag)) {
        options.insert((*flag).into(), true.into());
    }
    for text in ["container", "path"].into_iter().filter(|text| !call.query.get(text).is_empty()) {
        options.insert(text.into(), call.query.get(text).into());
    }
    let commands = call.query.all("command");
    if !commands.is_empty() {
        options.insert("command".into(), json!(commands));
    }
    let ports: Vec<i64> = call.query.all("ports").iter().filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options.insert("ports".into(), json!(ports));
    }
    Value::Object(options)
}
