//! Between which moments a write was made, by all that tells of it: entries to the second, and runs of controllers to the nanosecond.

use serde_json::Value;

use super::{list, moment, text};

/// Seconds since 1970, and the part of the next one.
pub type Instant = (i64, u32);

/// The end of a second.
pub const LAST_PART: u32 = 999_999_999;

const SECOND: u32 = 1_000_000_000;

/// What is known of when versions were made. Versions of all objects are numbers of one row.
#[derive(Default)]
pub struct Known {
    /// From this version on, nothing was written before this.
    lower: Vec<(u64, Instant)>,
    /// Up to this version, everything was written by then.
    upper: Vec<(u64, Instant)>,
    /// A run saw a version when it began.
    seen: Vec<(u64, Instant)>,
}

impl Known {
    /// What runs of controllers tell. `is_own` tells runs for the object itself from others.
    pub fn of_runs(traces: &Value, is_own: impl Fn(&str, &Value) -> bool) -> Known {
        let mut known = Known::default();
        for (controller, run) in runs(traces) {
            let Some(began) = moment(&run["started"]) else { continue };
            for version in accesses(run, "writes").filter_map(|write| version(&write["resourceVersion"])) {
                known.lower.push((version, began));
                known.upper.push((version, later(began, run["tookSeconds"].as_f64().unwrap_or(0.0))));
            }
            if let Some(version) = version(&run["objectVersion"]).filter(|_| is_own(controller, run)) {
                known.lower.push((version + 1, began));
                known.upper.push((version, began));
                known.seen.push((version, began));
            }
        }
        known
    }

    /// A version was made within this second.
    pub fn within(&mut self, version: u64, second: i64) {
        self.upper.push((version, (second, LAST_PART)));
    }

    /// What follows for each version. A write that changed nothing is answered with an older version, and a cache that is behind shows one:
    /// what says that something was later than an end that is known is not believed.
    pub fn bounds(mut self) -> Bounds {
        let ends = Row::of(self.upper, Row::DOWN);
        self.lower.retain(|(from, at)| ends.at(*from).is_none_or(|(_, by)| by >= *at));
        Bounds { earliest: Row::of(self.lower, Row::UP), seen: Row::of(self.seen, Row::DOWN) }
    }
}

/// Between which moments versions were made.
pub struct Bounds {
    earliest: Row,
    seen: Row,
}

impl Bounds {
    /// Not before this was a version made.
    pub fn earliest(&self, version: u64) -> Option<Instant> {
        self.earliest.at(version).map(|(_, at)| at)
    }

    /// When a run first saw this version, or which younger one.
    pub fn seen(&self, version: u64) -> Option<(u64, Instant)> {
        self.seen.at(version)
    }
}

/// Moments by version: the latest up to each, or the earliest from each on.
struct Row {
    entries: Vec<(u64, (u64, Instant))>,
    is_up: bool,
}

impl Row {
    const UP: bool = true;
    const DOWN: bool = false;

    fn of(mut known: Vec<(u64, Instant)>, is_up: bool) -> Row {
        known.sort_unstable();
        if !is_up {
            known.reverse();
        }
        let mut entries: Vec<(u64, (u64, Instant))> = Vec::with_capacity(known.len());
        for (version, at) in known {
            let best = entries.last().map(|(_, best)| *best);
            let stays = best.filter(|(_, best)| if is_up { *best >= at } else { *best < at });
            entries.push((version, stays.unwrap_or((version, at))));
        }
        Row { entries, is_up }
    }

    fn at(&self, version: u64) -> Option<(u64, Instant)> {
        let is_before =
            |entry: &(u64, (u64, Instant))| if self.is_up { entry.0 <= version } else { entry.0 >= version };
        let after = self.entries.partition_point(is_before);
        self.entries.get(after.checked_sub(1)?).map(|(_, best)| *best)
    }
}

/// All runs, each with its controller.
pub fn runs(traces: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = traces.as_object().into_iter().flatten();
    all.flat_map(|(controller, runs)| list(runs).map(move |run| (controller.as_str(), run)))
}

/// What a run read or wrote.
pub fn accesses<'a>(run: &'a Value, what: &str) -> impl Iterator<Item = &'a Value> {
    list(&run[what])
}

/// The number of a version.
pub fn version(value: &Value) -> Option<u64> {
    text(value).parse().ok()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn later((seconds, part): Instant, by: f64) -> Instant {
    let parts = u64::from(part) + (by.max(0.0) * f64::from(SECOND)) as u64;
    let whole = i64::try_from(parts / u64::from(SECOND)).unwrap_or(0);
    (seconds + whole, u32::try_from(parts % u64::from(SECOND)).unwrap_or(0))
}
