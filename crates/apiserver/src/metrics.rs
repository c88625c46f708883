//! Figures for Prometheus, under upstream's names so that existing dashboards and alerts work.
//!
//! Every label has few values: groups, versions and resources are those of kinds that are served, the rest is from fixed
//! lists, and what is in none of them is counted as `other`.

mod duration;
mod observation;
mod process;
mod series;
mod storage;

use std::sync::Arc;

use http::{Response, StatusCode};
use setpoint_api::metrics::{Counter, Family, Gauge, Held, Histogram, MEDIA_TYPE};

pub use observation::Observation;
pub use series::{RequestLabels, Scope};
pub use setpoint_api::metrics::Exposition;

use crate::answer;
use crate::body::Body;
use crate::registry::Served;
use crate::server::Inner;
use duration::Seconds;

/// What is counted of requests. Recording takes a shared lock and some atomic additions.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Family<RequestLabels, Requests>,
    watch_events: Family<RequestLabels, Counter>,
    in_flight: [Arc<Gauge>; 2],
}

/// What is known of the requests with the same labels.
#[derive(Debug, Default)]
struct Requests {
    durations: Histogram<Seconds>,
    codes: Family<u16, Counter>,
    /// Requests that are still running, of those that run long: watches, logs, connections.
    long_running: Arc<Gauge>,
}

impl Metrics {
    /// A request was answered.
    pub fn request(&self, labels: &RequestLabels, code: u16, seconds: f64) {
        let requests = self.requests.get(labels);
        requests.codes.get(&code).add(1);
        // How long a watch was open says nothing about how fast we are.
        if !labels.is_long_running() {
            requests.durations.record(seconds);
        }
    }

    /// A request is being answered; drop the result when it is.
    pub fn in_flight(&self, mutating: bool) -> Held {
        self.in_flight[usize::from(mutating)].hold()
    }

    /// A watch, log or connection is open; drop the result when it ends.
    pub fn long_running(&self, labels: &RequestLabels) -> Held {
        self.requests.get(labels).long_running.hold()
    }

    /// Counts the events that are sent to watchers of this kind.
    pub fn watch_events(&self, served: &Served) -> Arc<Counter> {
        self.watch_events.get(&RequestLabels::of_kind(served))
    }

    /// Writes all figures.
    pub fn write(&self, out: &mut Exposition) {
        self.write_requests(out);
        out.family(
            "apiserver_current_inflight_requests",
            "gauge",
            "Requests that are being answered, by kind of request.",
        );
        for (kind, gauge) in ["readOnly", "mutating"].iter().zip(&self.in_flight) {
            out.sample("", &[("request_kind", kind)], gauge.value());
        }
        out.family("apiserver_watch_events_total", "counter", "Events sent to watchers.");
        for (labels, counter) in self.watch_events.all() {
            out.sample("", &labels.of_resource(), counter.value());
        }
    }

    fn write_requests(&self, out: &mut Exposition) {
        let all = self.requests.all();
        out.family("apiserver_request_total", "counter", "Requests by what they asked for and how they were answered.");
        for (labels, requests) in &all {
            for (code, counter) in requests.codes.all() {
                let code = code.to_string();
                out.sample("", &[&labels.all()[..], &[("code", &code)]].concat(), counter.value());
            }
        }
        out.family("apiserver_request_duration_seconds", "histogram", "Seconds until requests were answered.");
        for (labels, requests) in &all {
            requests.durations.write(&labels.all(), out);
        }
        out.family("apiserver_longrunning_requests", "gauge", "Open watches, logs and connections.");
        for (labels, requests) in all.iter().filter(|(labels, _)| labels.is_long_running()) {
            out.sample("", &labels.without_dry_run(), requests.long_running.value());
        }
    }
}

/// `/metrics`.
pub(crate) fn answer(requests: Option<&Metrics>, server: &Inner) -> Response<Body> {
    let mut out = Exposition::default();
    if let Some(requests) = requests {
        requests.write(&mut out);
    }
    server.flow.write(&mut out);
    storage::write(&server.store, &mut out);
    server.audit.get().into_iter().for_each(|audit| audit.write_figures(&mut out));
    process::write(&mut out);
    let beside = server.beside.get().map(|figures| figures()).unwrap_or_default();
    let mut response = answer::text(StatusCode::OK, out.into_text() + &beside);
    let media = http::HeaderValue::from_static(MEDIA_TYPE);
    response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn written(metrics: &Metrics) -> String {
        let mut out = Exposition::default();
        metrics.write(&mut out);
        out.into_text()
    }

    fn check(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }

    #[test]
    fn requests_are_counted_by_label_and_code() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let metrics = Metrics::default();
        let labels = RequestLabels::new(Some(pods), "list", None, Scope::Namespace);
        metrics.request(&labels, 200, 0.01);
        metrics.request(&labels, 200, 0.3);
        metrics.request(&labels, 410, 100.0);
        let text = written(&metrics);
        let labels = r#"verb="LIST",dry_run="",group="",version="v1",resource="pods",subresource="",scope="namespace",component="apiserver""#;
        check(&text, &format!("apiserver_request_total{{{labels},code=\"200\"}} 2"));
        check(&text, &format!("apiserver_request_total{{{labels},code=\"410\"}} 1"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 0"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.4\"}} 2"));
        check(&text, &format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 3"));
        check(&text, &format!("apiserver_request_duration_seconds_count{{{labels}}} 3"));
    }

    #[test]
    fn what_is_unknown_is_counted_as_other() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let metrics = Metrics::default();
        for at in 0..100 {
            let odd = format!("part{at}");
            metrics.request(&RequestLabels::new(Some(pods), &odd, Some(&odd), Scope::Resource), 404, 0.0);
        }
        let text = written(&metrics);
        assert_eq!(text.lines().filter(|line| line.starts_with("apiserver_request_total{")).count(), 1);
        assert!(text.contains(r#"verb="other""#) && text.contains(r#"subresource="other""#), "{text}");
    }

    #[test]
    fn what_runs_is_counted_until_it_ends() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").unwrap();
        let metrics = Metrics::default();
        let labels = RequestLabels::new(Some(pods), "watch", None, Scope::Cluster);
        let (watch, write) = (metrics.long_running(&labels), metrics.in_flight(true));
        metrics.watch_events(pods).add(3);
        let text = written(&metrics);
        let open = r#"apiserver_longrunning_requests{verb="WATCH",group="",version="v1",resource="pods",subresource="",scope="cluster",component="apiserver"}"#;
        check(&text, &format!("{open} 1"));
        check(&text, r#"apiserver_current_inflight_requests{request_kind="mutating"} 1"#);
        check(&text, r#"apiserver_watch_events_total{group="",version="v1",resource="pods"} 3"#);
        drop((watch, write));
        let text = written(&metrics);
        check(&text, &format!("{open} 0"));
        check(&text, r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#);
    }
}
