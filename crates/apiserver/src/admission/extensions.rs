//! The webhooks and policies of the moment: read from the store, and read again whenever one has changed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use serde_json::Value;
use setpoint_api::{GroupResource, Revision, Status};
use setpoint_store::{Mark, Query, Selection, Snapshot, Store};

use super::notes::Notes;
use super::policy::{self, Binding, Bound, Mutating, Validating};
use super::reinvocation::Reinvocation;
use super::request::Request;
use super::webhook::{self, Hook};
use crate::objects;

const GROUP: &str = "admissionregistration.k8s.io";

/// Where they are stored.
static STORED: LazyLock<[GroupResource; SORTS]> = LazyLock::new(|| {
    [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ]
    .map(|plural| GroupResource::new(GROUP, plural))
});

/// How many sorts of them there are.
const SORTS: usize = 6;

/// The webhooks and policies of the moment.
pub(crate) struct Extensions {
    read: RwLock<Read>,
    /// Held while they are read anew: once is enough.
    reading: Mutex<()>,
}

#[derive(Clone, Default)]
struct Read {
    marks: [Mark; SORTS],
    plugins: Arc<Plugins>,
}

impl Default for Extensions {
    fn default() -> Extensions {
        Extensions { read: RwLock::new(Read::default()), reading: Mutex::new(()) }
    }
}

impl Extensions {
    /// Those that fit what is stored now.
    pub(super) fn current(&self, store: &Store) -> Arc<Plugins> {
        match self.known(&marks(&store.snapshot())) {
            Some(plugins) => plugins,
            None => self.read_anew(store),
        }
    }

    fn known(&self, marks: &[Mark; SORTS]) -> Option<Arc<Plugins>> {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        (read.marks == *marks).then(|| Arc::clone(&read.plugins))
    }

    fn read_anew(&self, store: &Store) -> Arc<Plugins> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken anew: an older state never replaces a newer one.
        let snapshot = store.snapshot();
        let marks = marks(&snapshot);
        if let Some(plugins) = self.known(&marks) {
            return plugins;
        }
        let before = Arc::clone(&self.read.read().unwrap_or_else(PoisonError::into_inner).plugins);
        let plugins = Arc::new(Plugins::read(&snapshot, &before));
        let read = Read { marks, plugins: Arc::clone(&plugins) };
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = read;
        plugins
    }
}

fn marks(snapshot: &Snapshot) -> [Mark; SORTS] {
    STORED.each_ref().map(|resource| snapshot.mark(resource))
}

/// Webhooks and policies, in the order in which they are asked.
#[derive(Default)]
pub(super) struct Plugins {
    mutating_hooks: Vec<Arc<Hook>>,
    validating_hooks: Vec<Arc<Hook>>,
    mutating_policies: Vec<Bound<Mutating>>,
    validating_policies: Vec<Bound<Validating>>,
    sources: Sources,
}

/// What they were read from.
#[derive(Default)]
struct Sources {
    mutating_hooks: Kept<Vec<Arc<Hook>>>,
    validating_hooks: Kept<Vec<Arc<Hook>>>,
    mutating_policies: Kept<Arc<Mutating>>,
    mutating_bindings: Kept<Arc<Binding>>,
    validating_policies: Kept<Arc<Validating>>,
    validating_bindings: Kept<Arc<Binding>>,
}

/// What was read from stored objects, in the order of their names. What did not change is kept as it is, with its connections and
/// compiled expressions.
struct Kept<T> {
    by_name: HashMap<String, (Revision, T)>,
    order: Vec<String>,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { by_name: HashMap::new(), order: Vec::new() }
    }
}

impl<T: Clone> Kept<T> {
    fn read(&self, snapshot: &Snapshot, resource: &GroupResource, read: impl Fn(&Value) -> T) -> Kept<T> {
        let selection = Selection::everything();
        let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
        let mut kept = Kept::default();
        for object in snapshot.list(&query).items {
            let value = objects::value(&object);
            let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let known = self.by_name.get(&name).filter(|(revision, _)| *revision == object.revision());
            let one = known.map_or_else(|| read(&value), |(_, one)| one.clone());
            kept.by_name.insert(name.clone(), (object.revision(), one));
            kept.order.push(name);
        }
        kept.order.sort_unstable();
        kept
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.order.iter().filter_map(|name| self.by_name.get(name)).map(|(_, one)| one)
    }

    fn all(&self) -> Vec<T> {
        self.iter().cloned().collect()
    }
}

impl Plugins {
    fn read(snapshot: &Snapshot, before: &Plugins) -> Plugins {
        let [changing, judging, changes, changes_bound, rules, rules_bound] = &*STORED;
        let before = &before.sources;
        let sources = Sources {
            mutating_hooks: before.mutating_hooks.read(snapshot, changing, Hook::read_all),
            validating_hooks: before.validating_hooks.read(snapshot, judging, Hook::read_all),
            mutating_policies: before.mutating_policies.read(snapshot, changes, Mutating::read),
            mutating_bindings: before.mutating_bindings.read(snapshot, changes_bound, Binding::read),
            validating_policies: before.validating_policies.read(snapshot, rules, Validating::read),
            validating_bindings: before.validating_bindings.read(snapshot, rules_bound, Binding::read),
        };
        Plugins {
            mutating_hooks: sources.mutating_hooks.iter().flatten().cloned().collect(),
            validating_hooks: sources.validating_hooks.iter().flatten().cloned().collect(),
            mutating_policies: Bound::all(sources.mutating_policies.iter(), &sources.mutating_bindings.all()),
            validating_policies: Bound::all(sources.validating_policies.iter(), &sources.validating_bindings.all()),
            sources,
        }
    }

    /// Whether any of them changes objects.
    pub(super) fn mutate(&self) -> bool {
        !self.mutating_hooks.is_empty() || !self.mutating_policies.is_empty()
    }

    /// Whether any of them judges objects.
    pub(super) fn validate(&self) -> bool {
        !self.validating_hooks.is_empty() || !self.validating_policies.is_empty()
    }

    /// Lets them change an object.
    pub(super) async fn change(
        &self,
        request: &Request<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
        rounds: &mut Reinvocation,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        if !request.is_exempt_from_policies() {
            let policies = &self.mutating_policies;
            Box::pin(policy::mutate(policies, request, object.as_deref_mut(), old, rounds)).await?;
        }
        if request.is_exempt_from_hooks() {
            return Ok(());
        }
        Box::pin(webhook::mutate(&self.mutating_hooks, request, object, old, rounds, notes)).await
    }

    /// Lets them judge an object.
    pub(super) async fn judge(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        if !request.is_exempt_from_policies() {
            Box::pin(policy::validate(&self.validating_policies, request, object, old, notes)).await?;
        }
        if request.is_exempt_from_hooks() {
            return Ok(());
        }
        Box::pin(webhook::validate(&self.validating_hooks, request, object, old, notes)).await
    }
}
