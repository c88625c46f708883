//! Nodes register, and say again and again that they are well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::json;
use setpoint_runtime::cache::{Cached, Informer, InformerOptions, Pairs, Target};
use setpoint_runtime::clock::Clock;
use setpoint_runtime::manager::{Lifecycle, Manager, ManagerError, RunError, Runnable};
use setpoint_runtime::{Key, retry};
use tokio::time::Instant;

use super::identity::{ANNOTATIONS, Nodes, SIMULATED_LABEL, conditions};

/// Where leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// How long a lease holds.
const LEASE_SECONDS: i32 = 40;
/// How often a lease is renewed.
const RENEWAL: Duration = Duration::from_secs(10);
/// How often a node writes its conditions although nothing changed, in renewals.
const RENEWALS_PER_STATUS: u64 = 30;
/// How long a flapping node is there, and then away.
const FLAP_SECONDS: i64 = 60;
/// How many nodes speak at once.
const AT_ONCE: usize = 16;

/// A node, as far as its simulation reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct NodeView {
    metadata: NodeMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Box<[NodeCondition]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeMeta {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    annotations: Pairs,
}

impl NodeView {
    /// Whether the node does anything at all now.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        match self.chosen("heartbeat") {
            Some("stopped") => false,
            Some("flapping") => now.as_second().div_euclid(FLAP_SECONDS) % 2 == 0,
            _ => true,
        }
    }

    /// When a node that is silent now may do something again by itself.
    pub fn wakes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let next = (now.as_second().div_euclid(FLAP_SECONDS) + 1).saturating_mul(FLAP_SECONDS);
        (self.chosen("heartbeat") == Some("flapping")).then(|| Timestamp::from_second(next).unwrap_or(Timestamp::MAX))
    }

    /// Whether it says that it can run pods.
    fn should_be_ready(&self) -> bool {
        self.chosen("ready") != Some("false")
    }

    /// Containers that ran at this moment are lost.
    pub fn pods_lost_at(&self) -> Option<Timestamp> {
        self.chosen("pods-lost-at").and_then(|text| text.parse().ok())
    }

    fn chosen(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.get(&format!("{ANNOTATIONS}{name}"))
    }

    /// Whether the API says that the node is well: others may have written that they don't know.
    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| &*condition.kind == "Ready" && &*condition.status == "True")
    }
}

impl Cached for NodeView {
    type Kind = Node;

    fn key(&self) -> Key {
        Key::cluster(&self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

/// Adds the part that registers nodes and renews their leases; the cache of nodes, for others.
pub fn add_to(manager: &Manager, client: &Client, nodes: &Arc<Nodes>) -> Result<Informer<NodeView>, ManagerError> {
    let target = Target::of::<Node>(&(), None).labels(format!("{SIMULATED_LABEL}=true"));
    let seen = manager.informers().with(target, InformerOptions::default);
    let heart = Heart { client: client.clone(), clock: manager.clock(), nodes: nodes.clone(), seen: seen.clone() };
    manager.add(heart)?;
    Ok(seen)
}

/// All heartbeats, from one task.
struct Heart {
    client: Client,
    clock: Clock,
    nodes: Arc<Nodes>,
    seen: Informer<NodeView>,
}

/// The next word of a node.
struct Beat {
    at: Instant,
    node: usize,
    count: u64,
}

impl Runnable for Heart {
    fn name(&self) -> &str {
        "simulated nodes"
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = self.beat(&lifecycle) => {}
            }
            Ok(())
        })
    }
}

impl Heart {
    async fn beat(&self, lifecycle: &Lifecycle) {
        self.seen.until_synced().await;
        stream::iter(0..self.nodes.count()).for_each_concurrent(AT_ONCE, |node| self.register(node)).await;
        lifecycle.ready();
        let mut beats = self.beats();
        while let Some(beat) = beats.front() {
            tokio::time::sleep_until(beat.at).await;
            let now = Instant::now();
            let due = beats.iter().take_while(|beat| beat.at <= now).take(AT_ONCE).count();
            let due: Vec<Beat> = beats.drain(..due).collect();
            stream::iter(&due).for_each_concurrent(AT_ONCE, |beat| self.say(beat)).await;
            // All have the same period, so the order of their next words is that of these.
            beats.extend(due.into_iter().map(|beat| Beat {
                at: beat.at + RENEWAL,
                count: beat.count + 1,
                node: beat.node,
            }));
        }
    }

    /// The first words, spread over one period.
    fn beats(&self) -> VecDeque<Beat> {
        let (now, count) = (Instant::now(), self.nodes.count());
        let share = |node: usize| RENEWAL.mul_f64((node + 1) as f64 / count.max(1) as f64);
        (0..count).map(|node| Beat { at: now + share(node), node, count: 1 }).collect()
    }

    /// Makes the node unless it is there, and its lease.
    async fn register(&self, node: usize) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let object = self.nodes.object(node, self.clock.wall());
        let name = self.nodes.name(node);
        let known = self.seen.lister().get(&name).is_some();
        let made = if known { Ok(()) } else { nodes.create(&PostParams::default(), &object).await.map(drop) };
        match made {
            Err(error) if !retry::is_already_exists(&error) => tracing::warn!(name, %error, "a node isn't registered"),
            _ => {
                self.write_status(node).await;
                self.renew(node).await;
            }
        }
    }

    async fn say(&self, beat: &Beat) {
        // A node that somebody deleted stays away until the next start, as a real one does.
        let Some(seen) = self.seen.lister().get(&self.nodes.name(beat.node)) else { return };
        if !seen.is_alive(self.clock.wall()) {
            return;
        }
        self.renew(beat.node).await;
        if beat.count.is_multiple_of(RENEWALS_PER_STATUS) || seen.is_ready() != seen.should_be_ready() {
            self.write_status(beat.node).await;
        }
    }

    async fn renew(&self, node: usize) {
        let name = self.nodes.name(node);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let renewal = Patch::Merge(json!({"spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": self.clock.micro_time(),
        }}));
        let renewed = match leases.patch_metadata(&name, &PatchParams::default(), &renewal).await {
            Err(error) if retry::is_not_found(&error) => self.make_lease(&leases, &name).await,
            other => other.map(drop),
        };
        if let Err(error) = renewed {
            tracing::warn!(name, %error, "a lease of a node isn't renewed");
        }
    }

    async fn make_lease(&self, leases: &Api<Lease>, name: &str) -> Result<(), kube::Error> {
        let node: PartialObjectMeta<Node> = Api::<Node>::all(self.client.clone()).get_metadata(name).await?;
        let owner =
            node.metadata.uid.clone().map(|uid| k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
                api_version: Node::api_version(&()).into_owned(),
                kind: Node::kind(&()).into_owned(),
                name: name.to_owned(),
                uid,
                ..Default::default()
            });
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(self.clock.micro_time()),
            ..LeaseSpec::default()
        };
        leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.map(drop)
    }

    /// Writes that the node is well. The times of changes are those of the conditions that were there.
    async fn write_status(&self, node: usize) {
        let name = self.nodes.name(node);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let Ok(Some(live)) = nodes.get_opt(&name).await else { return };
        let is_ready = self.seen.lister().get(&name).is_none_or(|seen| seen.should_be_ready());
        let mut wanted = conditions(self.clock.wall(), is_ready);
        let old = live.status.and_then(|status| status.conditions).unwrap_or_default();
        for condition in wanted.as_array_mut().into_iter().flatten() {
            let same = old.iter().find(|old| condition["type"] == *old.type_ && condition["status"] == *old.status);
            if let Some(since) = same.and_then(|old| old.last_transition_time.as_ref()) {
                condition["lastTransitionTime"] = json!(since);
            }
        }
        let patch = Patch::Strategic(json!({"status": {"conditions": wanted}}));
        if let Err(error) = nodes.patch_status(&name, &PatchParams::default(), &patch).await {
            tracing::warn!(name, %error, "a node can't say how it is");
        }
    }
}
