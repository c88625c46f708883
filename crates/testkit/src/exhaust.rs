//! A scenario, once clean, then once for every point at which something can go wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::fault::Fault;
use crate::plan::{Counts, Plan};
use crate::scenario::{Limits, Scenario};
use crate::state::{State, difference};
use crate::{ControlPlane, Process};

/// Names the one fault to run: `SETPOINT_FAULT=crash-after-write:3`.
const ONE_FAULT: &str = "SETPOINT_FAULT";

/// How long a process that died stays down.
const DOWN: Duration = Duration::from_secs(1);

/// How long the process sees the world as it was.
const STALE: Duration = Duration::from_secs(60);

/// What a series of runs came to.
#[derive(Debug)]
pub struct Report {
    /// The seed of all runs.
    pub seed: u64,
    /// How many points were tried.
    pub points: usize,
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
        for (fault, why) in self.failures.iter().take(5) {
            match fault {
                None => write!(f, "\nwithout any fault: {why}")?,
                Some(fault) => write!(
                    f,
                    "\n{fault}: {why}\n  run it again: {ONE_FAULT}={fault} cargo test {} -- --nocapture",
                    self.name
                )?,
            }
        }
        Ok(())
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
    let mut report = Report { seed, points: 1, failures: Vec::new(), name: scenario.name() };
    let clean = match run(scenario, seed, limits, None) {
        Ok(ended) => ended,
        Err(why) => {
            report.failures.push((None, why));
            return report;
        }
    };
    let Counts { writes, calls, events, leases } = clean.counts;
    let points = match std::env::var(ONE_FAULT) {
        Ok(text) => vec![text.parse().unwrap_or_else(|why| panic!("{ONE_FAULT}: {why}"))],
        Err(_) => Fault::points(writes, calls, events, leases),
    };
    report.points += points.len();
    report.failures = try_all(scenario, seed, limits, &points, &clean.state);
    report
}

/// Tries all points, on all cores: each has a world of its own.
fn try_all(
    scenario: &dyn Scenario,
    seed: u64,
    limits: Limits,
    points: &[Fault],
    wanted: &BTreeMap<String, Value>,
) -> Vec<(Option<Fault>, String)> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(fault) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let why = match run(scenario, seed, limits, Some(*fault)) {
                Ok(ended) => difference(wanted, &ended.state).map(|why| format!("it ends otherwise:\n  {why}")),
                Err(why) => Some(why),
            };
            if let Some(why) = why {
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

/// What is there when a run is over.
struct Ended {
    counts: Counts,
    state: BTreeMap<String, Value>,
}

/// One run. A scenario that panics has failed like one that says so.
fn run(scenario: &dyn Scenario, seed: u64, limits: Limits, fault: Option<Fault>) -> Result<Ended, String> {
    std::panic::catch_unwind(AssertUnwindSafe(|| run_through(scenario, seed, limits, fault))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", text.unwrap_or("without a word")))
    })
}

fn run_through(scenario: &dyn Scenario, seed: u64, limits: Limits, fault: Option<Fault>) -> Result<Ended, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let plane = ControlPlane::bounded(seed, limits.writes).await;
        scenario.prepare(&plane).await;
        let plan = Plan::new(fault);
        let before = alive_tasks().await;
        let (stop, stopping) = watch::channel(false);
        let (states, mut seen) = mpsc::unbounded_channel();
        let lives = live(scenario, &plane, &plan, &stopping, states);
        let story = async {
            let driven = tokio::time::timeout(limits.drive, scenario.drive(&plane)).await;
            driven.map_err(|_| format!("what users do did not end within {} s", limits.drive.as_secs()))?;
            plane.settle_within(limits).await?;
            if plan.freeze() {
                plan.crash();
                tokio::time::sleep(STALE).await;
                plan.thaw();
                plane.settle_within(limits).await?;
            }
            let counts = plan.counts();
            let writes = plane.writes();
            tokio::time::sleep(limits.still).await;
            if plane.writes() != writes {
                return Err(format!("{} writes after all was quiet", plane.writes() - writes));
            }
            stop.send_replace(true);
            Ok(counts)
        };
        let counts = together(lives, story, scenario.world(&plane), limits).await?;
        check(scenario, &plane, &mut seen)?;
        drop(seen);
        if fault.is_none() {
            let after = alive_tasks().await;
            if after > before {
                return Err(format!("{} tasks are still running after the process has stopped", after - before));
            }
        }
        Ok(Ended { counts, state: plane.state().comparable(|object| scenario.view(object)) })
    })
}

/// Runs the lives of the process beside the story and the rest of the world, and waits for the last one to end in order.
async fn together(
    lives: impl Future<Output = ()>,
    story: impl Future<Output = Result<Counts, String>>,
    world: impl Future<Output = ()>,
    limits: Limits,
) -> Result<Counts, String> {
    let told = async {
        let mut lives = std::pin::pin!(lives);
        let counts = tokio::select! {
            biased;
            () = &mut lives => return Err("the process ended although nobody asked it to".to_owned()),
            counts = story => counts?,
        };
        match tokio::time::timeout(limits.stop, lives).await {
            Ok(()) => Ok(counts),
            Err(_) => Err(format!("the process did not stop within {} s", limits.stop.as_secs())),
        }
    };
    let world = async {
        world.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        counts = told => counts,
        () = world => unreachable!("the world never ends"),
    }
}

/// One life of the process after the other, until it is asked to stop.
async fn live(
    scenario: &dyn Scenario,
    plane: &ControlPlane,
    plan: &Plan,
    stopping: &watch::Receiver<bool>,
    states: mpsc::UnboundedSender<State>,
) {
    let mut crashes = plan.crashes();
    loop {
        let number = *crashes.borrow_and_update();
        let (life, client) = plane.life(plan, states.clone());
        let process = Process {
            client,
            clock: plane.clock(),
            chance: plane.chance().fork(&format!("life {number}")),
            life,
            outside: plane.everything_outside(),
            stop: stopping.clone(),
        };
        tokio::select! {
            biased;
            // The sender lives as long as the plan.
            _ = crashes.changed() => {}
            () = scenario.process(process) => {
                if *stopping.borrow() {
                    return;
                }
            }
        }
        tokio::time::sleep(DOWN).await;
    }
}

/// The scenario's own rules, at every moment and at the end.
fn check(
    scenario: &dyn Scenario,
    plane: &ControlPlane,
    seen: &mut mpsc::UnboundedReceiver<State>,
) -> Result<(), String> {
    while let Ok(state) = seen.try_recv() {
        scenario.invariant(&state).map_err(|why| format!("a rule was broken on the way: {why}"))?;
    }
    scenario.outcome(&plane.state()).map_err(|why| format!("the end is wrong: {why}"))
}

/// How many tasks there are, once those that have ended are gone.
async fn alive_tasks() -> usize {
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
