//! A scenario, once clean, then once for every point at which something can go wrong.

use std::fmt;

use crate::Plan;
use crate::again::{self, Again};
use crate::cores::on_all_cores;
use crate::course::Course;
use crate::fault::Fault;
use crate::run::run;
use crate::scenario::{Limits, Scenario};

/// Failures that are told in full.
const TOLD_MAX: usize = 5;

/// What a series of runs came to.
#[derive(Debug)]
pub struct Report {
    /// The seed of all runs.
    pub seed: u64,
    /// How many points were tried, the run without faults among them.
    pub points: usize,
    /// The faults that were tried.
    pub tried: Vec<Fault>,
    /// Those that failed, and why.
    pub failures: Vec<(Option<Fault>, String)>,
    name: &'static str,
}

impl Report {
    /// Panics unless every point passed; the message has the line that runs the first one again.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failures.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} points fail (seed {})", self.name, self.failures.len(), self.points, self.seed)?;
        for (fault, why) in self.failures.iter().take(TOLD_MAX) {
            match fault {
                None => write!(f, "\nwithout any fault: {why}")?,
                Some(fault) => {
                    let again = Again { seed: self.seed, plan: fault.clone().into(), test: self.name };
                    write!(f, "\n{fault}: {why}\n  {again}")?;
                }
            }
        }
        match self.failures.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Runs a scenario with every fault, one at a time.
///
/// Of each run it checks that it comes to rest in the same state as the run without faults, that then nobody writes any
/// more, that the scenario's own rules hold, that it stops when asked and leaves nothing running.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::api::PostParams;
/// use setpoint_testkit::{ControlPlane, Process, Scenario, exhaust};
///
/// /// A process that makes sure of a namespace once.
/// struct MakesNamespace;
///
/// impl Scenario for MakesNamespace {
///     fn name(&self) -> &'static str {
///         "makes_namespace"
///     }
///
///     fn process(&self, process: Process) -> BoxFuture<'static, ()> {
///         Box::pin(async move {
///             let namespaces = kube::Api::<Namespace>::all(process.client.clone());
///             let shop = serde_json::from_value(serde_json::json!({"metadata": {"name": "shop"}})).unwrap();
///             while !matches!(namespaces.get_opt("shop").await, Ok(Some(_))) {
///                 let _ = namespaces.create(&PostParams::default(), &shop).await; // looked at again
///             }
///             process.stopped().await;
///         })
///     }
///
///     fn drive<'a>(&'a self, _: &'a ControlPlane) -> BoxFuture<'a, ()> {
///         Box::pin(async {})
///     }
/// }
///
/// let report = exhaust(&MakesNamespace);
/// report.assert();
/// assert!(report.points > 10);
/// ```
pub fn exhaust(scenario: &dyn Scenario) -> Report {
    exhaust_with(scenario, 0, Limits::default())
}

/// [`exhaust`] with a seed and limits of one's own.
///
/// # Panics
/// If `SETPOINT_SEED` or `SETPOINT_FAULT` is set to what is neither.
pub fn exhaust_with(scenario: &dyn Scenario, seed: u64, limits: Limits) -> Report {
    let seed = again::seed().unwrap_or(seed);
    let mut report = Report { seed, points: 1, tried: Vec::new(), failures: Vec::new(), name: scenario.name() };
    let clean = match run(scenario, seed, limits, &Course::new(Plan::clean())) {
        Ok(ended) => ended,
        Err(why) => {
            report.failures.push((None, why));
            return report;
        }
    };
    let points = match again::plan() {
        Some(plan) => plan.faults().to_vec(),
        None => choose(Fault::points(&clean.counts), limits),
    };
    report.points += points.len();
    let failed = on_all_cores(&points, |fault| {
        let course = Course::new(fault.clone().into());
        let why = run(scenario, seed, limits, &course).and_then(|ended| ended.must_be_like(&clean, scenario)).err();
        why.map(|why| (Some(fault.clone()), course.told(why)))
    });
    report.failures = failed;
    report.tried = points;
    report
}

/// The points that limits let through.
fn choose(points: Vec<Fault>, limits: Limits) -> Vec<Fault> {
    let is_kept =
        |point: &Fault| limits.every_crash && matches!(point, Fault::CrashAfterWrite(_) | Fault::CrashAfterWriteOf(..));
    let (mut chosen, others): (Vec<Fault>, Vec<Fault>) = points.into_iter().partition(is_kept);
    chosen.extend(spread(&others, limits.points));
    chosen
}

/// At most so many points, spread evenly over all.
fn spread(points: &[Fault], most: usize) -> Vec<Fault> {
    if points.len() <= most {
        return points.to_vec();
    }
    (0..most).map(|number| points[number * points.len() / most].clone()).collect()
}
