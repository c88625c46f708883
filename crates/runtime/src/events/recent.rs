//! The most recently used entries of a map, so that what is remembered is bounded.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Forgets what wasn't used for longest when it is full.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    used: u64,
    capacity: usize,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(capacity: usize) -> Recent<K, V> {
        Recent { entries: HashMap::new(), order: BTreeMap::new(), used: 0, capacity }
    }

    /// The entry, new where there was none, now the most recent.
    pub(super) fn entry(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        self.used += 1;
        match self.entries.get(key) {
            Some((used, _)) => drop(self.order.remove(used)),
            None if self.entries.len() >= self.capacity => {
                if let Some((_, oldest)) = self.order.pop_first() {
                    self.entries.remove(&oldest);
                }
            }
            None => (),
        }
        self.order.insert(self.used, key.clone());
        let (used, value) = self.entries.entry(key.clone()).or_insert_with(|| (0, new()));
        *used = self.used;
        value
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Those for which `matches` says so, from the one that wasn't used for longest.
    pub(super) fn keys_where(&self, matches: impl Fn(&V) -> bool) -> Vec<K> {
        self.order
            .values()
            .filter(|key| self.entries.get(key).is_some_and(|(_, value)| matches(value)))
            .cloned()
            .collect()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_is_forgotten() {
        let mut recent = Recent::new(2);
        for key in ["a", "b", "a", "c"] {
            *recent.entry(&key, || 0) += 1;
        }
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (Some(&2), None, Some(&1)));
        assert_eq!(recent.remove(&"a"), Some(2));
        assert_eq!(recent.keys_where(|_| true), ["c"]);
    }
}
