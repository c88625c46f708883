//! How containers end that are asked to: what comes before, how long they are waited for, and who has to go first.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::command::End;
use super::container::KILLED;
use super::pod::Pod;

/// Every container is left so long to end, whatever came before.
const LEAST: Duration = Duration::from_secs(2);

/// The grace of a pod that names none.
const GRACE: i64 = 30;

/// That the containers of a pod are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub at: Timestamp,
    /// How long all of it may take.
    pub grace: Duration,
}

impl Stop {
    /// What its deletion asks of a pod.
    pub fn by_deletion(pod: &Pod) -> Option<Stop> {
        let end = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = pod.metadata.deletion_grace_period_seconds;
        let at = end.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(end);
        Some(Stop { at, grace: Duration::from_secs(u64::try_from(grace).unwrap_or_default()) })
    }

    /// What its deadline asks of a pod, now or later.
    pub fn by_deadline(pod: &Pod, now: Timestamp) -> Option<Stop> {
        let seconds = pod.spec.active_deadline_seconds?;
        let begun = pod.status.start_time.as_ref().map_or(now, |time| time.0);
        let at = begun.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        Some(Stop { at, grace: grace(pod) })
    }
}

/// How long the containers of a pod may take to end, if nobody says otherwise.
pub fn grace(pod: &Pod) -> Duration {
    let seconds = pod.spec.termination_grace_period_seconds.unwrap_or(GRACE);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// How a container ends that is asked to: first its hook runs, and others may have to end (`turn`), then it is told, and in the end it is killed.
pub fn end(on_stop: Option<End>, hook: Duration, turn: Duration, grace: Duration) -> End {
    let told = hook.max(turn).min(grace);
    let left = grace.saturating_sub(told).max(LEAST);
    match on_stop {
        Some(end) if end.after <= left => End { after: told.saturating_add(end.after), code: end.code },
        _ => End { after: told.saturating_add(left), code: KILLED },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_and_others_take_of_the_grace_and_two_seconds_are_left() {
        let at_once = Some(End { after: Duration::ZERO, code: 0 });
        let slowly = Some(End { after: Duration::from_secs(4), code: 1 });
        for (on_stop, hook, turn, grace, expected) in [
            (at_once, 0, 0, 30, (0, 0)),
            (None, 0, 0, 30, (30, 137)),
            (None, 0, 0, 1, (2, 137)),
            (at_once, 5, 0, 20, (5, 0)),
            (None, 5, 0, 20, (20, 137)),
            (None, 60, 0, 20, (22, 137)),
            (slowly, 5, 7, 20, (11, 1)),
            (slowly, 0, 18, 20, (20, 137)),
        ] {
            let seconds = Duration::from_secs;
            let found = end(on_stop, seconds(hook), seconds(turn), seconds(grace));
            assert_eq!((found.after.as_secs(), found.code), expected, "{on_stop:?} {hook} {turn} {grace}");
        }
    }
}
