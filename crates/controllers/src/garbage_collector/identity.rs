//! What names an object among all objects of all kinds, with everything shared that many objects have in common.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::uid::Uid;

/// A kind in one version of its API.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeName {
    pub api_version: Box<str>,
    pub kind: Box<str>,
}

/// Where an object is, or is said to be, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub kind: Arc<TypeName>,
    /// None for objects of the whole cluster.
    pub namespace: Option<Arc<Box<str>>>,
    pub name: Arc<str>,
    pub uid: Uid,
}

impl Identity {
    /// The namespace; empty for objects of the whole cluster.
    pub fn namespace(&self) -> &str {
        self.namespace.as_ref().map_or("", |namespace| namespace)
    }
}

/// In the words of events.
impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeName { api_version, kind } = &*self.kind;
        let (namespace, name, uid) = (self.namespace(), &self.name, &self.uid);
        write!(out, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

/// Keeps one copy of equal values, for as long as somebody uses it.
pub struct Shared<T> {
    known: HashSet<Arc<T>>,
    /// With so many, those that nobody uses are dropped.
    sweep_at: usize,
}

/// Fewer are not worth looking for unused ones.
const SWEEP_MIN: usize = 1_024;

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared { known: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Eq + Hash> Shared<T> {
    /// The one copy of a value.
    pub fn get(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.known.len());
        }
        let value = Arc::new(value);
        self.known.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut shared = Shared::default();
        let kept = shared.get(0);
        assert!(Arc::ptr_eq(&kept, &shared.get(0)));
        for value in 1..10 * SWEEP_MIN {
            shared.get(value);
        }
        assert!(shared.known.len() <= SWEEP_MIN, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&kept, &shared.get(0)));
    }
}
