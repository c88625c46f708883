//! Series by their labels.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

/// Most series of a family. Kinds come and go; what comes after so many shares one series without labels.
pub const SERIES_MAX: usize = 20_000;

/// Series of the same figure.
#[derive(Debug)]
pub struct Family<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Family<K, V> {
    fn default() -> Self {
        Family(RwLock::default())
    }
}

impl<K: Clone + Default + Eq + Hash + Ord, V: Default> Family<K, V> {
    /// The series with these labels, new where there was none.
    pub fn get(&self, key: &K) -> Arc<V> {
        if let Some(series) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Arc::clone(series);
        }
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let key = if map.len() < SERIES_MAX { key.clone() } else { K::default() };
        Arc::clone(map.entry(key).or_default())
    }

    /// All series in the order of their labels.
    pub fn all(&self) -> Vec<(K, Arc<V>)> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(K, Arc<V>)> = map.iter().map(|(key, series)| (key.clone(), Arc::clone(series))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
