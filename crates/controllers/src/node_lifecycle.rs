//! Nodes that fall silent are said to be unknown, nodes that can't run pods are marked so, and their pods are sent away, but not
//! all at once.

mod act;
mod heartbeat;
mod plan;
mod zones;

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, LeanMeta, Target};
use setpoint_runtime::clock::Clock;
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::queue::WorkQueue;

use self::heartbeat::{Grace, Heartbeats};
use self::plan::Threat;
use self::zones::{Gate, Permit, Zones};
use crate::Wiring;
use crate::node::Node;
use crate::pod::{self, Pod};
use crate::wiring::{normal, warning};

const LEASES: &str = "kube-node-lease";

/// How many nodes are looked at at once.
const WORKERS: usize = 8;

/// The heartbeat of a node.
#[derive(Deserialize)]
struct Lease {
    metadata: LeanMeta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<MicroTime>,
}

setpoint_runtime::lean_view!(Lease of coordination::Lease);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("node-lifecycle-controller")?;
    let leases = Target::of::<coordination::Lease>(&(), Some(LEASES));
    let specific = wiring.specific();
    let keeper = Arc::new(Keeper {
        nodes: wiring.informer(),
        leases: wiring.informer_of(leases),
        pods: wiring.pods(),
        heartbeats: Heartbeats::default(),
        gate: Gate::default(),
        last: Mutex::default(),
        recorder: desk.recorder.clone(),
        grace: Grace { usual: specific.node_monitor_grace_period, startup: specific.node_startup_grace_period },
    });
    zones::index(&keeper.nodes);
    let reconciling = keeper.clone();
    let controller = desk
        .controller(&keeper.nodes, WORKERS)
        .watches_where(&keeper.pods, placed(), |pod: &Pod| vec![Key::cluster(&pod.spec.node_name)])
        // Heartbeats wake nobody, but nodes are not judged before they are known.
        .watches(&keeper.leases, |_: &Lease| Vec::new())
        .build(move |context: Context, key: Key| {
            let keeper = reconciling.clone();
            async move { keeper.reconcile(context, key).await }
        });
    keeper.listen(desk.clock, controller.handle().queue().clone());
    desk.run(controller)
}

/// Pods that were placed on a node, or that say that they are ready.
fn placed() -> Predicate<Pod> {
    Predicate::new(|old: Option<&Pod>, new: &Pod| {
        let news = |old: &Pod| old.spec.node_name != new.spec.node_name || !old.is_ready();
        !new.spec.node_name.is_empty() && new.is_ready() && old.is_none_or(news)
    })
}

struct Keeper {
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    heartbeats: Heartbeats,
    gate: Gate,
    /// How zones were when somebody last looked: what changed wakes their nodes.
    last: Mutex<Zones>,
    recorder: Recorder,
    grace: Grace,
}

impl Keeper {
    /// Hears heartbeats as they come, and sees zones fail and come back.
    fn listen(self: &Arc<Self>, clock: Clock, queue: WorkQueue<Key>) {
        // Caches hold their handlers; what a handler holds must not hold a cache.
        let keeper = Arc::downgrade(self);
        let heard = move |event: &setpoint_runtime::cache::Event<Lease>| {
            let (lease, Some(keeper)) = (event.object(), keeper.upgrade()) else { return };
            if let Some(renewed) = &lease.spec.renew_time {
                keeper.heartbeats.renewed(lease.metadata.key.name(), renewed, clock.wall());
            }
        };
        self.leases.add_handler(Box::new(heard), None).keep();
        let keeper = Arc::downgrade(self);
        let seen = move |_: &setpoint_runtime::cache::Event<Node>| {
            if let Some(keeper) = keeper.upgrade() {
                keeper.look(&clock, &queue);
            }
        };
        self.nodes.add_handler(Box::new(seen), None).keep();
    }

    /// Wakes nodes that aren't ready if what their zones allow is another.
    fn look(&self, clock: &Clock, queue: &WorkQueue<Key>) {
        let nodes = self.nodes.lister().snapshot();
        let zones = Zones::of(&nodes);
        let before = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == zones {
                return;
            }
            std::mem::replace(&mut *last, zones.clone())
        };
        if before.all_down() && !zones.all_down() {
            self.heartbeats.reset(clock.wall());
        }
        for node in nodes.iter().filter(|node| !node.is_ready()) {
            queue.add(node.key());
        }
    }

    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(node) = context.read(&self.nodes, &key) else {
            if let Some(uid) = self.heartbeats.forget(key.name()) {
                self.tell(key.name(), &uid, "RemovingNode", &format!("Removing Node {} from Controller", key.name()));
            }
            return Ok(Action::done());
        };
        let now = context.clock().wall();
        let lease = self.leases.lister().get(Key::namespaced(LEASES, key.name()).as_str());
        let renewed = lease.as_ref().and_then(|lease| lease.spec.renew_time.as_ref());
        let (heartbeat, before) = self.heartbeats.observe(&node, renewed, now);
        if before.is_none() {
            let said = format!("Registered Node {} in Controller", key.name());
            self.tell(key.name(), &node.metadata.uid, "RegisteredNode", &said);
        }
        if let Some(conditions) = plan::silence(&node, &heartbeat, self.grace, now) {
            act::say(context.client(), &node, &conditions).await?;
            return Ok(Action::done());
        }
        if heartbeat.was_ready && !node.is_ready() {
            let said = format!("Node {} status is now: NodeNotReady", key.name());
            normal(&self.recorder, reference(key.name(), &node.metadata.uid), "NodeNotReady", "NodeNotReady", said);
        }
        self.heartbeats.remember(key.name(), |heartbeat| heartbeat.was_ready = node.is_ready());

        let zones = Zones::of(&self.nodes.lister().snapshot());
        let permit = match plan::needs_permit(&node) {
            true => self.gate.ask(&zones, &node.zone(), now),
            false => Permit::Never,
        };
        let taints = plan::taints(&node, permit, zones.all_down(), now);
        let labels = plan::labels(&node.metadata.labels);
        if taints.is_some() || !labels.is_empty() {
            act::mark(context.client(), &node, taints, &labels).await?;
        }
        self.tell_pods(&context, &node, heartbeat.pods_told.as_ref()).await?;
        let silent = (!says_unknown(&node)).then(|| context.clock().until(heartbeat.deadline(self.grace)));
        let permit = match permit {
            Permit::After(wait) => Some(wait),
            Permit::Now | Permit::Never => None,
        };
        Ok(silent.into_iter().chain(permit).min().map_or(Action::done(), Action::requeue_after))
    }

    /// Says of the pods of a node that isn't ready that they take no traffic.
    ///
    /// A node that can't be reached says nothing else about them. One that can may, so they are told once only.
    async fn tell_pods(&self, context: &Context, node: &Node, told: Option<&Time>) -> Result<(), Error> {
        let since = node.condition("Ready").and_then(|ready| ready.last_transition_time.as_ref());
        let again = says_unknown(node) || told != since || since.is_none();
        if !again || !matches!(plan::threat(node), Threat::Leave(_)) {
            return Ok(());
        }
        let time = context.clock().time();
        let pods = self.pods.lister().snapshot();
        for pod in pods.by_index(pod::BY_NODE, &node.metadata.name).filter(|pod| pod.is_ready()) {
            if act::not_ready(context.client(), pod, &time).await? {
                let (said, about) = ("Node is not ready".to_owned(), pod.reference());
                warning(&self.recorder, about, "NodeNotReady", "NodeNotReady", said);
            }
        }
        self.heartbeats.remember(&node.metadata.name, |heartbeat| heartbeat.pods_told = since.cloned());
        Ok(())
    }

    fn tell(&self, name: &str, uid: &str, reason: &str, event: &str) {
        let said = format!("Node {name} event: {event}");
        normal(&self.recorder, reference(name, uid), reason, reason, said);
    }
}

fn says_unknown(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|ready| &*ready.status == "Unknown")
}

fn reference(name: &str, uid: &str) -> ObjectReference {
    let (api_version, kind) = (Some("v1".to_owned()), Some("Node".to_owned()));
    let (name, uid) = (Some(name.to_owned()), Some(uid.to_owned()));
    ObjectReference { api_version, kind, name, uid, ..ObjectReference::default() }
}
