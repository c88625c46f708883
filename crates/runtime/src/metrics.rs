//! Figures for Prometheus, under the names that people have dashboards for: those of client-go's work queues and REST client, of
//! controller-runtime, of leader election, and the plain `controller_*` ones.
//!
//! Every label is bounded: names of controllers, queues and leases are those that the program gives, methods and codes are HTTP's,
//! and there is one series per pair of them.

mod controller;
mod leader;
mod queue;
mod rest;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use setpoint_api::metrics::{Exposition, Family};

use crate::queue::QueueStats;
pub use controller::{ControllerMetrics, Outcome};
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

type ReadQueue = Arc<dyn Fn() -> QueueStats + Send + Sync>;

/// All figures of a manager. Clones are the same registry.
///
/// ```
/// use setpoint_runtime::metrics::{Metrics, Outcome};
///
/// let metrics = Metrics::new();
/// metrics.controller("thermostat").reconciled(Outcome::Success, 0.004);
/// assert!(metrics.text().contains(r#"controller_runtime_reconcile_total{controller="thermostat",result="success"} 1"#));
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Registry>);

#[derive(Default)]
struct Registry {
    controllers: Family<String, controller::Figures>,
    leaders: Family<String, leader::Figures>,
    queues: Mutex<Vec<(String, ReadQueue)>>,
    rest: RestFigures,
    collectors: Mutex<Vec<Arc<dyn Collect>>>,
}

impl Metrics {
    /// A registry where nothing is counted yet.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// The figures of the controller with this name.
    pub fn controller(&self, name: &str) -> ControllerMetrics {
        ControllerMetrics(self.0.controllers.get(&name.to_owned()))
    }

    /// Shows the figures of a queue, by the name of the controller whose queue it is, in place of one with the same name.
    pub fn queue(&self, name: &str, read: impl Fn() -> QueueStats + Send + Sync + 'static) {
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|(other, _)| other != name);
        if queues.len() < COLLECTORS_MAX {
            queues.push((name.to_owned(), Arc::new(read)));
        }
    }

    /// Forgets the queue of a controller that was removed.
    pub fn remove_queue(&self, name: &str) {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| other != name);
    }

    /// The figures of the election for the lease with this name.
    pub fn leader(&self, name: &str) -> LeaderMetrics {
        LeaderMetrics(self.0.leaders.get(&name.to_owned()))
    }

    /// A client whose requests are counted.
    pub fn client(&self, inner: &kube::Client) -> kube::Client {
        rest::counted(inner, self.clone())
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
        controller::write(&self.0.controllers.all(), &mut out);
        queue::write(&self.queues(), &mut out);
        leader::write(&self.0.leaders.all(), &mut out);
        self.0.rest.write(&mut out);
        let collectors = self.0.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for collector in collectors {
            collector.collect(&mut out);
        }
        out.into_text()
    }

    fn queues(&self) -> Vec<(String, QueueStats)> {
        let queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<(String, QueueStats)> = queues.into_iter().map(|(name, read)| (name, read())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
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
        let thermostat = metrics.controller("thermostat");
        thermostat.workers_max(4);
        let working = thermostat.working();
        thermostat.reconciled(Outcome::Success, 0.003);
        thermostat.reconciled(Outcome::RequeueAfter, 0.2);
        thermostat.reconciled(Outcome::Error, 0.2);
        thermostat.reconciled(Outcome::Terminal, 0.2);
        thermostat.panicked();
        thermostat.timed_out();
        let text = metrics.text();
        let label = r#"controller="thermostat""#;
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"success\"}} 1"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"requeue_after\"}} 1"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"requeue\"}} 0"));
        check(&text, &format!("controller_runtime_reconcile_total{{{label},result=\"error\"}} 2"));
        check(&text, &format!("controller_runtime_reconcile_errors_total{{{label}}} 2"));
        check(&text, &format!("controller_reconcile_errors_total{{{label}}} 2"));
        check(&text, &format!("controller_runtime_terminal_reconcile_errors_total{{{label}}} 1"));
        check(&text, &format!("controller_runtime_reconcile_panics_total{{{label}}} 1"));
        check(&text, &format!("controller_runtime_reconcile_timeouts_total{{{label}}} 1"));
        check(&text, &format!("controller_runtime_max_concurrent_reconciles{{{label}}} 4"));
        check(&text, &format!("controller_runtime_active_workers{{{label}}} 1"));
        check(&text, &format!("controller_runtime_reconcile_time_seconds_bucket{{{label},le=\"0.005\"}} 1"));
        check(&text, &format!("controller_reconcile_time_seconds_count{{{label}}} 4"));
        drop(working);
        check(&metrics.text(), &format!("controller_runtime_active_workers{{{label}}} 0"));
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
        metrics.queue("thermostat", move || read.stats());
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
        drop(item);
        check(&metrics.text(), &format!("workqueue_work_duration_seconds_count{{{labels}}} 1"));
        metrics.remove_queue("thermostat");
        assert!(!metrics.text().contains("thermostat"));
    }

    #[test]
    fn a_family_begins_once() {
        let metrics = Metrics::new();
        for name in ["b", "a"] {
            metrics.controller(name).reconciled(Outcome::Success, 0.1);
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
