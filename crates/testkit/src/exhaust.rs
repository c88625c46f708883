//! A scenario, once clean, then once for every point at which something can go wrong.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fault::Fault;
use crate::picture::Picture;
use crate::plan::{Counts, Plan};
use crate::run::run;
use crate::scenario::{Limits, Scenario};

/// Names the one fault to run: `SETPOINT_FAULT=crash-after-write:3`.
const ONE_FAULT: &str = "SETPOINT_FAULT";

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
        // Cargo says whose test it is.
        let package = std::env::var("CARGO_PKG_NAME").map_or(String::new(), |package| format!("-p {package} "));
        for (fault, why) in self.failures.iter().take(TOLD_MAX) {
            match fault {
                None => write!(f, "\nwithout any fault: {why}")?,
                Some(fault) => write!(
                    f,
                    "\n{fault}: {why}\n  run it again: {ONE_FAULT}={fault} cargo test {package}{} -- --nocapture",
                    self.name
                )?,
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
/// more, that the scenario's own rules hold, and of the clean one that it stops when asked and leaves nothing running.
pub fn exhaust(scenario: &dyn Scenario) -> Report {
    exhaust_with(scenario, 0, Limits::default())
}

/// [`exhaust`] with a seed and limits of one's own.
pub fn exhaust_with(scenario: &dyn Scenario, seed: u64, limits: Limits) -> Report {
    let mut report = Report { seed, points: 1, tried: Vec::new(), failures: Vec::new(), name: scenario.name() };
    let clean = match run(scenario, seed, limits, &Plan::new(None)) {
        Ok(ended) => ended,
        Err(why) => {
            report.failures.push((None, why));
            return report;
        }
    };
    let Counts { writes, calls, events, leases } = clean.counts;
    let points = match std::env::var(ONE_FAULT) {
        Ok(text) => vec![text.parse().unwrap_or_else(|why| panic!("{ONE_FAULT}: {why}"))],
        Err(_) => spread(Fault::points(writes, calls, events, leases), limits.points),
    };
    report.points += points.len();
    report.failures = try_all(scenario, seed, limits, &points, &clean.picture);
    report.tried = points;
    report
}

/// At most so many points, spread evenly over all.
fn spread(points: Vec<Fault>, most: usize) -> Vec<Fault> {
    if points.len() <= most {
        return points;
    }
    (0..most).map(|number| points[number * points.len() / most]).collect()
}

/// Tries all points, on all cores: each has a world of its own.
fn try_all(
    scenario: &dyn Scenario,
    seed: u64,
    limits: Limits,
    points: &[Fault],
    wanted: &Picture,
) -> Vec<(Option<Fault>, String)> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(fault) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let plan = Plan::new(Some(*fault));
            let why = match run(scenario, seed, limits, &plan) {
                Ok(ended) => wanted.difference(&ended.picture).map(|why| format!("it ends otherwise:\n  {why}")),
                Err(why) => Some(why),
            };
            if let Some(mut why) = why {
                why.extend(plan.struck().map(|what| format!("\n  it struck {what}")));
                failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((Some(*fault), why));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut failures: Vec<(Option<Fault>, String)> = failures.into_inner().unwrap_or_default();
    failures.sort_by_key(|(fault, _)| points.iter().position(|point| Some(*point) == *fault));
    failures
}
