//! The loop: takes the next pod, finds its node, and tells the API server. Bindings are on their way while the next pod is
//! looked at.

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{PartialObjectMeta, Request};
use serde_json::json;
use setpoint_runtime::cache::{Feed, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::events::{Happening, Recorder, Severity};
use setpoint_runtime::manager::{Lifecycle, RunError, Runnable};
use setpoint_runtime::{Key, retry};
use tokio::time::Instant;

use crate::DEFAULT;
use crate::cluster::Next;
use crate::queue::Waiting;
use crate::sinks::{Nodes, Pods, Shared};

/// How many answers of the API server are waited for at once.
const ON_THE_WAY_MAX: usize = 128;

/// Pods to nodes, as a part of a manager.
pub struct Scheduler {
    client: Client,
    clock: Clock,
    chance: Chance,
    recorder: Recorder,
    shared: Shared,
}

/// What came of something that was on its way.
enum Done {
    Bound(Waiting),
    NotBound(Waiting),
    Told,
}

impl Scheduler {
    pub fn new(client: Client, clock: Clock, chance: Chance, recorder: Recorder) -> Scheduler {
        Scheduler { client, clock, chance, recorder, shared: Shared::new(DEFAULT) }
    }

    /// Schedules for ever.
    async fn schedule(&self) {
        let mut on_the_way = FuturesUnordered::new();
        loop {
            while on_the_way.len() < ON_THE_WAY_MAX {
                let Some(next) = self.shared.with(|cluster| cluster.next(Instant::now())) else { break };
                on_the_way.push(self.act(next));
            }
            let pause = self.shared.with(|cluster| cluster.queue.next_pause());
            tokio::select! {
                biased;
                Some(done) = on_the_way.next(), if !on_the_way.is_empty() => self.finish(done),
                () = self.shared.told(), if on_the_way.len() < ON_THE_WAY_MAX => {}
                () = sleep_until(pause), if pause.is_some() => {}
            }
        }
    }

    async fn act(&self, next: Next) -> Done {
        match next {
            Next::Bind(pod, node) => match self.bind(&pod, &node).await {
                Ok(()) => {
                    let note = format!("Successfully assigned {} to {node}", pod.key);
                    self.say(&pod, Severity::Normal, "Scheduled", "Binding", note);
                    Done::Bound(pod)
                }
                // Gone, or another of the same name.
                Err(error) if retry::is_not_found(&error) => Done::Bound(pod),
                Err(error) => {
                    tracing::debug!(pod = %pod.key, %node, %error, "a pod could not be bound");
                    let note = format!("binding rejected: {error}");
                    self.say(&pod, Severity::Warning, "FailedScheduling", "Scheduling", note);
                    Done::NotBound(pod)
                }
            },
            Next::Tell(pod, why) => {
                if *pod.told != *why {
                    self.say(&pod, Severity::Warning, "FailedScheduling", "Scheduling", why.clone());
                    self.tell(&pod, &why).await;
                }
                Done::Told
            }
        }
    }

    fn finish(&self, done: Done) {
        self.shared.with(|cluster| match done {
            Done::Bound(pod) => cluster.bound(&pod.uid),
            Done::NotBound(pod) => cluster.not_bound(&pod.uid, Instant::now()),
            Done::Told => {}
        });
    }

    async fn bind(&self, pod: &Waiting, node: &str) -> Result<(), kube::Error> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.key.name().to_owned()),
                namespace: pod.key.namespace().map(str::to_owned),
                uid: Some(pod.uid.to_string()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let body = serde_json::to_vec(&binding).map_err(kube::Error::SerdeError)?;
        let request = Request::new(self.path(&pod.key))
            .create_subresource("binding", pod.key.name(), &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<serde_json::Value>(request).await.map(drop)
    }

    /// Writes why a pod fits nowhere. If that fails the next try tells again.
    async fn tell(&self, pod: &Waiting, why: &str) {
        let now = self.clock.time();
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": &*pod.uid},
            "status": {"conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
                "lastProbeTime": null,
                "lastTransitionTime": now,
            }]},
        }));
        let request = Request::new(self.path(&pod.key)).patch_subresource(
            "status",
            pod.key.name(),
            &PatchParams::default(),
            &patch,
        );
        let Ok(request) = request else { return };
        if let Err(error) = self.client.request::<PartialObjectMeta<Pod>>(request).await
            && !retry::is_not_found(&error)
        {
            tracing::debug!(pod = %pod.key, %error, "a pod could not be told why it waits");
        }
    }

    fn path(&self, key: &Key) -> String {
        Api::<Pod>::namespaced(self.client.clone(), key.namespace().unwrap_or_default()).resource_url().to_owned()
    }

    fn say(&self, pod: &Waiting, severity: Severity, reason: &str, action: &str, note: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.key.name().to_owned()),
            namespace: pod.key.namespace().map(str::to_owned),
            uid: Some(pod.uid.to_string()),
            ..ObjectReference::default()
        };
        let happening = Happening { severity, reason: reason.to_owned(), action: action.to_owned(), note };
        self.recorder.record(about, happening);
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Runnable for Scheduler {
    fn name(&self) -> &str {
        DEFAULT
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let pods = Target::of::<Pod>(&(), None);
            let pods = Feed::new(self.client.clone(), pods, &self.chance, Pods(self.shared.clone()));
            let nodes = Target::of::<k8s_openapi::api::core::v1::Node>(&(), None);
            let nodes = Feed::new(self.client.clone(), nodes, &self.chance, Nodes::new(self.shared.clone()));
            let synced = [pods.synced(), nodes.synced()];
            let schedule = async {
                // Before all pods are known, a node may seem to have room that it hasn't.
                for mut synced in synced {
                    // An error means that the feed is gone, and with it this task.
                    let _ = synced.wait_for(|it| *it).await;
                }
                lifecycle.ready();
                self.schedule().await;
            };
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = pods.run() => {}
                () = nodes.run() => {}
                () = schedule => {}
            }
            Ok(())
        })
    }
}
