//! What the API server tells goes straight into the cluster's state.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Sink};
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::pod::Pod;
use crate::profile::Profile;

/// The state that feeds fill and the scheduler reads.
#[derive(Clone)]
pub struct Shared {
    cluster: Arc<Mutex<Cluster>>,
    changed: Arc<Notify>,
}

impl Shared {
    pub fn new(profiles: Vec<Profile>) -> Shared {
        Shared { cluster: Arc::new(Mutex::new(Cluster::new(profiles))), changed: Arc::default() }
    }

    /// Does something with the state, which nobody else sees meanwhile.
    pub fn with<T>(&self, act: impl FnOnce(&mut Cluster) -> T) -> T {
        act(&mut self.cluster.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something is told.
    pub async fn told(&self) {
        self.changed.notified().await;
    }

    fn tell(&self, act: impl FnOnce(&mut Cluster)) {
        self.with(act);
        self.changed.notify_one();
    }
}

/// Takes pods.
pub struct Pods(pub Shared);

impl Sink for Pods {
    type Object = Pod;

    fn listing(&self) {
        self.0.tell(Cluster::list_pods);
    }

    fn seen(&self, pod: Pod) {
        self.0.tell(|cluster| cluster.see_pod(&pod));
    }

    fn gone(&self, pod: Pod) {
        self.0.tell(|cluster| cluster.lose_pod(&pod.metadata.uid));
    }

    fn listed(&self) {
        self.0.tell(Cluster::pods_listed);
    }
}

/// Takes objects of another kind, which are known by their keys.
pub struct Others<T> {
    shared: Shared,
    see: fn(&mut Cluster, Key, T),
    lose: fn(&mut Cluster, &Key),
    keys: Mutex<Keys>,
    object: PhantomData<fn(T)>,
}

#[derive(Default)]
struct Keys {
    known: BTreeSet<Key>,
    /// Those of the list that is being read.
    listed: Option<BTreeSet<Key>>,
}

impl<T> Others<T> {
    pub fn new(shared: Shared, see: fn(&mut Cluster, Key, T), lose: fn(&mut Cluster, &Key)) -> Others<T> {
        Others { shared, see, lose, keys: Mutex::default(), object: PhantomData }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Cached> Sink for Others<T> {
    type Object = T;

    fn listing(&self) {
        self.keys().listed = Some(BTreeSet::new());
    }

    fn seen(&self, object: T) {
        let key = object.key();
        {
            let mut keys = self.keys();
            keys.known.insert(key.clone());
            if let Some(listed) = &mut keys.listed {
                listed.insert(key.clone());
            }
        }
        self.shared.tell(|cluster| (self.see)(cluster, key, object));
    }

    fn gone(&self, object: T) {
        let key = object.key();
        self.keys().known.remove(&key);
        self.shared.tell(|cluster| (self.lose)(cluster, &key));
    }

    fn listed(&self) {
        let gone: Vec<Key> = {
            let mut keys = self.keys();
            let Some(listed) = keys.listed.take() else { return };
            let gone = keys.known.difference(&listed).cloned().collect();
            keys.known = listed;
            gone
        };
        self.shared.tell(|cluster| gone.iter().for_each(|key| (self.lose)(cluster, key)));
    }
}
