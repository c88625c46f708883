//! Pods go from nodes whose taints they don't bear, or don't bear any longer.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;

use self::plan::{Since, Stay};
use crate::Wiring;
use crate::node::Node;
use crate::pod::{self, Pod};
use crate::removal::{self, How, Why};
use crate::wiring::normal;

const WHY: Why = Why { reason: "DeletionByTaintManager", message: "Taint manager: deleting due to NoExecute taint" };

/// How many nodes are looked at at once.
const WORKERS: usize = 8;

/// How many pods of a node are deleted at once.
const DELETES: usize = 8;

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("taint-eviction-controller")?;
    let evictor = Arc::new(Evictor {
        nodes: wiring.informer(),
        pods: wiring.pods(),
        known: Mutex::default(),
        recorder: desk.recorder.clone(),
    });
    let reconciling = evictor.clone();
    let controller = desk
        .controller(&evictor.nodes, WORKERS)
        .predicate(Predicate::new(|old: Option<&Node>, new: &Node| {
            old.is_none_or(|old| !plan::evicting(old).eq(plan::evicting(new)))
        }))
        .watches_where(&evictor.pods, placed_or_bearing_else(), |pod: &Pod| {
            let node = Some(&*pod.spec.node_name).filter(|node| !node.is_empty());
            node.map(Key::cluster).into_iter().collect()
        })
        .build(move |context: Context, key: Key| {
            let evictor = reconciling.clone();
            async move { evictor.reconcile(context, key).await }
        });
    desk.run(controller)
}

fn placed_or_bearing_else() -> Predicate<Pod> {
    Predicate::new(|old: Option<&Pod>, new: &Pod| {
        old.is_none_or(|old| old.spec.node_name != new.spec.node_name || old.spec.tolerations != new.spec.tolerations)
    })
}

struct Evictor {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// What is remembered of nodes that have taints. Without it taints that don't say since when they are there count anew.
    known: Mutex<BTreeMap<Key, Known>>,
    recorder: Recorder,
}

#[derive(Clone, Default)]
struct Known {
    since: Since,
    /// Pods that will have to go.
    waiting: BTreeSet<Key>,
}

impl Evictor {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let now = context.clock().wall();
        let before = self.known().remove(&key).unwrap_or_default();
        let Some(node) = context.read(&self.nodes, &key) else { return Ok(Action::done()) };
        if plan::evicting(&node).next().is_none() {
            before.waiting.iter().for_each(|pod| self.spare(pod));
            return Ok(Action::done());
        }
        let since = plan::since(&before.since, &node, now);
        let (mut due, mut waiting, mut next) = (Vec::new(), BTreeSet::new(), None::<Timestamp>);
        let pods = self.pods.lister().snapshot();
        for pod in pods.by_index(pod::BY_NODE, key.name()).filter(|pod| !pod.is_deleting()) {
            match plan::stay(&node, &since, &pod.spec.tolerations, plan::placed_at(pod).min(now)) {
                Stay::Until(moment) if moment <= now => due.push(pod.clone()),
                Stay::Until(moment) => {
                    waiting.insert(pod.key());
                    next = Some(next.map_or(moment, |next| next.min(moment)));
                }
                Stay::Forever if before.waiting.contains(&pod.key()) => self.spare(&pod.key()),
                Stay::Forever => {}
            }
        }
        self.known().insert(key, Known { since, waiting });
        self.evict(&context, due).await?;
        Ok(next.map_or(Action::done(), |next| Action::requeue_after(context.clock().until(next))))
    }

    async fn evict(&self, context: &Context, pods: Vec<Arc<Pod>>) -> Result<(), Error> {
        let time = context.clock().time();
        let evicting = stream::iter(pods).map(|pod| {
            let (client, time) = (context.client(), &time);
            async move {
                removal::remove(client, &pod, Some(WHY), How::InOrder, time).await?;
                self.say(&pod.key(), "Marking for deletion");
                Ok::<(), kube::Error>(())
            }
        });
        Ok(evicting.buffer_unordered(DELETES).try_collect::<()>().await?)
    }

    fn spare(&self, pod: &Key) {
        self.say(pod, "Cancelling deletion of");
    }

    fn say(&self, pod: &Key, what: &str) {
        let (api_version, kind) = (Some("v1".to_owned()), Some("Pod".to_owned()));
        let (name, namespace) = (Some(pod.name().to_owned()), pod.namespace().map(str::to_owned));
        let about = ObjectReference { api_version, kind, name, namespace, ..ObjectReference::default() };
        normal(&self.recorder, about, "TaintManagerEviction", "TaintManagerEviction", format!("{what} Pod {pod}"));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
