//! The objects of one cache, ordered by key, with secondary indexes; a snapshot of all costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::Cached;
use crate::Key;

/// What a map entry takes beside the object: the key, the shared pointers and their counters.
const ENTRY_BYTES: usize = 64;

/// A function that gives the values under which an object is found.
pub type IndexFn<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Everything that a cache held at one moment; cheap to take and to keep.
pub struct Snapshot<K> {
    pub(super) objects: OrdMap<Key, Entry<K>>,
    indexes: BTreeMap<Arc<str>, Index<K>>,
    pub(super) resource_version: Arc<str>,
    bytes: usize,
}

pub(super) struct Entry<K> {
    pub object: Arc<K>,
    pub bytes: u32,
}

struct Index<K> {
    values_of: IndexFn<K>,
    keys: OrdMap<Arc<str>, OrdSet<Key>>,
}

/// How much memory a cache takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// How many objects it holds.
    pub objects: usize,
    /// An estimate of their bytes, counted as they were decoded.
    pub bytes: usize,
}

impl<K: Cached> Snapshot<K> {
    /// The object of a key: `namespace/name` or `name`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.objects.get(key).map(|entry| entry.object.clone())
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All objects in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.iter().map(|(_, entry)| &entry.object)
    }

    /// The objects of a namespace in the order of their names.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        // '0' follows '/', so this range has exactly the keys that begin with the namespace and a slash.
        let (first, end) = (Key::namespaced(namespace, ""), Key::cluster(&format!("{namespace}0")));
        self.objects.range(first..end).map(|(_, entry)| &entry.object)
    }

    /// The objects that an index finds under a value, in the order of their keys; none if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = &Arc<K>> {
        let keys = self.indexes.get(index).and_then(|index| index.keys.get(value));
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).map(|entry| &entry.object))
    }

    /// How many objects an index finds under a value.
    #[must_use]
    pub fn index_count(&self, index: &str, value: &str) -> usize {
        self.indexes.get(index).and_then(|index| index.keys.get(value)).map_or(0, OrdSet::len)
    }

    /// The values that an index knows, in order.
    pub fn index_values(&self, index: &str) -> impl Iterator<Item = &str> {
        self.indexes.get(index).into_iter().flat_map(|index| index.keys.keys().map(|value| &**value))
    }

    /// The version that the cache had reached.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// The memory that it takes.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory { objects: self.len(), bytes: self.bytes }
    }

    pub(super) fn empty() -> Self {
        Self { objects: OrdMap::new(), indexes: BTreeMap::new(), resource_version: "".into(), bytes: 0 }
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry<K>) -> Option<Arc<K>> {
        self.bytes += entry.size(&key);
        let object = entry.object.clone();
        let old = self.objects.insert(key.clone(), entry);
        if let Some(old) = &old {
            self.bytes -= old.size(&key);
        }
        let old = old.map(|old| old.object);
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &object);
        }
        old
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        self.bytes -= old.size(key);
        for index in self.indexes.values_mut() {
            index.remove(key, &old.object);
        }
        Some(old.object)
    }

    /// Puts other objects in the place of all.
    pub(super) fn replace(&mut self, objects: OrdMap<Key, Entry<K>>) {
        self.bytes = objects.iter().map(|(key, entry)| entry.size(key)).sum();
        self.objects = objects;
        let values: Vec<_> = self.indexes.iter().map(|(name, index)| (name.clone(), index.values_of.clone())).collect();
        for (name, values_of) in values {
            self.add_index(name, values_of);
        }
    }

    pub(super) fn add_index(&mut self, name: Arc<str>, values_of: IndexFn<K>) {
        let mut index = Index { values_of, keys: OrdMap::new() };
        for (key, entry) in &self.objects {
            index.insert(key, &entry.object);
        }
        self.indexes.insert(name, index);
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            indexes: self.indexes.clone(),
            resource_version: self.resource_version.clone(),
            bytes: self.bytes,
        }
    }
}

impl<K> Entry<K> {
    fn size(&self, key: &Key) -> usize {
        self.bytes as usize + key.as_str().len() + ENTRY_BYTES
    }
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), bytes: self.bytes }
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { values_of: self.values_of.clone(), keys: self.keys.clone() }
    }
}

impl<K> Index<K> {
    fn insert(&mut self, key: &Key, object: &K) {
        for value in (self.values_of)(object) {
            self.keys.entry(value.into()).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.values_of)(object) {
            if let Some(keys) = self.keys.get_mut(value.as_str()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(value.as_str());
                }
            }
        }
    }
}
