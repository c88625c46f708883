//! Several faults of one run.

use std::fmt;
use std::str::FromStr;

use setpoint_runtime::clock::Chance;

use crate::fault::{CODES, Fault};

/// Most faults that are drawn for one run: with more of them the process hardly gets to do anything in between.
const DRAWN_MAX: u64 = 4;

/// What goes wrong in one run: any number of faults, or none.
///
/// ```
/// use setpoint_testkit::{Fault, Plan};
///
/// let plan = Plan::of([Fault::CrashAfterWrite(3), Fault::FailCall(7, 409)]);
/// assert_eq!(plan.to_string(), "crash-after-write:3,fail-call:7:409");
/// assert_eq!("crash-after-write:3,fail-call:7:409".parse(), Ok(plan));
/// assert_eq!(Plan::drawn(7, 20), Plan::drawn(7, 20));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan(Vec<Fault>);

impl Plan {
    /// All goes well.
    pub fn clean() -> Plan {
        Plan::default()
    }

    /// These faults. Where two are for the same call or event, the first one strikes.
    pub fn of(faults: impl IntoIterator<Item = Fault>) -> Plan {
        Plan(faults.into_iter().collect())
    }

    /// One to four faults that follow from a seed, among the first `within` writes, calls and events of the process.
    pub fn drawn(seed: u64, within: usize) -> Plan {
        let chance = Chance::seeded(seed).fork("faults");
        let below = |bound: usize| usize::try_from(chance.below(bound as u64)).unwrap_or(0);
        let draw = |_| {
            let n = 1 + below(within.max(1));
            match below(7) {
                0 => Fault::CrashAfterWrite(n),
                1 => Fault::HideEvent(n),
                2 => Fault::StaleAtEvent(n),
                3 => Fault::FailCall(n, CODES[below(CODES.len())]),
                4 => Fault::LoseAnswer(n),
                5 => Fault::DelayCall(n),
                _ => Fault::LoseLease(n),
            }
        };
        Plan((0..=chance.below(DRAWN_MAX)).map(draw).collect())
    }

    /// One to four of these points, by a seed.
    pub(crate) fn drawn_from(seed: u64, points: &[Fault]) -> Plan {
        let chance = Chance::seeded(seed).fork("faults");
        let faults = 1 + chance.below(DRAWN_MAX);
        let draw = |_| points.get(usize::try_from(chance.below(points.len() as u64)).unwrap_or(0)).cloned();
        Plan((0..faults).filter_map(draw).collect())
    }

    /// The faults.
    pub fn faults(&self) -> &[Fault] {
        &self.0
    }
}

impl From<Fault> for Plan {
    fn from(fault: Fault) -> Plan {
        Plan(vec![fault])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again_and_all_kinds_come_up() {
        let plans: Vec<Plan> = (0..200).map(|seed| Plan::drawn(seed, 9)).collect();
        for (seed, plan) in plans.iter().enumerate() {
            assert_eq!(*plan, Plan::drawn(seed as u64, 9));
            assert!((1..=4).contains(&plan.faults().len()), "{plan}");
            assert_eq!(plan.to_string().parse().as_ref(), Ok(plan));
        }
        let kinds: std::collections::BTreeSet<String> = plans
            .iter()
            .flat_map(Plan::faults)
            .map(|fault| fault.to_string().split(':').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        assert!("crash-after-write:1,melt:2".parse::<Plan>().is_err());
    }
}
