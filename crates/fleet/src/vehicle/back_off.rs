//! How long a vehicle waits after a failure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// After the first failure.
const FIRST_SECONDS: i64 = 30;

/// Never longer than this, but for the spread.
const LONGEST_SECONDS: i64 = 3600;

/// A fifth more or less, so that those who fail together don't come back together.
const SPREAD_PERMILLE: i64 = 200;

/// When to try again after so many failures in a row. The spread follows from the vehicle and the number, so that whoever asks gets the
/// same answer.
pub fn next_time(uid: &str, failures: i64, now: Timestamp) -> Timestamp {
    let doublings = u32::try_from(failures.clamp(1, 16) - 1).unwrap_or_default();
    let seconds = (FIRST_SECONDS << doublings).min(LONGEST_SECONDS);
    let spread = i64::try_from(hash(uid, failures) % (2 * SPREAD_PERMILLE as u64 + 1)).unwrap_or_default();
    let wait = SignedDuration::from_millis(seconds * (1000 - SPREAD_PERMILLE + spread));
    let then = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
    // Times of objects have no fractions.
    Timestamp::from_second(then.as_second()).unwrap_or(then)
}

/// FNV-1a: the same in every version and process.
fn hash(uid: &str, failures: i64) -> u64 {
    let bytes = uid.bytes().chain(failures.to_be_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_wait_up_to_an_hour() {
        let now = Timestamp::UNIX_EPOCH;
        for (failures, seconds) in
            [(0, 30), (1, 30), (2, 60), (3, 120), (7, 1920), (8, 3600), (9, 3600), (1_000_000, 3600)]
        {
            for uid in ["a", "b", "c"] {
                let waited = next_time(uid, failures, now).as_second();
                assert!((seconds * 4 / 5 - 1..=seconds * 6 / 5).contains(&waited), "{failures} of {uid}: {waited}");
                assert_eq!(next_time(uid, failures, now).as_second(), waited);
            }
        }
    }

    #[test]
    fn vehicles_that_fail_together_come_back_apart() {
        let waits: std::collections::BTreeSet<_> =
            (0..100).map(|n| next_time(&format!("vehicle-{n}"), 8, Timestamp::UNIX_EPOCH)).collect();
        assert!(waits.len() > 80, "{} different waits", waits.len());
    }
}
