//! Finds controllers that wake themselves: each run writes, the write's event wakes the key, and so on without end.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::recorder::Access;
use crate::Key;
use crate::queue::Causes;

/// So many runs in a row that were woken by the key's own write and wrote the same object again are a loop.
pub const HOT_RUNS: u32 = 5;
/// Most keys that are looked at; the one that wrote longest ago is forgotten first.
const KEYS_MAX: usize = 256;
/// Most fields that are named.
const FIELDS_MAX: usize = 16;

/// A key whose own writes wake it again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HotLoop {
    /// The object that is written each time, as `plural namespace/name`.
    pub object: String,
    /// How many runs in a row.
    pub runs: u32,
    /// The fields that change from one write to the next, most often changed first.
    pub fields: Vec<String>,
}

/// Looks at the runs of one controller.
#[derive(Default)]
pub struct HotLoopDetector {
    keys: BTreeMap<Key, Streak>,
    order: VecDeque<Key>,
}

struct Streak {
    object: String,
    versions: Vec<String>,
    answer: Option<Bytes>,
    runs: u32,
    fields: BTreeMap<String, u32>,
}

impl HotLoopDetector {
    /// Takes note of a run; tells a loop when it is found, and again each time that it has doubled.
    pub fn ran(&mut self, key: &Key, causes: &Causes, accesses: &[Access]) -> Option<HotLoop> {
        let is_made = |access: &&Access| access.is_write() && access.is_success() && access.answer.is_some();
        let made: Vec<_> = accesses.iter().filter(is_made).collect();
        let Some(last) = made.last() else {
            if self.keys.remove(key).is_some() {
                self.order.retain(|known| known != key);
            }
            return None;
        };
        let object = format!("{} {}", last.plural, last.key);
        let versions = made.iter().filter_map(|write| write.resource_version.clone()).collect();
        let fresh = Streak { object, versions, answer: last.answer.clone(), runs: 1, fields: BTreeMap::new() };
        let Some(streak) = self.keys.get_mut(key) else {
            self.remember(key, fresh);
            return None;
        };
        let woken_by_itself = causes.first.iter().any(|cause| {
            cause.resource_version.as_ref().is_some_and(|version| streak.versions.iter().any(|own| **own == **version))
        });
        if !woken_by_itself || streak.object != fresh.object {
            *streak = fresh;
            return None;
        }
        if let (Some(old), Some(new)) = (read(&streak.answer), read(&fresh.answer)) {
            let mut changed = Vec::new();
            differences("", &old, &new, &mut changed);
            for field in changed {
                if streak.fields.len() < FIELDS_MAX || streak.fields.contains_key(&field) {
                    *streak.fields.entry(field).or_default() += 1;
                }
            }
        }
        (streak.versions, streak.answer) = (fresh.versions, fresh.answer);
        streak.runs += 1;
        let doubled = streak.runs.is_multiple_of(HOT_RUNS) && (streak.runs / HOT_RUNS).is_power_of_two();
        doubled.then(|| streak.told())
    }

    fn remember(&mut self, key: &Key, streak: Streak) {
        if self.keys.insert(key.clone(), streak).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > KEYS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }
}

impl Streak {
    fn told(&self) -> HotLoop {
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        let fields = fields.into_iter().map(|(field, _)| field.clone()).collect();
        HotLoop { object: self.object.clone(), runs: self.runs, fields }
    }
}

/// Answers are read only when two have to be compared: hardly any has.
fn read(answer: &Option<Bytes>) -> Option<Value> {
    serde_json::from_slice(answer.as_ref()?).ok()
}

/// The paths at which two objects differ, without what changes with every write.
fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    let bookkeeping = [".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields"];
    if old == new || found.len() >= FIELDS_MAX || bookkeeping.contains(&path) {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let missing = after.iter().filter(|(name, _)| !before.contains_key(*name)).map(|(name, _)| name);
            for name in before.keys().chain(missing) {
                let null = &Value::Null;
                let (before, after) = (before.get(name).unwrap_or(null), after.get(name).unwrap_or(null));
                differences(&format!("{path}.{name}"), before, after, found);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (place, (before, after)) in before.iter().zip(after).enumerate() {
                differences(&format!("{path}[{place}]"), before, after, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}
