//! All objects: one persistent ordered map per resource, so that a copy of everything costs nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use setpoint_api::kind::GroupResource;

use crate::key::{Key, split};
use crate::object::Object;

/// An object in its table, with the label filter beside the pointer so that a scan needn't follow it.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) object: Arc<Object>,
    pub(crate) label_bits: u64,
}

/// The objects of one resource.
#[derive(Clone, Default)]
pub(crate) struct Table {
    entries: OrdMap<Arc<str>, Entry>,
    /// Objects per namespace: a page can say how many remain without counting them.
    counts: OrdMap<Arc<str>, usize>,
    memory: usize,
}

impl Table {
    pub(crate) fn get(&self, path: &str) -> Option<&Arc<Object>> {
        self.entries.get(path).map(|entry| &entry.object)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether this is a copy of the other table, or both are empty.
    pub(crate) fn is_same(&self, other: &Table) -> bool {
        self.entries.ptr_eq(&other.entries) || self.len() == 0 && other.len() == 0
    }

    /// How many objects a namespace has.
    pub(crate) fn len_in(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }

    /// Bytes of memory behind all objects.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Entries in order, of one namespace or all, behind the path `after`.
    pub(crate) fn scan<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Entry)> + use<'a> {
        // Between the slash and the byte that follows it are all paths of a namespace: none needs to be read to know.
        let (start, end) = match namespace {
            Some(namespace) => (Some(format!("{namespace}/")), Some(format!("{namespace}0"))),
            None => (None, None),
        };
        let from = match (after, start.as_deref()) {
            (Some(after), Some(start)) if after < start => Bound::Included(start),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(start)) => Bound::Included(start),
            (None, None) => Bound::Unbounded,
        };
        let is_behind = after.zip(end.as_deref()).is_some_and(|(after, end)| after >= end);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (!is_behind).then(|| self.entries.range::<_, str>((from, to))).into_iter().flatten()
    }

    /// Puts or removes one object and returns what was there.
    pub(crate) fn set(&mut self, path: &Arc<str>, next: Option<Arc<Object>>) -> Option<Arc<Object>> {
        let exists = next.is_some();
        let previous = match next {
            Some(object) => {
                self.memory += object.memory();
                let label_bits = object.facts().label_bits();
                self.entries.insert(Arc::clone(path), Entry { object, label_bits })
            }
            None => self.entries.remove(&**path),
        };
        if let (Some(namespace), true) = (split(path).0, previous.is_some() != exists) {
            self.count(namespace, exists);
        }
        let previous = previous.map(|entry| entry.object);
        self.memory -= previous.as_ref().map_or(0, |object| object.memory());
        previous
    }

    /// One object more or less in a namespace.
    fn count(&mut self, namespace: &str, more: bool) {
        match self.counts.get_mut(namespace) {
            Some(count) if more => *count += 1,
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                self.counts.remove(namespace);
            }
            None => {
                self.counts.insert(namespace.into(), 1);
            }
        }
    }
}

/// The tables of all resources.
#[derive(Clone, Default)]
pub(crate) struct Tables(OrdMap<GroupResource, Table>);

impl Tables {
    pub(crate) fn table(&self, resource: &GroupResource) -> Option<&Table> {
        self.0.get(resource)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.table(key.resource())?.get(key.path())
    }

    pub(crate) fn set(&mut self, key: &Key, next: Option<Arc<Object>>) -> Option<Arc<Object>> {
        if let Some(table) = self.0.get_mut(key.resource()) {
            return table.set(key.path(), next);
        }
        let mut table = Table::default();
        let previous = table.set(key.path(), next);
        self.0.insert(key.resource().clone(), table);
        previous
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupResource, &Table)> {
        self.0.iter()
    }

    /// Number of objects of each resource that has any.
    pub(crate) fn counts(&self) -> BTreeMap<GroupResource, usize> {
        self.iter().filter(|(_, table)| table.len() > 0).map(|(r, table)| (r.clone(), table.len())).collect()
    }

    /// Bytes of memory behind all objects.
    pub(crate) fn memory(&self) -> usize {
        self.iter().map(|(_, table)| table.memory()).sum()
    }
}
