//! One request from its beginning to its end.

use http::{Method, Response, Uri};
use http_body_util::BodyExt;
use setpoint_api::metrics::Held;
use tokio::time::Instant;

use super::{Metrics, RequestLabels, Scope};
use crate::body::Body;
use crate::path::{self, ResourcePath, Target};
use crate::query::Query;
use crate::registry::Registry;

/// A request that is being answered. Counted once it has ended; one that the client gave up isn't counted.
#[derive(Debug)]
pub struct Observation {
    labels: RequestLabels,
    started: Instant,
    /// Held while it is being answered, or, where it runs long, for as long as its body is read.
    running: Held,
}

impl Metrics {
    /// A request has come.
    pub fn begin(&self, registry: &Registry, method: &Method, uri: &Uri) -> Observation {
        let labels = labels(registry, method, uri);
        let running = if labels.is_long_running() {
            self.long_running(&labels)
        } else {
            self.in_flight(!matches!(*method, Method::GET | Method::HEAD))
        };
        Observation { labels, started: Instant::now(), running }
    }

    /// Its answer is known. Streams count as open until their body is dropped.
    pub fn end(&self, observation: Observation, response: Response<Body>) -> Response<Body> {
        let Observation { labels, started, running } = observation;
        self.request(&labels, response.status().as_u16(), started.elapsed().as_secs_f64());
        if !labels.is_long_running() {
            return response;
        }
        response.map(|body| {
            let held = move |frame| {
                let _ = &running;
                frame
            };
            body.map_frame(held).boxed_unsync()
        })
    }
}

fn labels(registry: &Registry, method: &Method, uri: &Uri) -> RequestLabels {
    let Target::Resource(path) = path::parse(uri.path()) else {
        return RequestLabels::new(None, &method.as_str().to_ascii_lowercase(), None, Scope::None);
    };
    let served = registry.find(path.group, path.version, path.resource);
    let query = Query::parse(uri.query().unwrap_or(""));
    let scope = match (path.name, path.namespace) {
        (Some(_), _) => Scope::Resource,
        (None, Some(_)) => Scope::Namespace,
        (None, None) => Scope::Cluster,
    };
    let labels =
        RequestLabels::new(served.map(|served| &**served), verb(method, &path, &query), path.subresource, scope);
    if query.has("dryRun") { labels.dry_run() } else { labels }
}

fn verb(method: &Method, path: &ResourcePath<'_>, query: &Query<'_>) -> &'static str {
    let connects = matches!(path.subresource, Some("attach" | "exec" | "portforward" | "proxy"));
    match method.as_str() {
        "GET" | "POST" if connects => "connect",
        "GET" if path.watch || matches!(query.get("watch"), "1" | "t" | "true" | "True" | "TRUE") => "watch",
        "GET" if path.name.is_some() => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if path.name.is_some() => "delete",
        "DELETE" => "deletecollection",
        "HEAD" => "head",
        "OPTIONS" => "options",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Exposition;

    fn written(metrics: &Metrics) -> String {
        let mut out = Exposition::default();
        metrics.write(&mut out);
        out.into_text()
    }

    fn check(method: Method, uri: &str, expected: &[&str]) {
        let metrics = Metrics::default();
        let observation = metrics.begin(&Registry::builtin(), &method, &uri.parse().unwrap());
        let _ = metrics.end(observation, Response::new(crate::body::full("")));
        let text = written(&metrics);
        let line = text.lines().find(|line| line.starts_with("apiserver_request_total{")).unwrap();
        for label in expected {
            assert!(line.contains(label), "{label} in {line}");
        }
    }

    #[test]
    fn requests_are_told_apart_by_their_address() {
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods",
            &[r#"verb="LIST""#, r#"scope="namespace""#, r#"resource="pods""#],
        );
        check(Method::GET, "/api/v1/pods?watch=true", &[r#"verb="WATCH""#, r#"scope="cluster""#]);
        check(
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/d/scale?dryRun=All",
            &[
                r#"verb="PATCH""#,
                r#"group="apps""#,
                r#"subresource="scale""#,
                r#"scope="resource""#,
                r#"dry_run="All""#,
            ],
        );
        check(Method::POST, "/apis/none.example.com/v1/things", &[r#"verb="POST""#, r#"resource="""#]);
        check(Method::GET, "/healthz", &[r#"verb="GET""#, r#"scope="""#]);
        check("BREW".parse().unwrap(), "/", &[r#"verb="other""#]);
    }

    #[test]
    fn a_watch_is_open_until_its_body_is_dropped() {
        let metrics = Metrics::default();
        let uri = "/api/v1/pods?watch=1".parse().unwrap();
        let observation = metrics.begin(&Registry::builtin(), &Method::GET, &uri);
        let response = metrics.end(observation, Response::new(crate::body::full("")));
        let open = |text: String| {
            text.lines().find(|line| line.starts_with("apiserver_longrunning_requests{")).unwrap().ends_with(" 1")
        };
        assert!(open(written(&metrics)));
        drop(response);
        assert!(!open(written(&metrics)));
    }
}
