//! How many nodes of a zone are down, and how quickly their pods may be sent away.
//!
//! When most of a zone is down, the fault is likely between us and it, not in the nodes. When everything is down, it is likely ours.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::{Informer, Snapshot};

use crate::node::Node;

/// Nodes per second whose pods are sent away, in a zone as it should be.
const RATE: f64 = 0.1;

/// The same in a large zone of which most is down; in a small one nothing is sent away.
const REDUCED_RATE: f64 = 0.01;

/// A zone of more nodes than this is large.
const LARGE_ZONE: usize = 50;

/// When this share of a zone is down, most of it is.
const MOSTLY_DOWN: f64 = 0.55;

/// Nodes with this label don't count.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The index of nodes by zone and whether they are ready.
const BY_ZONE: &str = "zone";

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    Normal,
    MostlyDown { is_large: bool },
    Down,
}

impl Zone {
    /// The state of a zone with so many nodes that are ready, and that aren't.
    #[must_use]
    pub fn of(ready: usize, not_ready: usize) -> Zone {
        let size = ready + not_ready;
        #[expect(clippy::cast_precision_loss, reason = "there are fewer nodes than 2^52")]
        let share = not_ready as f64 / size.max(1) as f64;
        match (ready, not_ready) {
            (0, 1..) => Zone::Down,
            (_, 3..) if share >= MOSTLY_DOWN => Zone::MostlyDown { is_large: size > LARGE_ZONE },
            _ => Zone::Normal,
        }
    }

    /// Nodes per second whose pods may be sent away; none at all if it is zero.
    fn rate(self) -> f64 {
        match self {
            Zone::Normal | Zone::Down => RATE,
            Zone::MostlyDown { is_large: true } => REDUCED_RATE,
            Zone::MostlyDown { is_large: false } => 0.0,
        }
    }
}

/// All zones at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones(BTreeMap<String, Zone>);

impl Zones {
    /// The zones of these nodes.
    pub fn of(nodes: &Snapshot<Node>) -> Zones {
        let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for value in nodes.index_values(BY_ZONE) {
            if let Some((zone, is_ready)) =
                value.strip_prefix('+').map(|zone| (zone, 1)).or(value.strip_prefix('-').map(|zone| (zone, 0)))
            {
                counts.entry(zone).or_default()[is_ready] += nodes.index_count(BY_ZONE, value);
            }
        }
        Zones(counts.into_iter().map(|(zone, [not, ready])| (zone.to_owned(), Zone::of(ready, not))).collect())
    }

    /// Whether no node anywhere is ready: then the fault is likely ours, and nothing is sent away.
    #[must_use]
    pub fn all_down(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|zone| *zone == Zone::Down)
    }

    fn get(&self, zone: &str) -> Zone {
        self.0.get(zone).copied().unwrap_or(Zone::Normal)
    }
}

/// Adds the index that zones are counted by.
pub fn index(nodes: &Informer<Node>) {
    nodes.add_index(BY_ZONE, |node| match node.metadata.labels.get(EXCLUDED) {
        Some(_) => Vec::new(),
        None => vec![format!("{}{}", if node.is_ready() { '+' } else { '-' }, node.zone())],
    });
}

/// Lets nodes through at the rate of their zone.
#[derive(Default)]
pub struct Gate(Mutex<BTreeMap<String, Bucket>>);

/// Whether the pods of a node may be sent away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Permit {
    Now,
    /// Ask again after so long.
    After(Duration),
    /// Not before its zone is otherwise.
    Never,
}

impl Gate {
    /// Asks for one node of a zone.
    pub fn ask(&self, zones: &Zones, zone: &str, now: Timestamp) -> Permit {
        if zones.all_down() {
            return Permit::Never;
        }
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(zone.to_owned()).or_insert(Bucket { share: 1.0, at: now });
        bucket.take(zones.get(zone).rate(), now)
    }
}

/// A bucket that holds one node.
struct Bucket {
    /// How full it was.
    share: f64,
    at: Timestamp,
}

impl Bucket {
    fn take(&mut self, rate: f64, now: Timestamp) -> Permit {
        if rate <= 0.0 {
            return Permit::Never;
        }
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.share = (self.share + passed * rate).min(1.0);
        self.at = now;
        // Rounding must not make it wait for a nanosecond again and again.
        if self.share > 0.999_999 {
            self.share = 0.0;
            return Permit::Now;
        }
        Permit::After(Duration::from_secs_f64((1.0 - self.share) / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_judged_by_how_many_of_its_nodes_are_down() {
        for (ready, not_ready, zone) in [
            (0, 0, Zone::Normal),
            (1, 0, Zone::Normal),
            (0, 1, Zone::Down),
            (0, 100, Zone::Down),
            (1, 2, Zone::Normal),
            (3, 3, Zone::Normal),
            (2, 3, Zone::MostlyDown { is_large: false }),
            (45, 55, Zone::MostlyDown { is_large: true }),
            (46, 54, Zone::Normal),
        ] {
            assert_eq!(Zone::of(ready, not_ready), zone, "{ready} {not_ready}");
        }
    }

    #[test]
    fn one_node_in_ten_seconds_goes_and_none_if_everything_is_down() {
        let zones =
            |states: &[(&str, Zone)]| Zones(states.iter().map(|(name, zone)| ((*name).to_owned(), *zone)).collect());
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let gate = Gate::default();
        let some = zones(&[("a", Zone::Normal), ("b", Zone::Down), ("c", Zone::MostlyDown { is_large: false })]);
        for (zone, second, permit) in [
            ("a", 0, Permit::Now),
            ("a", 0, Permit::After(Duration::from_secs(10))),
            ("a", 4, Permit::After(Duration::from_secs(6))),
            ("b", 4, Permit::Now),
            ("a", 10, Permit::Now),
            ("c", 10, Permit::Never),
        ] {
            assert_eq!(gate.ask(&some, zone, at(second)), permit, "{zone} {second}");
        }
        let all = zones(&[("a", Zone::Down), ("b", Zone::Down)]);
        assert_eq!(gate.ask(&all, "a", at(5000)), Permit::Never);
    }
}
