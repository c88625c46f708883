//! The registry of the moment: derived from the stored definitions, and derived again whenever one has changed.
//!
//! Requests ask for it with the store's newest snapshot in sight, so a kind is served as soon as its definition is visible:
//! there is nothing to wait for, whoever wrote it and whichever server answers.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use setpoint_api::GroupResource;
use setpoint_store::{Mark, Object, Query, Selection, Snapshot, Store};
use tokio::sync::watch;

use super::{Registry, Served};
use crate::definitions::{self, Definition};

/// Where definitions are stored.
pub(crate) static DEFINITIONS: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));

/// The registry of the moment.
pub(crate) struct Kinds {
    derived: RwLock<Derived>,
    /// Held while the next one is derived: kinds are compiled once.
    deriving: Mutex<()>,
    /// Moves with every registry.
    changed: watch::Sender<()>,
}

#[derive(Clone)]
struct Derived {
    mark: Mark,
    registry: Arc<Registry>,
}

impl Kinds {
    /// Begins with these built-in kinds and no others.
    pub(crate) fn new(builtin: Arc<Registry>) -> Kinds {
        let derived = Derived { mark: Mark::default(), registry: builtin };
        Kinds { derived: RwLock::new(derived), deriving: Mutex::new(()), changed: watch::Sender::new(()) }
    }

    /// The registry that fits what is stored now.
    pub(crate) fn current(&self, store: &Store) -> Arc<Registry> {
        let snapshot = store.snapshot();
        let mark = snapshot.mark(&DEFINITIONS);
        match self.known(&mark) {
            Some(registry) => registry,
            None => self.derive(store),
        }
    }

    /// Follows a kind for as long as it is served as it is now; built-in ones stay forever.
    pub(crate) fn follow(self: &Arc<Kinds>, served: &Arc<Served>) -> Option<Following> {
        let custom = served.custom.is_some();
        let following =
            || Following { kinds: Arc::clone(self), served: Arc::clone(served), changes: self.changed.subscribe() };
        custom.then(following)
    }

    fn known(&self, mark: &Mark) -> Option<Arc<Registry>> {
        let derived = self.derived.read().unwrap_or_else(PoisonError::into_inner);
        (derived.mark == *mark).then(|| Arc::clone(&derived.registry))
    }

    fn derive(&self, store: &Store) -> Arc<Registry> {
        let _alone = self.deriving.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken anew: another request may have derived it meanwhile, and an older state never replaces a newer one.
        let snapshot = store.snapshot();
        let mark = snapshot.mark(&DEFINITIONS);
        if let Some(registry) = self.known(&mark) {
            return registry;
        }
        let before = self.derived.read().unwrap_or_else(PoisonError::into_inner).registry.clone();
        let registry = Arc::new(before.with(definitions(&before, &snapshot)));
        let next = Derived { mark, registry: Arc::clone(&registry) };
        *self.derived.write().unwrap_or_else(PoisonError::into_inner) = next;
        self.changed.send_replace(());
        registry
    }
}

/// A kind that may be replaced while somebody watches it.
pub(crate) struct Following {
    kinds: Arc<Kinds>,
    served: Arc<Served>,
    changes: watch::Receiver<()>,
}

impl Following {
    /// Waits until the kind is gone or another. May be dropped and called again.
    pub(crate) async fn replaced(&mut self) {
        loop {
            self.changes.mark_unchanged();
            if !self.is_same() {
                return;
            }
            if self.changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_same(&self) -> bool {
        let kind = &self.served.kind;
        let registry = self.kinds.derived.read().unwrap_or_else(PoisonError::into_inner).registry.clone();
        registry.find(&kind.group, &kind.version, &kind.plural).is_some_and(|now| Arc::ptr_eq(&now.kind, kind))
    }
}

/// The stored definitions. What was known of one that did not change is kept, its compiled kinds above all.
fn definitions(before: &Registry, snapshot: &Snapshot) -> Vec<Definition> {
    let known: HashMap<&str, &Definition> =
        before.definitions().iter().map(|definition| (&*definition.uid, definition)).collect();
    let mut next: Vec<Definition> = Vec::new();
    for object in stored(snapshot) {
        let old = known.get(object.facts().uid()).copied();
        if let Some(same) = old.filter(|old| old.object.revision() == object.revision()) {
            next.push(same.clone());
            continue;
        }
        next.push(Definition::read(object, old));
    }
    definitions::settle(&mut next);
    for definition in &mut next {
        let old = known.get(&*definition.uid).filter(|old| definition.is_compiled_as(old));
        if let Some(old) = old {
            definition.kinds = old.kinds.clone();
            definition.converter.clone_from(&old.converter);
        } else if definition.is_served() {
            definition.compile();
        }
    }
    next
}

fn stored(snapshot: &Snapshot) -> Vec<Arc<Object>> {
    let selection = Selection::everything();
    let query = Query { resource: &DEFINITIONS, namespace: None, selection: &selection, after: None, limit: None };
    snapshot.list(&query).items
}
