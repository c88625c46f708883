//! One run of a scenario, in a world of its own.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use setpoint_api::Revision;
use tokio::sync::{mpsc, watch};

use crate::course::{Counts, Course};
use crate::scenario::{Limits, Scenario};
use crate::state::State;
use crate::{ControlPlane, Process};

/// How long a process that died stays down.
const DOWN: Duration = Duration::from_secs(1);

/// A run with a fault is watched for so small a share of the time that the one without is: there are hundreds of them, and
/// who writes later than that does so without a fault, too.
const STRUCK_SHARE: u32 = 6;

/// How long the process sees the world as it was.
const STALE: Duration = Duration::from_secs(60);

/// What is there when a run is over.
pub(crate) struct Ended {
    pub(crate) counts: Counts,
    state: State,
    /// Until when all runs of the same seed were the same.
    begun: Revision,
}

impl Ended {
    /// An error unless it ended as the other did, of the same scenario and the same seed.
    pub(crate) fn must_be_like(&self, wanted: &Ended, scenario: &dyn Scenario) -> Result<(), String> {
        let [wanted, got] = wanted.state.pictures(&self.state, self.begun, &|object| scenario.view(object));
        match wanted.difference(&got) {
            Some(difference) => Err(format!("it ends otherwise:\n  {difference}")),
            None => Ok(()),
        }
    }
}

/// One run. A scenario that panics has failed like one that says so.
pub(crate) fn run(scenario: &dyn Scenario, seed: u64, limits: Limits, course: &Course) -> Result<Ended, String> {
    std::panic::catch_unwind(AssertUnwindSafe(|| run_through(scenario, seed, limits, course))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", text.unwrap_or("without a word")))
    })
}

fn run_through(scenario: &dyn Scenario, seed: u64, limits: Limits, course: &Course) -> Result<Ended, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(play(scenario, seed, limits, course))
}

async fn play(scenario: &dyn Scenario, seed: u64, limits: Limits, course: &Course) -> Result<Ended, String> {
    let plane = ControlPlane::bounded(seed, limits).await;
    tokio::select! {
        biased;
        why = plane.spins() => Err(why),
        ended = play_on(&plane, scenario, limits, course) => ended,
    }
}

async fn play_on(
    plane: &ControlPlane,
    scenario: &dyn Scenario,
    limits: Limits,
    course: &Course,
) -> Result<Ended, String> {
    scenario.prepare(plane).await;
    let before = AtomicUsize::new(alive_tasks().await);
    let (stop, stopping) = watch::channel(false);
    let (states, mut seen) = mpsc::unbounded_channel();
    let start = |process| scenario.process(process);
    let lives = live(&start, plane, course, &stopping, &states, &before);
    let story = async {
        let driven = tokio::time::timeout(limits.drive, scenario.drive(plane)).await;
        driven.map_err(|_| format!("what users do did not end within {} s", limits.drive.as_secs()))?;
        plane.settle_within(limits).await?;
        while be_stale(course).await {
            plane.settle_within(limits).await?;
        }
        if course.has_just_struck(limits.quiet) {
            // Who looks again and again is hit also when all is done: what comes of it takes its time.
            plane.settle_within(limits).await?;
        }
        let counts = course.counts();
        let (writes, words) = (plane.writes(), plane.words());
        let still = if course.is_clean() { limits.still } else { limits.still / STRUCK_SHARE };
        tokio::time::sleep(still).await;
        if plane.writes() != writes {
            return Err(format!("writes after all was quiet: {}", plane.writes() - writes));
        }
        let words = plane.words() - words;
        if words > limits.words {
            return Err(format!("{words} Events are written although all is quiet"));
        }
        stop.send_replace(true);
        Ok(counts)
    };
    let counts = together(lives, story, plane.turns("the world", scenario.world(plane)), limits).await?;
    check(scenario, plane, &mut seen)?;
    drop(seen);
    let (before, after) = (before.into_inner(), alive_tasks().await);
    if after > before {
        return Err(format!("tasks that are still running after the process has stopped: {}", after - before));
    }
    Ok(Ended { counts, state: plane.state(), begun: plane.begun() })
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

/// Starts the process again and shows it the world of the next chosen event for a while; false if there is none.
pub(crate) async fn be_stale(course: &Course) -> bool {
    let is_stale = course.freeze();
    if is_stale {
        course.crash();
        tokio::time::sleep(STALE).await;
        course.thaw();
    }
    is_stale
}

/// One life of the process after the other, until it is asked to stop. `tasks` is how many there were before the last of
/// them began: what is left of one that died is nobody's fault.
pub(crate) async fn live(
    start: &(dyn Fn(Process) -> BoxFuture<'static, ()> + Sync),
    plane: &ControlPlane,
    course: &Course,
    stopping: &watch::Receiver<bool>,
    states: &mpsc::UnboundedSender<State>,
    tasks: &AtomicUsize,
) {
    let mut crashes = course.crashes();
    loop {
        let number = *crashes.borrow_and_update();
        let (life, client) = plane.life(course, states.clone());
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
            // The sender lives as long as the course.
            _ = crashes.changed() => {}
            () = plane.turns("the process", start(process)) => {
                if *stopping.borrow() {
                    return;
                }
            }
        }
        tokio::time::sleep(DOWN).await;
        tasks.store(tokio::runtime::Handle::current().metrics().num_alive_tasks(), Ordering::Relaxed);
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
