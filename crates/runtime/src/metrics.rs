//! Figures for Prometheus, under the names that people have dashboards for: those of client-go's work queues and REST client, of
//! controller-runtime, of leader election, and the plain `controller_*` ones.
//!
//! Every label is bounded: names of controllers, queues and leases are those that the program gives, methods and codes are HTTP's,
//! and there is one series per pair of them.

mod cache;
mod controller;
mod leader;
mod queue;
mod rest;
mod spans;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use setpoint_api::metrics::{Exposition, Family};

use crate::cache::Informers;
use crate::controller::ControllerStats;
use crate::queue::QueueStats;
use crate::throttle::{ClientOptions, Throttle};
pub use leader::LeaderMetrics;
use rest::RestFigures;
pub use setpoint_api::metrics::{Bounds, Counter, Gauge, Histogram};

/// Most collectors of a registry.
const COLLECTORS_MAX: usize = 1_000;

/// Writes figures of its own after those that [`Metrics`] knows. Its families must have names of their own.
pub trait Collect: Send + Sync {
    /// Writes whole families.
    fn collect(&self, out: &mut Exposition);
}

impl<F: Fn(&mut Exposition) + Send + Sync> Collect for F {
    fn collect(&self, out: &mut Exposition) {
        self(out);
    }
}

type Read = Arc<dyn Fn() -> (ControllerStats, QueueStats) + Send + Sync>;

type Named<T> = Vec<(String, T)>;

/// All figures of a manager. Clones are the same registry.
///
/// ```
/// use setpoint_runtime::metrics::Metrics;
///
/// let metrics = Metrics::new();
/// metrics.leader("managers").leading(true);
/// assert!(metrics.text().contains(r#"leader_election_master_status{name="managers"} 1"#));
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Registry>);

#[derive(Default)]
struct Registry {
    leaders: Family<String, leader::Figures>,
    sources: Mutex<Vec<(String, Read)>>,
    /// Apart from the rest: clients hold it, and what is read above holds clients.
    rest: Arc<RestFigures>,
    caches: Mutex<Option<Informers>>,
    collectors: Mutex<Vec<Arc<dyn Collect>>>,
}

impl Metrics {
    /// A registry where nothing is counted yet.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Shows the figures of a controller and its queue, in place of one with the same name.
    pub fn controller(&self, name: &str, read: impl Fn() -> (ControllerStats, QueueStats) + Send + Sync + 'static) {
        let mut sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|(other, _)| other != name);
        if sources.len() < COLLECTORS_MAX {
            sources.push((name.to_owned(), Arc::new(read)));
        }
    }

    /// Forgets a controller that was removed.
    pub fn remove_controller(&self, name: &str) {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| other != name);
    }

    /// The figures of the election for the lease with this name.
    pub fn leader(&self, name: &str) -> LeaderMetrics {
        LeaderMetrics(self.0.leaders.get(&name.to_owned()))
    }

    /// Shows the figures of shared caches, in place of those before.
    pub fn caches(&self, informers: Informers) {
        *self.0.caches.lock().unwrap_or_else(PoisonError::into_inner) = Some(informers);
    }

    /// A client whose requests are counted, and sent again if the server puts them off.
    pub fn client(&self, inner: &kube::Client) -> kube::Client {
        self.throttled(inner, &Throttle::new(&ClientOptions::default()))
    }

    /// A client whose requests are counted, wait for their turn, and are sent again if the server puts them off.
    pub(crate) fn throttled(&self, inner: &kube::Client, throttle: &Throttle) -> kube::Client {
        rest::counted(inner, Arc::clone(&self.0.rest), throttle.clone())
    }

    /// Says which API server requests go to, as `host:port`; the label `host` is empty until then. Said once.
    pub fn host(&self, host: &str) {
        self.0.rest.set_host(host);
    }

    /// Adds figures that the program counts itself. Says no once there are too many.
    pub fn add(&self, collector: impl Collect + 'static) -> bool {
        let mut collectors = self.0.collectors.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = collectors.len() < COLLECTORS_MAX;
        if fits {
            collectors.push(Arc::new(collector));
        }
        fits
    }

    /// All figures, as Prometheus reads them.
    pub fn text(&self) -> String {
        let mut out = Exposition::default();
        let (controllers, queues) = self.read();
        controller::write(&controllers, &mut out);
        queue::write(&queues, &mut out);
        leader::write(&self.0.leaders.all(), &mut out);
        self.0.rest.write(&mut out);
        let caches = self.0.caches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(caches) = caches {
            cache::write(&caches, &mut out);
        }
        let collectors = self.0.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for collector in collectors {
            collector.collect(&mut out);
        }
        out.into_text()
    }

    fn read(&self) -> (Named<ControllerStats>, Named<QueueStats>) {
        let mut sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.sort_by(|a, b| a.0.cmp(&b.0));
        let read = sources.into_iter().map(|(name, read)| (name, read()));
        read.map(|(name, (controller, queue))| ((name.clone(), controller), (name, queue))).unzip()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }

    #[test]
    fn reconciles_are_counted_by_result_under_both_names() {
        let metrics = Metrics::new();
        let stats = ControllerStats {
            success: 1,
            requeue_after: 2,
            errors: 3,
            terminal_errors: 1,
            active_workers: 1,
            max_concurrent: 4,
            ..ControllerStats::default()
        };
        metrics.controller("thermostat", move || (stats.clone(), QueueStats::default()));
        let text = metrics.text();
        let label = r#"controller="thermostat""#;
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"success\"}} 1"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"requeue_after\"}} 2"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"requeue\"}} 0"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"error\"}} 3"));
        check(&text, &format!("controller_runtime_reconcile_errors_total{{{label}}} 3"));
        check(&text, &format!("controller_reconcile_errors_total{{{label}}} 3"));
        check(&text, &format!("controller_runtime_terminal_reconcile_errors_total{{{label}}} 1"));
        check(&text, &format!("controller_runtime_max_concurrent_reconciles{{{label}}} 4"));
        check(&text, &format!("controller_runtime_active_workers{{{label}}} 1"));
        check(&text, &format!("controller_reconcile_time_seconds_count{{{label}}} 0"));
        check(&text, &format!("controller_runtime_reconcile_time_seconds_bucket{{{label},le=\"0.15\"}} 0"));
        check(&text, &format!("controller_runtime_reconcile_time_seconds_bucket{{{label},le=\"60\"}} 0"));
    }

    #[test]
    fn leadership_is_one_or_zero() {
        let metrics = Metrics::new();
        let leader = metrics.leader("managers");
        check(&metrics.text(), r#"leader_election_master_status{name="managers"} 0"#);
        leader.leading(true);
        leader.slow_paths(2);
        check(&metrics.text(), r#"leader_election_master_status{name="managers"} 1"#);
        check(&metrics.text(), r#"leader_election_slowpath_total{name="managers"} 2"#);
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_shown_under_all_their_names() {
        let metrics = Metrics::new();
        let queue = Arc::new(crate::queue::WorkQueue::<u8>::new(crate::queue::QueueOptions::default()));
        let read = Arc::clone(&queue);
        metrics.controller("thermostat", move || (ControllerStats::default(), read.stats()));
        queue.add(1);
        queue.add(2);
        let item = queue.try_get().unwrap();
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let text = metrics.text();
        let labels = r#"name="thermostat",controller="thermostat""#;
        check(&text, &format!("workqueue_depth{{{labels},priority=\"normal\"}} 1"));
        check(&text, r#"controller_workqueue_depth{controller="thermostat"} 1"#);
        check(&text, r#"controller_workqueue_adds_total{controller="thermostat"} 2"#);
        check(&text, r#"controller_workqueue_retries_total{controller="thermostat"} 0"#);
        check(&text, &format!("workqueue_adds_total{{{labels}}} 2"));
        check(&text, &format!("workqueue_unfinished_work_seconds{{{labels}}} 2"));
        check(&text, &format!("workqueue_longest_running_processor_seconds{{{labels}}} 2"));
        check(&text, &format!("workqueue_queue_duration_seconds_bucket{{{labels},le=\"0.00000001\"}} 1"));
        check(&text, &format!("workqueue_queue_duration_seconds_bucket{{{labels},le=\"1000\"}} 1"));
        drop(item);
        check(&metrics.text(), &format!("workqueue_work_duration_seconds_count{{{labels}}} 1"));
        metrics.remove_controller("thermostat");
        assert!(!metrics.text().contains("thermostat"));
    }

    #[test]
    fn a_family_begins_once() {
        let metrics = Metrics::new();
        for name in ["b", "a"] {
            metrics.controller(name, Default::default);
        }
        assert!(metrics.add(|out: &mut Exposition| {
            out.family("mine", "gauge", "Mine.");
            out.sample("", &[], 7);
        }));
        let text = metrics.text();
        check(&text, "mine 7");
        let mut begun: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = begun.len();
        begun.sort_unstable();
        begun.dedup();
        assert_eq!(begun.len(), all, "{text}");
    }
}
