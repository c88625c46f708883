//! Looks for the objects that pods refer to before they start, and tells of those that are not there.
//!
//! Nothing is followed: what was read counts for a moment, for all pods of a process, and who waits looks again after growing pauses. So
//! pods that run cost nothing, and any number that start with the same ConfigMap read it a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, PodStatus, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, GetParams};
use kube::core::Request;
use kube::{Client, Error as ClientError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint_runtime::Key;
use setpoint_runtime::controller::Error;
use setpoint_runtime::retry;

use super::container::CONFIG_ERROR;
use super::events::{self, Said};
use super::pod::Pod;
use super::references::{Found, Keys, Kind, Lacks, NOTHING, wanted};

/// How long counts what was read: as long as a kubelet that reads again and again believes it at the most.
const COUNTS_FOR: SignedDuration = SignedDuration::from_secs(10);
/// How long it counts that something isn't there: those who wait for it look together.
const MISSING_FOR: SignedDuration = SignedDuration::from_secs(1);
/// Pauses between looks grow from the first to the second of these with the time that a pod has waited.
const PAUSE_MIN: SignedDuration = SignedDuration::from_secs(1);
const PAUSE_MAX: SignedDuration = SignedDuration::from_secs(10);
/// Most objects that are remembered: some hundred bytes each. More are read more often.
const KNOWN_MAX: usize = 10_000;

/// A kubelet's pauses between attempts to fill a volume double, from the first to the second of these.
const MOUNT_PAUSES: (f64, f64) = (0.5, 122.0);
/// And so between attempts to start a container.
const START_PAUSES: (f64, f64) = (5.0, 15.0);

/// What was found lately, and who waits.
#[derive(Default)]
pub struct Missing {
    known: Mutex<BTreeMap<(Kind, Key), Known>>,
    /// When it was last told of those pods that wait. A new process tells at most a little twice.
    told: Mutex<BTreeMap<Key, Timestamp>>,
}

struct Known {
    at: Timestamp,
    found: Arc<Found>,
}

impl Known {
    fn counts(&self, now: Timestamp) -> bool {
        let limit = if matches!(*self.found, Found::There(_)) { COUNTS_FOR } else { MISSING_FOR };
        (SignedDuration::ZERO..limit).contains(&now.duration_since(self.at))
    }
}

impl Missing {
    /// What a pod waits for.
    pub async fn look(&self, client: &Client, key: &Key, pod: &Pod, now: Timestamp) -> Result<Lacks, Error> {
        let wanted = wanted(pod);
        if wanted.is_empty() {
            return Ok(NOTHING.clone());
        }
        let mut objects = BTreeMap::new();
        for (kind, name) in wanted {
            let object = Key::namespaced(&pod.metadata.namespace, name);
            let found = match self.known(kind, &object, now) {
                Some(found) => found,
                None => {
                    let found = read(client, kind, &object).await?;
                    self.remember(kind, object, found, now)
                }
            };
            objects.insert((kind, name), found);
        }
        let lacks = Lacks::of(pod, &objects);
        if lacks.is_nothing() {
            self.forget(key);
        }
        Ok(lacks)
    }

    fn known(&self, kind: Kind, key: &Key, now: Timestamp) -> Option<Arc<Found>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(kind, key.clone())).filter(|it| it.counts(now)).map(|it| Arc::clone(&it.found))
    }

    fn remember(&self, kind: Kind, key: Key, found: Found, now: Timestamp) -> Arc<Found> {
        let found = Arc::new(found);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, it| it.counts(now));
        }
        if known.len() < KNOWN_MAX {
            known.insert((kind, key), Known { at: now, found: Arc::clone(&found) });
        }
        found
    }

    /// What there is to tell of a pod that is so now and waits for something.
    pub fn tell(&self, key: &Key, pod: &Pod, status: &PodStatus, lacks: &Lacks, now: Timestamp) -> Vec<Said> {
        if lacks.is_nothing() {
            return Vec::new();
        }
        let last = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), now);
        let begun = status.start_time.as_ref().map_or(now, |time| time.0);
        let is_due = |pauses| last.is_none_or(|last| attempts(begun, now, pauses) > attempts(begun, last, pauses));
        let mut said = Vec::new();
        if is_due(MOUNT_PAUSES) {
            said.extend(lacks.volumes.iter().map(|(volume, why)| events::not_mounted(volume, why)));
        }
        if is_due(START_PAUSES) || !lacks.volumes.is_empty() {
            said.extend(refused(status).flat_map(|(list, it)| events::not_configured(pod, list, it)));
        }
        said
    }

    /// A pod that waits no more.
    pub fn forget(&self, key: &Key) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// When to look again for what a pod waits for.
pub fn next(pod: &Pod, lacks: &Lacks, now: Timestamp) -> Option<Timestamp> {
    if lacks.is_nothing() {
        return None;
    }
    let begun = pod.status.start_time.as_ref().map_or(now, |time| time.0);
    now.saturating_add(now.duration_since(begun).clamp(PAUSE_MIN, PAUSE_MAX)).ok()
}

/// The containers that can't start because of their variables.
fn refused(status: &PodStatus) -> impl Iterator<Item = (&'static str, &ContainerStatus)> {
    let lists = [("initContainers", &status.init_container_statuses), ("containers", &status.container_statuses)];
    let all = lists.into_iter().flat_map(|(list, all)| all.iter().flatten().map(move |it| (list, it)));
    all.filter(|(_, it)| {
        let waiting = it.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(CONFIG_ERROR))
    })
}

/// How many attempts there were up to a moment, if each pause is twice the one before it.
fn attempts(begun: Timestamp, now: Timestamp, (first, longest): (f64, f64)) -> u64 {
    let left = now.duration_since(begun).as_secs_f64();
    let (mut count, mut at, mut pause) = (1, 0.0, first);
    while pause < longest {
        at += pause;
        if at > left {
            return count;
        }
        count += 1;
        pause = (pause * 2.0).min(longest);
    }
    count + ((left - at).max(0.0) / longest) as u64
}

async fn read(client: &Client, kind: Kind, key: &Key) -> Result<Found, Error> {
    let namespace = key.namespace().unwrap_or_default();
    let url = match kind {
        Kind::ConfigMap => Api::<ConfigMap>::namespaced(client.clone(), namespace).resource_url().to_owned(),
        Kind::Secret => Api::<Secret>::namespaced(client.clone(), namespace).resource_url().to_owned(),
    };
    let request = Request::new(url).get(key.name(), &GetParams::default()).map_err(Error::transient)?;
    match client.request::<Contents>(request).await {
        Ok(Contents { data, binary_data }) => {
            let keys = |of: BTreeMap<Box<str>, IgnoredAny>| of.into_keys().collect::<BTreeSet<_>>();
            Ok(Found::There(Keys { data: keys(data), binary: keys(binary_data) }))
        }
        Err(error) if retry::is_not_found(&error) => Ok(Found::Missing),
        Err(ClientError::Api(status)) if status.code == 403 => Ok(Found::Closed(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// An object without what is in it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contents {
    #[serde(default)]
    data: BTreeMap<Box<str>, IgnoredAny>,
    #[serde(default)]
    binary_data: BTreeMap<Box<str>, IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_with_doubling_pauses() {
        let begun = Timestamp::UNIX_EPOCH;
        for (second, expected) in [(0, 1), (1, 2), (2, 3), (4, 4), (8, 5), (100, 8), (120, 8), (1000, 16)] {
            let now = Timestamp::from_second(second).unwrap();
            assert_eq!(attempts(begun, now, MOUNT_PAUSES), expected, "after {second} s");
        }
    }

    #[test]
    fn what_was_found_counts_for_longer_than_what_was_not() {
        let missing = Missing::default();
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let key = |name: &str| Key::namespaced("shop", name);
        missing.remember(Kind::Secret, key("there"), Found::There(Keys::default()), second(0));
        missing.remember(Kind::Secret, key("gone"), Found::Missing, second(0));
        let known = |name: &str, now: i64| missing.known(Kind::Secret, &key(name), second(now)).is_some();
        assert_eq!([known("there", 0), known("there", 9), known("there", 10)], [true, true, false]);
        assert_eq!([known("gone", 0), known("gone", 1), known("other", 0)], [true, false, false]);
        assert!(missing.known(Kind::ConfigMap, &key("there"), second(0)).is_none());
    }

    #[test]
    fn not_more_than_so_many_are_remembered() {
        let missing = Missing::default();
        let now = Timestamp::UNIX_EPOCH;
        for number in 0..KNOWN_MAX * 2 {
            missing.remember(Kind::Secret, Key::namespaced("shop", &number.to_string()), Found::Missing, now);
        }
        let later = Timestamp::from_second(60).unwrap();
        assert_eq!(missing.known.lock().unwrap().len(), KNOWN_MAX);
        missing.remember(Kind::Secret, Key::namespaced("shop", "late"), Found::Missing, later);
        assert_eq!(missing.known.lock().unwrap().len(), 1, "what counts no more makes room");
    }
}
