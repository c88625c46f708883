//! What is open to everyone: whether the server is well, and what it is.

use http::{Method, Response, StatusCode};
use serde_json::json;
use setpoint_api::Status;

use crate::answer;
use crate::body::Body;
use crate::query::Query;
use crate::server::Inner;

/// The version that clients compare with: ours within Kubernetes' numbering.
pub const GIT_VERSION: &str = concat!("v1.36.4+setpoint-", env!("CARGO_PKG_VERSION"));

/// Whether a path is open without credentials.
pub(crate) fn is_open(segments: &[&str]) -> bool {
    matches!(segments, ["healthz" | "livez" | "readyz", ..] | ["version"])
}

pub(crate) fn answer(server: &Inner, method: &Method, segments: &[&str], query: &str) -> Response<Body> {
    match segments {
        ["version"] if method != Method::GET && method != Method::HEAD => answer::status(&method_not_allowed()),
        ["version"] => answer::value(StatusCode::OK, &version()),
        [endpoint] => report(server, endpoint, &Query::parse(query)),
        [endpoint, name] => match checks(server, endpoint).into_iter().find(|(check, _)| check == name) {
            Some((_, Ok(()))) => answer::text(StatusCode::OK, "ok"),
            Some((_, Err(why))) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
            None => answer::page_not_found(),
        },
        _ => answer::page_not_found(),
    }
}

/// 405 for a path outside of the resources.
pub(crate) fn method_not_allowed() -> Status {
    let mut status = Status::method_not_supported(&setpoint_api::GroupResource::new("", ""), "");
    status.message = "the server does not allow this method on the requested resource".to_owned();
    status.details = Some(setpoint_api::StatusDetails::default());
    status
}

type Check = (&'static str, Result<(), String>);

/// The named checks of an endpoint. Liveness doesn't ask whether the server is going down: it would be restarted.
fn checks(server: &Inner, endpoint: &str) -> Vec<Check> {
    let mut checks = vec![("ping", Ok(())), ("log", Ok(())), ("etcd", server.store.health())];
    if endpoint == "readyz" {
        let stopping = *server.stopping.borrow();
        checks.push(("informer-sync", Ok(())));
        checks.push(("shutdown", if stopping { Err("process is shutting down".to_owned()) } else { Ok(()) }));
    }
    checks
}

fn report(server: &Inner, endpoint: &str, query: &Query<'_>) -> Response<Body> {
    let excluded = query.all("exclude");
    let mut lines = String::new();
    let mut failed = false;
    for (name, result) in checks(server, endpoint) {
        let line = match result {
            _ if excluded.iter().any(|other| other == name) => format!("[+]{name} excluded: ok\n"),
            Ok(()) => format!("[+]{name} ok\n"),
            Err(_) => {
                failed = true;
                format!("[-]{name} failed: reason withheld\n")
            }
        };
        lines.push_str(&line);
    }
    if failed {
        lines.push_str(&format!("{endpoint} check failed\n"));
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    if query.has("verbose") {
        lines.push_str(&format!("{endpoint} check passed\n"));
        return answer::text(StatusCode::OK, lines);
    }
    answer::text(StatusCode::OK, "ok")
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": concat!("linux/", "amd64"),
    })
}
