//! Every built-in kind through the whole server: created with the least that it needs, changed, deleted, and refused with
//! the words that Kubernetes has for what is wrong. A kind without a row fails.

use serde_json::{Value, json};
use setpoint_schema::builtin;

use crate::testing::Server;

/// Path of the collection, the least that a user can send, and what is stored then. `<...>` stands for anything.
const LEAST: &str = include_str!("every_kind/least.tsv");

/// Path of the collection, what is sent, the code and the message.
const REFUSALS: &str = include_str!("every_kind/refusals.tsv");

/// The collection of each kind, and the least that a user can send there.
pub(crate) fn least() -> impl Iterator<Item = (&'static str, Value)> {
    rows(LEAST).map(|[path, least, _]| (path, value(least)))
}

fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>().try_into().expect("a cell per column"))
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

async fn server() -> Server {
    let server = Server::start().await;
    let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
    server.done("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    server
}

/// Collections of all kinds that users create.
fn collections() -> Vec<String> {
    let kinds = builtin::kinds().iter().filter(|kind| kind.allows("create") && kind.allows("list"));
    kinds
        .map(|kind| {
            let root = if kind.group.is_empty() { "/api" } else { "/apis" };
            let space = if kind.namespaced { "/namespaces/default" } else { "" };
            format!("{root}/{}{space}/{}", kind.api_version(), kind.plural)
        })
        .collect()
}

#[test]
fn no_kind_is_left_out() {
    for path in collections() {
        assert!(rows::<3>(LEAST).any(|row| row[0] == path), "{path} has no least object");
        assert!(rows::<4>(REFUSALS).any(|row| row[0] == path), "{path} has no refusals");
    }
}

#[tokio::test]
async fn every_kind_is_created_changed_and_deleted() {
    for [path, least, answer] in rows(LEAST) {
        let server = server().await;
        let created = server.done("POST", path, value(least)).await;
        agree(path, &value(answer), &created);
        let object = format!("{path}/{}", created["metadata"]["name"].as_str().unwrap());
        let changed = label(&server, &object).await;
        assert_eq!(changed["metadata"]["labels"]["changed"], "yes", "{object}");
        assert_eq!(changed["spec"], created["spec"], "{object}");
        let (code, status) = server.send("GET", &format!("{object}/status"), Value::Null).await;
        if code == 200 {
            let (code, status) = server.send("PUT", &format!("{object}/status"), status).await;
            assert!(code == 409 || code == 200 && status["spec"] == created["spec"], "{object}: {status}");
        }

        server.done("DELETE", &object, Value::Null).await;
        let (code, left) = server.send("GET", &object, Value::Null).await;
        let waits = !left["metadata"]["deletionTimestamp"].is_null();
        assert!(code == 404 || waits, "{object} is still there: {left}");
    }
}

#[tokio::test]
async fn every_kind_refuses_with_the_known_words() {
    let server = server().await;
    let mut wrong = Vec::new();
    for [path, body, code, message] in rows(REFUSALS) {
        let (got_code, got) = server.send("POST", path, value(body)).await;
        let got = got["message"].as_str().unwrap_or_default();
        if (&*got_code.to_string(), got) != (code, message) {
            wrong.push(format!("{path} {body}\n  {code} {message}\n  {got_code} {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reads an object and writes it back with a label. Somebody may write its status in between: then once more.
async fn label(server: &Server, object: &str) -> Value {
    for _ in 0..10 {
        let mut changed = server.done("GET", object, Value::Null).await;
        changed["metadata"]["labels"] = json!({"changed": "yes"});
        match server.send("PUT", object, changed).await {
            (200, changed) => return changed,
            (409, _) => {}
            (code, refused) => panic!("{object}: {code} {refused}"),
        }
    }
    panic!("{object} is written all the time");
}

/// Fails unless the server gave all that was wanted and nothing else, but for the marks of who manages what.
fn agree(path: &str, wanted: &Value, got: &Value) {
    match (wanted, got) {
        (Value::String(mask), _) if mask.starts_with('<') && mask.ends_with('>') => {}
        (Value::Object(wanted), Value::Object(got)) => {
            for (name, value) in wanted {
                agree(&format!("{path}.{name}"), value, got.get(name).unwrap_or(&Value::Null));
            }
            let more = got.keys().find(|name| !wanted.contains_key(*name) && *name != "managedFields");
            assert_eq!(more, None, "{path} has more");
        }
        (Value::Array(wanted), Value::Array(got)) => {
            assert_eq!(wanted.len(), got.len(), "{path}");
            wanted.iter().zip(got).for_each(|(wanted, got)| agree(path, wanted, got));
        }
        _ => assert_eq!(wanted, got, "{path}"),
    }
}
