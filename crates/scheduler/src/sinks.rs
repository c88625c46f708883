//! What the API server tells goes straight into the cluster's state.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use setpoint_runtime::cache::Sink;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::pod::Pod;

/// The state that feeds fill and the scheduler reads.
#[derive(Clone)]
pub struct Shared {
    cluster: Arc<Mutex<Cluster>>,
    changed: Arc<Notify>,
}

impl Shared {
    pub fn new(scheduler: &str) -> Shared {
        Shared { cluster: Arc::new(Mutex::new(Cluster::new(scheduler))), changed: Arc::default() }
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

/// Takes nodes.
pub struct Nodes {
    shared: Shared,
    /// Those of the list that is being read.
    listing: Mutex<Option<BTreeSet<Box<str>>>>,
}

impl Nodes {
    pub fn new(shared: Shared) -> Nodes {
        Nodes { shared, listing: Mutex::default() }
    }

    fn listing(&self) -> std::sync::MutexGuard<'_, Option<BTreeSet<Box<str>>>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Nodes {
    type Object = Node;

    fn listing(&self) {
        *self.listing() = Some(BTreeSet::new());
    }

    fn seen(&self, node: Node) {
        if let Some(listed) = &mut *self.listing() {
            listed.insert(node.metadata.name.clone());
        }
        self.shared.tell(|cluster| cluster.see_node(node));
    }

    fn gone(&self, node: Node) {
        self.shared.tell(|cluster| cluster.lose_node(&node.metadata.name));
    }

    fn listed(&self) {
        let Some(listed) = self.listing().take() else { return };
        self.shared.tell(|cluster| {
            for name in cluster.node_names().into_iter().filter(|name| !listed.contains(name)) {
                cluster.lose_node(&name);
            }
        });
    }
}
