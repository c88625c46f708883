//! How long a Job waits after failures before it makes new pods.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::member::Member;
use super::spec::Spec;
use crate::pod::Pod;

/// The wait after the first failure; each further one doubles it.
const FIRST: Duration = Duration::from_secs(10);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);

/// What is left to wait because pods failed after the last one that succeeded. It follows from the pods that are there, so a
/// controller that was started again waits as long as one that wasn't.
pub fn remaining<'a>(spec: &Spec<'_>, pods: impl Iterator<Item = &'a Pod> + Clone, now: Timestamp) -> Duration {
    let succeeded = pods.clone().filter(|pod| &*pod.status.phase == "Succeeded");
    let last_success = succeeded.map(Member::finished_at).max().unwrap_or(Timestamp::MIN);
    // A pod that lost its finalizer before it was deleted was not wanted any more: that is no failure.
    let is_unwanted = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some() && !pod.is_tracked();
    let failed = pods.filter(|pod| spec.is_failed(pod) && !is_unwanted(pod)).map(Member::finished_at);
    let failures: Vec<_> = failed.filter(|at| *at > last_success).collect();
    after(failures.len(), failures.into_iter().max().unwrap_or(Timestamp::MIN), now)
}

/// What is left to wait after so many failures, the last of them at a moment.
pub fn after(failures: usize, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(16);
    let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO);
    wait.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_wait_up_to_ten_minutes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (failures, passed, expected) in
            [(0, 0, 0), (1, 0, 10), (1, 4, 6), (1, 10, 0), (2, 0, 20), (3, 1, 39), (7, 0, 600), (1_000_000, 600, 0)]
        {
            let left = after(failures, at(1_000), at(1_000 + passed));
            assert_eq!(left, Duration::from_secs(expected), "{failures} {passed}");
        }
    }
}
