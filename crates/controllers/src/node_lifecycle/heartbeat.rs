//! When a node was last heard of, by our own clock: what counts is that its heartbeat changed, never what time it says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::node::Node;

/// How long nodes may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// One that has said how it is.
    pub usual: Duration,
    /// A new one, until it says how it is.
    pub startup: Duration,
}

/// What was last heard of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// When, by our clock.
    pub heard_at: Timestamp,
    uid: Box<str>,
    lease: Option<MicroTime>,
    /// The heartbeat of its Ready condition, if it has that condition.
    ready: Option<Option<Time>>,
    /// Whether it was ready.
    pub was_ready: bool,
    /// The moment it stopped being ready for which its pods were told so.
    pub pods_told: Option<Time>,
}

impl Heartbeat {
    /// What is known once this was seen of the node and of its lease.
    pub fn after(before: Option<&Heartbeat>, node: &Node, lease: Option<&MicroTime>, now: Timestamp) -> Heartbeat {
        let before = before.filter(|before| before.uid == node.metadata.uid);
        let ready = node.condition("Ready").map(|ready| ready.last_heartbeat_time.clone());
        let heard_at = match (before, &ready) {
            (None, None) => node.created_at(),
            (Some(before), ready) if before.ready == *ready => before.heard_at,
            (None | Some(_), _) => now,
        };
        let lease_moved = lease.is_some_and(|lease| before.is_none_or(|before| before.is_older_than(lease)));
        Heartbeat {
            heard_at: if lease_moved { now } else { heard_at },
            uid: node.metadata.uid.clone(),
            lease: lease.cloned().or_else(|| before.and_then(|before| before.lease.clone())),
            ready,
            was_ready: before.is_some_and(|before| before.was_ready),
            pods_told: before.and_then(|before| before.pods_told.clone()),
        }
    }

    /// When the node counts as unreachable if nothing more is heard of it.
    pub fn deadline(&self, grace: Grace) -> Timestamp {
        let grace = if self.ready.is_some() { grace.usual } else { grace.startup };
        let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
        self.heard_at.saturating_add(grace).unwrap_or(Timestamp::MAX)
    }

    fn is_older_than(&self, lease: &MicroTime) -> bool {
        self.lease.as_ref().is_none_or(|known| known.0 < lease.0)
    }
}

/// What was last heard of each node. A process that starts has heard of all nodes just now.
#[derive(Default)]
pub struct Heartbeats(Mutex<BTreeMap<Box<str>, Heartbeat>>);

impl Heartbeats {
    /// Notes what is seen of a node now; the second is what was known before.
    pub fn observe(&self, node: &Node, lease: Option<&MicroTime>, now: Timestamp) -> (Heartbeat, Option<Heartbeat>) {
        let mut all = self.lock();
        let before = all.get(&node.metadata.name).cloned();
        let after = Heartbeat::after(before.as_ref(), node, lease, now);
        let known = before.filter(|before| before.uid == node.metadata.uid);
        all.insert(node.metadata.name.clone(), after.clone());
        (after, known)
    }

    /// Notes that a lease was renewed, of a node that is known.
    pub fn renewed(&self, name: &str, lease: &MicroTime, now: Timestamp) {
        if let Some(heartbeat) = self.lock().get_mut(name).filter(|heartbeat| heartbeat.is_older_than(lease)) {
            heartbeat.lease = Some(lease.clone());
            heartbeat.heard_at = now;
        }
    }

    /// Changes what is remembered of a node.
    pub fn remember(&self, name: &str, change: impl FnOnce(&mut Heartbeat)) {
        if let Some(heartbeat) = self.lock().get_mut(name) {
            change(heartbeat);
        }
    }

    /// All nodes count as heard of just now.
    pub fn reset(&self, now: Timestamp) {
        self.lock().values_mut().for_each(|heartbeat| heartbeat.heard_at = now);
    }

    /// Forgets a node; its identity, if it was known.
    pub fn forget(&self, name: &str) -> Option<Box<str>> {
        self.lock().remove(name).map(|heartbeat| heartbeat.uid)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Heartbeat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GRACE: Grace = Grace { usual: Duration::from_secs(50), startup: Duration::from_secs(60) };

    fn node(conditions: Value) -> Node {
        let metadata = json!({"name": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn ready(heartbeat: &str) -> Value {
        json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}])
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_node_is_heard_of_when_its_heartbeat_changes_whatever_time_it_says() {
        let (one, other) = (MicroTime(at("2026-01-01T00:00:00Z")), MicroTime(at("1999-01-01T00:00:00Z")));
        let later = MicroTime(at("2026-01-01T00:00:01Z"));
        let (old, new) = ("2020-01-01T00:00:00Z", "2001-01-01T00:00:00Z");
        for (what, first, then, heard_now) in [
            ("nothing changed", (ready(old), Some(&one)), (ready(old), Some(&one)), false),
            ("its status", (ready(old), Some(&one)), (ready(new), Some(&one)), true),
            ("its lease", (ready(old), Some(&one)), (ready(old), Some(&later)), true),
            ("an older lease", (ready(old), Some(&one)), (ready(old), Some(&other)), false),
            ("a first lease", (ready(old), None), (ready(old), Some(&other)), true),
            ("a lease that went", (ready(old), Some(&one)), (ready(old), None), false),
            ("its first status", (json!([]), None), (ready(old), None), true),
            ("a status that went", (ready(old), None), (json!([]), None), true),
            ("still no status", (json!([]), None), (json!([]), None), false),
        ] {
            let (start, now) = (at("2026-02-01T00:00:00Z"), at("2026-02-01T00:00:30Z"));
            let before = Heartbeat::after(None, &node(first.0), first.1, start);
            let after = Heartbeat::after(Some(&before), &node(then.0), then.1, now);
            assert_eq!(after.heard_at == now, heard_now, "{what}");
        }
    }

    #[test]
    fn a_node_that_never_said_how_it_is_has_a_minute_from_its_making() {
        let silent = Heartbeat::after(None, &node(json!([])), None, at("2026-02-01T00:00:00Z"));
        assert_eq!(silent.deadline(GRACE), at("2026-01-01T00:01:00Z"));
        let known = Heartbeat::after(None, &node(ready("2020-01-01T00:00:00Z")), None, at("2026-02-01T00:00:00Z"));
        assert_eq!(known.deadline(GRACE), at("2026-02-01T00:00:50Z"));
    }

    #[test]
    fn another_node_of_the_same_name_starts_anew() {
        let before = Heartbeat::after(None, &node(ready("2020-01-01T00:00:00Z")), None, at("2026-02-01T00:00:00Z"));
        let mut other = node(ready("2020-01-01T00:00:00Z"));
        other.metadata.uid = "v".into();
        let now = at("2026-02-01T00:00:30Z");
        assert_eq!(Heartbeat::after(Some(&before), &other, None, now).heard_at, now);
    }
}
