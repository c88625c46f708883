//! What the status of a firmware should say.

use std::collections::BTreeMap;

use crate::kinds::FirmwareStatus;

/// How vehicles fare with a firmware.
#[derive(Clone, Debug, Default)]
pub struct Fare {
    /// How many run it.
    pub deployed: i64,
    /// How many should run it and have given up.
    pub failed: i64,
    /// How many of them were unwell with it, by hardware.
    pub unhealthy: BTreeMap<Box<str>, i64>,
}

/// Counts follow vehicles; a quarantine stays when the vehicles that were the reason have gone on to something else, until somebody lifts it.
pub fn plan(status: &FirmwareStatus, quarantine_after: i64, lifted: &str, fare: &Fare) -> FirmwareStatus {
    let is_lifted = |hardware: &String| lifted.split(',').map(str::trim).any(|named| named == "*" || named == hardware);
    let unwell = fare.unhealthy.iter().filter(|(_, count)| **count >= quarantine_after.max(1));
    let mut quarantined_for = status.quarantined_for.clone();
    quarantined_for.extend(unwell.map(|(hardware, _)| hardware.to_string()));
    quarantined_for.retain(|hardware| !is_lifted(hardware));
    quarantined_for.sort_unstable();
    quarantined_for.dedup();
    FirmwareStatus { deployed: fare.deployed, failed: fare.failed, quarantined_for }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(known: &[&str], after: i64, unhealthy: &[(&str, i64)], expected: &[&str]) {
        check_lifted("", known, after, unhealthy, expected);
    }

    fn check_lifted(lifted: &str, known: &[&str], after: i64, unhealthy: &[(&str, i64)], expected: &[&str]) {
        let quarantined_for = known.iter().map(|hardware| (*hardware).to_owned()).collect();
        let status = FirmwareStatus { deployed: 1, failed: 1, quarantined_for };
        let unhealthy = unhealthy.iter().map(|(hardware, count)| ((*hardware).into(), *count)).collect();
        let planned = plan(&status, after, lifted, &Fare { deployed: 7, failed: 3, unhealthy });
        assert_eq!((planned.deployed, planned.failed), (7, 3));
        assert_eq!(planned.quarantined_for, expected);
    }

    #[test]
    fn hardware_that_is_unwell_is_kept_away_and_stays_so() {
        check(&[], 1, &[], &[]);
        check(&[], 1, &[("b", 1), ("a", 1)], &["a", "b"]);
        check(&["a"], 1, &[], &["a"]);
        check(&["a"], 1, &[("a", 4)], &["a"]);
        check(&[], 3, &[("a", 2), ("b", 3)], &["b"]);
    }

    #[test]
    fn a_quarantine_is_lifted_by_name() {
        for (lifted, expected) in
            [("", &["a", "b", "c"][..]), ("b", &["a", "c"]), ("a, c", &["b"]), ("x", &["a", "b", "c"]), ("*", &[])]
        {
            check_lifted(lifted, &["a", "b"], 1, &[("b", 4), ("c", 1)], expected);
        }
    }
}
