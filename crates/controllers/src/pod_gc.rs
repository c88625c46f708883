//! Takes away pods that nobody will end: on nodes that are gone or off, never placed, or ended and too many.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;
use crate::node::Node;
use crate::pod::{self, Pod};
use crate::removal::{self, How, Why};

/// How long a node may be missing from the cache before somebody asks the server whether it is gone.
const QUARANTINE: Duration = Duration::from_secs(40);

/// When a node that the server knows is asked for again, if the cache still doesn't.
const ASK_AGAIN: Duration = Duration::from_secs(20);

/// How many pods are deleted at once.
const DELETES: usize = 16;

const GONE: Why = Why { reason: "DeletionByPodGC", message: "PodGC: node no longer exists" };

/// The index of pods that have ended.
const BY_END: &str = "ended";

/// Adds the controller. Its keys are names of nodes, the empty one for pods without, and one for all pods that have ended.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("pod-garbage-collector-controller")?;
    let collector = Arc::new(Collector {
        nodes: wiring.informer(),
        pods: wiring.pods(),
        missing_since: Mutex::default(),
        ended_max: wiring.specific().ended_pods_max,
    });
    collector.pods.add_index(BY_END, |pod| if pod.has_ended() { vec![String::new()] } else { Vec::new() });
    let (reconciling, nodes) = (collector.clone(), collector.nodes.clone());
    let controller = desk
        .controller(&collector.nodes, 4)
        .predicate(Predicate::new(|old: Option<&Node>, new: &Node| {
            plan::is_off(new) && old.is_none_or(|old| !plan::is_off(old))
        }))
        .watches_where(&collector.pods, placed_or_ended(), move |pod| keys(&nodes, pod))
        .build(move |context: Context, key: Key| {
            let collector = reconciling.clone();
            async move { collector.reconcile(context, key).await }
        });
    desk.run(controller)
}

fn placed_or_ended() -> Predicate<Pod> {
    Predicate::new(|old: Option<&Pod>, new: &Pod| {
        old.is_none_or(|old| old.spec.node_name != new.spec.node_name || old.has_ended() != new.has_ended())
    })
}

/// The key of all pods that have ended; no node has two parts in its name.
fn all_ended() -> Key {
    Key::namespaced("pods", "ended")
}

fn keys(nodes: &Informer<Node>, pod: &Pod) -> Vec<Key> {
    let mut keys = Vec::new();
    let node = nodes.lister().get(&pod.spec.node_name);
    let is_of_concern = match node {
        None if pod.spec.node_name.is_empty() => plan::awaits_end(pod),
        None => true,
        Some(node) => plan::is_off(&node) && plan::awaits_end(pod),
    };
    if is_of_concern {
        keys.push(Key::cluster(&pod.spec.node_name));
    }
    if pod.has_ended() {
        keys.push(all_ended());
    }
    keys
}

struct Collector {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Since when nodes that pods are on aren't in the cache. A process that starts waits anew.
    missing_since: Mutex<BTreeMap<Key, Timestamp>>,
    /// So many pods that have ended are kept; none for all.
    ended_max: Option<usize>,
}

impl Collector {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        if key == all_ended() {
            let Some(most) = self.ended_max else { return Ok(Action::done()) };
            let ended = self.pods.lister().snapshot().by_index(BY_END, "").cloned().collect();
            let surplus = plan::too_many(ended, most);
            return self.remove(&context, surplus, None).await.map(|()| Action::done());
        }
        let pods = self.pods.lister().snapshot();
        let pods: Vec<_> = pods.by_index(pod::BY_NODE, key.name()).cloned().collect();
        let lingering = || pods.iter().filter(|pod| plan::awaits_end(pod)).cloned().collect();
        let node = context.read(&self.nodes, &key);
        if node.is_some() || pods.is_empty() || key.name().is_empty() {
            self.missing_since.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        match node {
            Some(node) if plan::is_off(&node) => self.remove(&context, lingering(), None).await?,
            Some(_) => {}
            None if key.name().is_empty() => self.remove(&context, lingering(), None).await?,
            None if pods.is_empty() => {}
            None => return self.collect_orphans(&context, &key, pods).await,
        }
        Ok(Action::done())
    }

    /// Takes pods away whose node is gone, once that is certain.
    async fn collect_orphans(&self, context: &Context, key: &Key, pods: Vec<Arc<Pod>>) -> Result<Action, Error> {
        let clock = context.clock();
        let since = {
            let mut missing = self.missing_since.lock().unwrap_or_else(PoisonError::into_inner);
            *missing.entry(key.clone()).or_insert_with(|| clock.wall())
        };
        let missed = Duration::try_from(clock.wall().duration_since(since)).unwrap_or_default();
        if missed < QUARANTINE {
            return Ok(Action::requeue_after(QUARANTINE.saturating_sub(missed)));
        }
        let nodes: Api<core::Node> = Api::all(context.client().clone());
        match nodes.get_metadata(key.name()).await {
            Ok(_) => return Ok(Action::requeue_after(ASK_AGAIN)),
            Err(error) if retry::is_not_found(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let pods = pods.into_iter().filter(|pod| !pod.is_deleting() || plan::awaits_end(pod)).collect();
        self.remove(context, pods, Some(GONE)).await?;
        Ok(Action::done())
    }

    async fn remove(&self, context: &Context, pods: Vec<Arc<Pod>>, why: Option<Why>) -> Result<(), Error> {
        let time = context.clock().time();
        let removing = stream::iter(pods).map(|pod| {
            let (client, time) = (context.client(), &time);
            async move { removal::remove(client, &pod, why, How::AtOnce, time).await }
        });
        Ok(removing.buffer_unordered(DELETES).try_collect::<()>().await?)
    }
}
