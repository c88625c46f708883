//! Whether the server is well, and what it is. The default roles open the summaries to everyone, what they are made of to `system:masters`.

use http::{Method, Response, StatusCode};
use serde_json::json;
use setpoint_api::Status;

use crate::answer;
use crate::body::Body;
use crate::query::Query;
use crate::server::Inner;

/// The version that clients compare with: ours within Kubernetes' numbering.
pub const GIT_VERSION: &str = concat!("v1.36.4+setpoint-", env!("CARGO_PKG_VERSION"));

/// Whether a path is about these.
pub(crate) fn is_asked(segments: &[&str]) -> bool {
    matches!(segments, ["healthz" | "livez" | "readyz", ..] | ["version"])
}

pub(crate) fn answer(server: &Inner, method: &Method, segments: &[&str], query: &str) -> Response<Body> {
    match segments {
        ["version"] if method != Method::GET && method != Method::HEAD => answer::status(&method_not_allowed()),
        ["version"] => answer::pretty(StatusCode::OK, &version()),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;
    use tower::ServiceExt;

    use crate::body::full;
    use crate::testing::Server;
    use crate::user::User;

    #[tokio::test]
    async fn strangers_read_the_summaries_and_nothing_beside() {
        let server = Server::start().await;
        server.api.prepare_roles().await.unwrap();
        let ask = async |method: &str, path: &str, groups: &[&str]| {
            let mut request = Request::builder().method(method).uri(path).body(full("")).unwrap();
            if !groups.is_empty() {
                let groups = groups.iter().map(|group| (*group).to_owned()).collect();
                request.extensions_mut().insert(Arc::new(User { name: "a".to_owned(), groups, ..User::default() }));
            }
            let Ok(answer) = server.api.clone().oneshot(request).await;
            answer.status().as_u16()
        };
        let (stranger, master): (&[&str], &[&str]) = (&[], &["system:masters"]);
        for (method, path, who, code) in [
            ("GET", "/livez", stranger, 200),
            ("GET", "/readyz?verbose", stranger, 200),
            ("GET", "/healthz", stranger, 200),
            ("GET", "/version", stranger, 200),
            ("GET", "/livez/ping", stranger, 403),
            ("GET", "/readyz/etcd", stranger, 403),
            ("DELETE", "/readyz", stranger, 403),
            ("POST", "/version", stranger, 403),
            ("GET", "/livez/ping", &["system:authenticated"], 403),
            ("GET", "/livez/ping", master, 200),
            ("GET", "/livez/none", master, 404),
            ("POST", "/version", master, 405),
        ] {
            assert_eq!(ask(method, path, who).await, code, "{method} {path} {who:?}");
        }
    }

    #[tokio::test]
    async fn a_token_that_counts_for_nothing_reads_no_summary_either() {
        let server = Server::start().await;
        server.api.prepare_roles().await.unwrap();
        let request = Request::get("/livez").header("authorization", "Bearer bad").body(full("")).unwrap();
        let Ok(answer) = server.api.clone().oneshot(request).await;
        assert_eq!(answer.status(), 401);
    }
}
