//! A scenario with several faults at once, drawn from seeds.

use std::fmt;

use crate::Plan;
use crate::again::{self, Again};
use crate::cores::on_all_cores;
use crate::course::{Counts, Course};
use crate::fault::Fault;
use crate::run::run;
use crate::scenario::{Limits, Scenario};

/// Seeds that are told in full.
const TOLD_MAX: usize = 5;

/// What a storm came to.
#[derive(Debug)]
pub struct Storm {
    /// How many seeds were tried.
    pub seeds: usize,
    /// Those that failed: the seed, what went wrong, and what came of it.
    pub failures: Vec<(u64, Plan, String)>,
    name: &'static str,
}

impl Storm {
    /// Panics unless every seed passed; the message has the line that runs each one again.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failures.is_empty(), "{self}");
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} seeds fail", self.name, self.failures.len(), self.seeds)?;
        for (seed, plan, why) in self.failures.iter().take(TOLD_MAX) {
            let again = Again { seed: *seed, plan: plan.clone(), test: self.name };
            write!(f, "\nseed {seed}, {plan}: {why}\n  {again}")?;
        }
        match self.failures.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Runs a scenario with one to four faults at once for each of these seeds, and checks what [`exhaust`](crate::exhaust)
/// does: a process that recovers from one fault may not from a second one that comes meanwhile.
///
/// ```
/// # fn try_it(scenario: &dyn setpoint_testkit::Scenario) {
/// setpoint_testkit::storm(scenario, 0..50).assert();
/// # }
/// ```
pub fn storm(scenario: &dyn Scenario, seeds: impl IntoIterator<Item = u64>) -> Storm {
    storm_with(scenario, seeds, Limits::default())
}

/// [`storm`] with limits of one's own.
///
/// # Panics
/// If `SETPOINT_SEED` or `SETPOINT_FAULT` is set to what is neither.
pub fn storm_with(scenario: &dyn Scenario, seeds: impl IntoIterator<Item = u64>, limits: Limits) -> Storm {
    let seeds: Vec<u64> = again::seed().map_or_else(|| seeds.into_iter().collect(), |seed| vec![seed]);
    let asked = again::plan();
    let failures = on_all_cores(&seeds, |seed| {
        // What happens by chance differs between seeds, so each has a run of its own to be compared with.
        let clean = match run(scenario, *seed, limits, &Course::new(Plan::clean())) {
            Ok(clean) => clean,
            Err(why) => return Some((*seed, Plan::clean(), why)),
        };
        let draw = || Plan::drawn_from(*seed, &Fault::points(&longer(&clean.counts)));
        let plan = asked.clone().unwrap_or_else(draw);
        let course = Course::new(plan.clone());
        let why = run(scenario, *seed, limits, &course).and_then(|ended| ended.must_be_like(&clean, scenario)).err();
        why.map(|why| (*seed, plan, course.told(why)))
    });
    Storm { seeds: seeds.len(), failures, name: scenario.name() }
}

/// The counts of a run that is half as long again: whoever was struck does more, and may be struck at that.
fn longer(counts: &Counts) -> Counts {
    let more = |count: usize| count + count / 2;
    Counts {
        calls: more(counts.calls),
        writes: more(counts.writes),
        writes_of: counts.writes_of.iter().map(|(name, count)| (name.clone(), more(*count))).collect(),
        events: more(counts.events),
        ..counts.clone()
    }
}
