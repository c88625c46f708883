//! What the scheduler tells the API server.

use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use setpoint_runtime::clock::Clock;
use setpoint_runtime::events::{Happening, Recorder, Severity};
use setpoint_runtime::{Key, retry};

use crate::cluster::Next;
use crate::preemption::{Preemption, Victim};
use crate::queue::Waiting;
use crate::storage::{SELECTED_NODE, Step};

/// An event tells no more than this of why a pod is not scheduled: the rest is in its condition.
const NOTE_BYTES_MAX: usize = 1024;

/// Acts on decisions.
pub struct Acts {
    pub client: Client,
    pub clock: Clock,
    pub recorder: Recorder,
}

/// What came of something that was on its way.
pub enum Done {
    Bound(Waiting),
    NotBound(Waiting),
    NotPrepared(Waiting, Vec<Step>),
    Told,
}

impl Acts {
    pub async fn act(&self, next: Next) -> Done {
        match next {
            Next::Bind(pod, node) => self.bind_and_say(pod, &node).await,
            Next::Prepare(pod, node, steps) => match self.hold_and_prepare(&pod, &node, &steps).await {
                Ok(()) => Done::Told,
                Err(error) => {
                    let note = format!("binding volumes: {error}");
                    self.say(&pod.key, &pod.uid, Severity::Warning, ("FailedScheduling", "Scheduling"), note);
                    Done::NotPrepared(pod, steps)
                }
            },
            Next::Tell(pod, why, is_outdone) => {
                if *pod.told != *why || is_outdone {
                    self.say_why(&pod, &why);
                    self.tell(&pod, &why, is_outdone.then_some(Value::Null)).await;
                }
                Done::Told
            }
            Next::Preempt(pod, why, preemption, outdone) => self.preempt(pod, &why, preemption, outdone).await,
        }
    }

    async fn bind_and_say(&self, pod: Waiting, node: &str) -> Done {
        match self.bind(&pod, node).await {
            Ok(()) => {
                let note = format!("Successfully assigned {} to {node}", pod.key);
                self.say(&pod.key, &pod.uid, Severity::Normal, ("Scheduled", "Binding"), note);
                Done::Bound(pod)
            }
            // Gone, or another of the same name.
            Err(error) if retry::is_not_found(&error) => Done::Bound(pod),
            Err(error) => {
                tracing::debug!(pod = %pod.key, %node, %error, "a pod could not be bound");
                let note = format!("binding rejected: {error}");
                self.say(&pod.key, &pod.uid, Severity::Warning, ("FailedScheduling", "Scheduling"), note);
                Done::NotBound(pod)
            }
        }
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
        self.client.request::<IgnoredAny>(request).await.map(drop)
    }

    /// Tells others, such as those who add nodes, where a pod will be, and gets its volumes ready there.
    async fn hold_and_prepare(&self, pod: &Waiting, node: &str, steps: &[Step]) -> Result<(), kube::Error> {
        if &*pod.nominated != node {
            let patch = json!({"metadata": {"uid": &*pod.uid}, "status": {"nominatedNodeName": node}});
            self.patch_status(&pod.key, patch).await;
        }
        self.prepare(node, steps).await
    }

    /// Gets volumes ready on a node.
    async fn prepare(&self, node: &str, steps: &[Step]) -> Result<(), kube::Error> {
        for step in steps {
            let namespace = step.claim().namespace().unwrap_or_default();
            match step {
                Step::Give { claim, uid, volume } => {
                    let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
                    let patch = json!({
                        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                        "spec": {"claimRef": {
                            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                            "namespace": namespace, "name": claim.name(), "uid": uid,
                        }},
                    });
                    volumes.patch_metadata(volume, &PatchParams::default(), &Patch::Merge(patch)).await?;
                }
                Step::Await { .. } => {}
                Step::Select { claim } => {
                    let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
                    let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                    claims.patch_metadata(claim.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends pods away and holds their node for another.
    async fn preempt(&self, pod: Waiting, why: &str, preemption: Preemption, outdone: Vec<Key>) -> Done {
        for key in &outdone {
            let patch = json!({"status": {"nominatedNodeName": null}});
            self.patch_status(key, patch).await;
        }
        let leave = preemption.victims.iter().filter(|victim| !victim.is_leaving);
        let leave = leave.map(|victim| self.send_away(&pod, victim, &preemption.name));
        if let Err(error) = try_join_all(leave).await {
            tracing::debug!(pod = %pod.key, %error, "a pod could not be sent away");
            return Done::NotPrepared(pod, Vec::new());
        }
        self.say_why(&pod, why);
        self.tell(&pod, why, Some(json!(&*preemption.name))).await;
        Done::Told
    }

    async fn send_away(&self, pod: &Waiting, victim: &Victim, node: &str) -> Result<(), kube::Error> {
        let scheduler = &pod.demand.profile.name;
        let condition = json!({
            "metadata": {"uid": &*victim.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
                "lastProbeTime": null,
                "lastTransitionTime": self.clock.time(),
            }]},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), victim.key.namespace().unwrap_or_default());
        let gone = |error: kube::Error| if retry::is_not_found(&error) { Ok(()) } else { Err(error) };
        let params = PatchParams::default();
        let told = pods.patch_status(victim.key.name(), &params, &Patch::Strategic(condition)).await;
        told.map(drop).or_else(gone)?;
        let only = Preconditions { uid: Some(victim.uid.to_string()), ..Preconditions::default() };
        let deleted = pods.delete(victim.key.name(), &DeleteParams::default().preconditions(only)).await;
        deleted.map(drop).or_else(gone)?;
        let note = format!("Preempted by pod {} on node {node}", pod.uid);
        self.say(&victim.key, &victim.uid, Severity::Normal, ("Preempted", "Preempting"), note);
        Ok(())
    }

    /// Writes why a pod fits nowhere. If that fails the next try tells again.
    async fn tell(&self, pod: &Waiting, why: &str, nominated: Option<Value>) {
        let mut patch = json!({
            "metadata": {"uid": &*pod.uid},
            "status": {"conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
                "lastProbeTime": null,
                "lastTransitionTime": self.clock.time(),
                "observedGeneration": pod.generation,
            }]},
        });
        if let Some(nominated) = nominated {
            patch["status"]["nominatedNodeName"] = nominated;
        }
        self.patch_status(&pod.key, patch).await;
    }

    async fn patch_status(&self, key: &Key, patch: Value) {
        let params = PatchParams::default();
        let request = Request::new(self.path(key));
        let request = request.patch_subresource("status", key.name(), &params, &Patch::Strategic(patch));
        let Ok(request) = request else { return };
        if let Err(error) = self.client.request::<IgnoredAny>(request).await
            && !retry::is_not_found(&error)
        {
            tracing::debug!(pod = %key, %error, "a pod could not be told why it waits");
        }
    }

    fn path(&self, key: &Key) -> String {
        Api::<Pod>::namespaced(self.client.clone(), key.namespace().unwrap_or_default()).resource_url().to_owned()
    }

    fn say_why(&self, pod: &Waiting, why: &str) {
        let end = (0..=why.len().min(NOTE_BYTES_MAX)).rev().find(|end| why.is_char_boundary(*end));
        let note = why[..end.unwrap_or_default()].to_owned();
        self.say(&pod.key, &pod.uid, Severity::Warning, ("FailedScheduling", "Scheduling"), note);
    }

    /// Tells of a pod; what happened is a reason and an action.
    fn say(&self, key: &Key, uid: &str, severity: Severity, (reason, action): (&str, &str), note: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(str::to_owned),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let happening = Happening { severity, reason: reason.to_owned(), action: action.to_owned(), note };
        self.recorder.record(about, happening);
    }
}
