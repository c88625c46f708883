//! What each path answers.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri, header};
use setpoint_api::metrics::{Exposition, MEDIA_TYPE};

use super::Site;
use super::process::process_figures;
use super::profile::{CpuFormat, Profiles};
use crate::manager::Checks;

/// How long a CPU profile takes if nobody says, and at most.
const PROFILE_DEFAULT: Duration = Duration::from_secs(30);
const PROFILE_MAX: Duration = Duration::from_secs(300);

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

type Answer = Response<Bytes>;

impl Site {
    /// The answer to a request for a path: `/healthz`, `/readyz`, `/metrics`, `/debug/traces`, `/debug/pprof/profile` and
    /// `/debug/pprof/heap`.
    pub async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        if !is_read(method) {
            return only_reads();
        }
        let query = Query(uri.query().unwrap_or_default());
        match segments(uri)[..] {
            ["healthz" | "livez"] => report(self.manager.health(), &query),
            ["readyz"] => report(self.manager.ready(), &query),
            ["healthz" | "livez", name] => one(self.manager.health(), name),
            ["readyz", name] => one(self.manager.ready(), name),
            ["metrics"] => answer(StatusCode::OK, MEDIA_TYPE, self.figures()),
            ["debug", "traces"] => answer(StatusCode::OK, "application/json", self.manager.traces().to_string()),
            _ => self.profiles.answer(method, uri).await,
        }
    }

    fn figures(&self) -> String {
        let mut out = Exposition::default();
        if self.tells_process {
            process_figures(&mut out);
        }
        self.manager.metrics().text() + &out.into_text()
    }
}

impl Profiles {
    /// The answer to a request for `/debug/pprof/profile` or `/debug/pprof/heap`, for programs that have no manager to show; 404 for
    /// all else.
    pub async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        if !is_read(method) {
            return only_reads();
        }
        let query = Query(uri.query().unwrap_or_default());
        match segments(uri)[..] {
            ["debug", "pprof", _] if self.off => text(StatusCode::NOT_FOUND, "profiling is off\n"),
            ["debug", "pprof", "profile"] => self.take_cpu(&query).await,
            ["debug", "pprof", "heap"] => self.take_heap(&query).await,
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn take_cpu(&self, query: &Query<'_>) -> Answer {
        let Some(take) = &self.cpu else {
            return text(StatusCode::NOT_IMPLEMENTED, "this program was built without CPU profiles\n");
        };
        let seconds = match query.seconds() {
            Ok(seconds) => seconds.unwrap_or(PROFILE_DEFAULT),
            Err(why) => return text(StatusCode::BAD_REQUEST, why),
        };
        let (format, media) = match query.get("format") {
            None | Some("proto") => (CpuFormat::Protobuf, BINARY),
            Some("flamegraph") => (CpuFormat::Flamegraph, "image/svg+xml"),
            Some(_) => return text(StatusCode::BAD_REQUEST, "format: must be \"proto\" or \"flamegraph\"\n"),
        };
        match take(seconds, format).await {
            Ok(profile) => answer(StatusCode::OK, media, profile),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        }
    }

    async fn take_heap(&self, query: &Query<'_>) -> Answer {
        let Some(take) = &self.heap else {
            return text(StatusCode::NOT_IMPLEMENTED, "this program's allocator keeps no heap profile\n");
        };
        let seconds = match query.seconds() {
            Ok(seconds) => seconds,
            Err(why) => return text(StatusCode::BAD_REQUEST, why),
        };
        match take(seconds).await {
            Ok(profile) => answer(StatusCode::OK, BINARY, profile),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn only_reads() -> Answer {
    text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n")
}

fn segments(uri: &Uri) -> Vec<&str> {
    uri.path().trim_matches('/').split('/').collect()
}

fn report(checks: &Checks, query: &Query<'_>) -> Answer {
    let (well, lines) = checks.report(&query.all("exclude"));
    match (well, query.has("verbose")) {
        (true, false) => text(StatusCode::OK, "ok"),
        (true, true) => text(StatusCode::OK, lines),
        (false, _) => text(StatusCode::INTERNAL_SERVER_ERROR, lines),
    }
}

fn one(checks: &Checks, name: &str) -> Answer {
    match checks.one(name) {
        Some(Ok(())) => text(StatusCode::OK, "ok"),
        Some(Err(_)) => text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: reason withheld\n"),
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// The names of checks and the numbers here need no escapes, so none are undone.
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.pairs().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// How long to look.
    fn seconds(&self) -> Result<Option<Duration>, &'static str> {
        match self.get("seconds").map(str::parse) {
            None => Ok(None),
            Some(Ok(seconds)) if (1..=PROFILE_MAX.as_secs()).contains(&seconds) => {
                Ok(Some(Duration::from_secs(seconds)))
            }
            Some(_) => Err("seconds: must be a whole number from 1 to 300\n"),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn all(&self, name: &str) -> Vec<&'a str> {
        self.pairs().filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
    }
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(code, TEXT, body)
}

fn answer(code: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Chance, Clock};
    use crate::fake_api::FakeApi;
    use crate::manager::{Manager, ManagerOptions};

    fn site(profiles: Profiles) -> Site {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let client = FakeApi::default().client();
        let manager = Manager::new(client, clock, Chance::seeded(1), ManagerOptions::default()).unwrap();
        manager.health().add("disk", || Ok(()));
        Site::new(&manager, profiles)
    }

    async fn check(site: &Site, path: &str, expected: (u16, &str)) {
        let answer = site.answer(&Method::GET, &path.parse().unwrap()).await;
        let code = answer.status().as_u16();
        let body = answer.into_body();
        assert_eq!((code, std::str::from_utf8(&body).unwrap()), expected, "{path}");
    }

    #[tokio::test]
    async fn checks_are_told_in_the_words_that_probes_know() {
        let site = site(Profiles::default());
        check(&site, "/healthz", (200, "ok")).await;
        check(&site, "/healthz?verbose", (200, "[+]ping ok\n[+]disk ok\nhealthz check passed\n")).await;
        check(&site, "/healthz/disk", (200, "ok")).await;
        check(&site, "/healthz/none", (404, "404 page not found\n")).await;
        let failed = "[+]ping ok\n[-]informers failed: reason withheld\nreadyz check failed\n";
        check(&site, "/readyz", (500, failed)).await;
        check(&site, "/readyz?exclude=informers", (200, "ok")).await;
        check(&site, "/readyz/informers", (500, "internal server error: reason withheld\n")).await;
        check(&site, "/debug/traces", (200, "{}")).await;
        check(&site, "/", (404, "404 page not found\n")).await;
        assert_eq!(site.answer(&Method::POST, &"/metrics".parse().unwrap()).await.status(), 405);
    }

    #[tokio::test]
    async fn a_profile_is_taken_or_said_to_be_missing() {
        let none = site(Profiles::default());
        check(&none, "/debug/pprof/heap", (501, "this program's allocator keeps no heap profile\n")).await;
        check(&none, "/debug/pprof/profile", (501, "this program was built without CPU profiles\n")).await;
        let cpu = |time: Duration, format| -> futures_util::future::BoxFuture<'static, Result<Vec<u8>, String>> {
            Box::pin(async move { Ok(format!("{time:?} {format:?}").into_bytes()) })
        };
        let heap = |time: Option<Duration>| -> futures_util::future::BoxFuture<'static, Result<Vec<u8>, String>> {
            Box::pin(async move { time.map(|time| format!("{time:?}").into_bytes()).ok_or("not now".to_owned()) })
        };
        let site = self::site(Profiles::default().with_cpu(cpu).with_heap(heap));
        check(&site, "/debug/pprof/heap", (500, "not now\n")).await;
        check(&site, "/debug/pprof/heap?seconds=5", (200, "5s")).await;
        check(&site, "/debug/pprof/profile", (200, "30s Protobuf")).await;
        check(&site, "/debug/pprof/profile?seconds=5&format=flamegraph", (200, "5s Flamegraph")).await;
        let seconds = "seconds: must be a whole number from 1 to 300\n";
        check(&site, "/debug/pprof/profile?seconds=0", (400, seconds)).await;
        check(&site, "/debug/pprof/profile?seconds=1e9", (400, seconds)).await;
        check(&site, "/debug/pprof/heap?seconds=301", (400, seconds)).await;
        check(&self::site(Profiles::off()), "/debug/pprof/heap", (404, "profiling is off\n")).await;
        let format = "format: must be \"proto\" or \"flamegraph\"\n";
        check(&site, "/debug/pprof/profile?format=pdf", (400, format)).await;
    }

    #[tokio::test]
    async fn metrics_are_served_over_a_socket() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        use crate::manager::{Lifecycle, Runnable};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let probes = crate::probes::Probes::new(listener, &site(Profiles::default()).manager, Profiles::default());
        let lifecycle = Lifecycle::new();
        let running = tokio::spawn(Box::new(probes).run(lifecycle.clone()));
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("# TYPE workqueue_depth gauge"),
            "{answer}"
        );
        assert_eq!(answer.contains("# TYPE process_open_fds gauge"), cfg!(target_os = "linux"), "{answer}");
        lifecycle.drain();
        running.await.unwrap().unwrap();
    }
}
