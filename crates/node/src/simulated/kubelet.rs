//! Plays the lives of the pods on simulated nodes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, GetParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use serde::de::IgnoredAny;
use setpoint_runtime::cache::{Informer, InformerOptions, Target};
use setpoint_runtime::controller::{Action, Context, Controller, ControllerOptions, Error};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::{Key, retry};

use super::addresses::Addresses;
use super::admission::{Admission, Rejection};
use super::events::{self, Said};
use super::heartbeat::NodeView;
use super::identity::{Nodes, host_address};
use super::missing::{self, Missing};
use super::plan::{Place, Step, plan, reject};
use super::pod::Pod;
use super::references::NOTHING;
use super::resize::{self, Resize};
use super::{status, told};

/// How many pods are worked on at once: writes that wait together are synced to the disk together.
const WORKERS: usize = 64;

/// The index of pods by the name of their node.
const BY_NODE: &str = "node";

/// Adds the part that plays pods.
pub fn add_to(
    manager: &Manager,
    client: &Client,
    nodes: Arc<Nodes>,
    seen: Informer<NodeView>,
    recorder: Recorder,
) -> Result<(), ManagerError> {
    let target = Target::of::<core::Pod>(&(), None).fields("spec.nodeName!=");
    let options = || InformerOptions { transform: Some(Box::new(Pod::settle)), ..InformerOptions::default() };
    let pods: Informer<Pod> = manager.informers().with(target, options);
    pods.add_index(BY_NODE, |pod| vec![pod.spec.node_name.to_string()]);
    let kubelet = Arc::new(Kubelet {
        nodes,
        seen: seen.clone(),
        pods: pods.clone(),
        addresses: Addresses::default(),
        admission: Admission::default(),
        recorder,
        told: Mutex::default(),
        missing: Missing::default(),
    });
    let of_node = pods.clone();
    let controller = Controller::builder("simulated-kubelet", client.clone(), manager.clock(), &pods)
        .options(ControllerOptions { workers: WORKERS, ..ControllerOptions::default() })
        .watches(&seen, move |node: &NodeView| {
            let snapshot = of_node.lister().snapshot();
            let name = setpoint_runtime::cache::Cached::key(node);
            snapshot.by_index(BY_NODE, name.as_str()).map(|pod| setpoint_runtime::cache::Cached::key(&**pod)).collect()
        })
        .build(move |context: Context, key: Key| {
            let kubelet = kubelet.clone();
            async move { kubelet.reconcile(context, key).await }
        });
    manager.add_controller(&[], controller)
}

struct Kubelet {
    nodes: Arc<Nodes>,
    seen: Informer<NodeView>,
    pods: Informer<Pod>,
    addresses: Addresses,
    admission: Admission,
    recorder: Recorder,
    /// When it was last told what happens to those pods of which there is something to tell. A new process tells at most a little twice.
    told: Mutex<BTreeMap<Key, Timestamp>>,
    missing: Missing,
}

impl Kubelet {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(pod) = context.read(&self.pods, &key) else {
            self.forget(&key);
            return Ok(Action::done());
        };
        let Some(node) = self.nodes.number(&pod.spec.node_name) else { return Ok(Action::done()) };
        let now = context.clock().wall();
        let Some(seen) = self.seen.lister().get(&pod.spec.node_name) else { return Ok(Action::done()) };
        if !seen.is_alive(now) {
            let wake = seen.wakes_at(now).map(|until| Action::requeue_after(context.clock().until(until)));
            return Ok(wake.unwrap_or_else(Action::done));
        }
        let lost = seen.pods_lost_at().filter(|lost| *lost <= now);
        let pod = match lost {
            Some(_) if pod.is_settled && !pod.has_ended() => self.whole(&context, &pod).await?,
            _ => pod,
        };
        let uid = &pod.metadata.uid;
        if let Err(rejection) = self.admit(node, &pod) {
            write(&context, &pod, &reject(&pod, rejection.reason, &rejection.message, now)).await?;
            self.say(&pod, [events::rejection(rejection.reason, &rejection.message)]);
            return Ok(Action::done());
        }
        let has = pod.status.pod_ip.as_deref().and_then(|ip| ip.parse::<Ipv4Addr>().ok());
        let host = host_address(node);
        let address = if pod.has_ended() {
            // What has ended needs no address: its status only tells which one it had.
            self.addresses.release(node, uid);
            has.unwrap_or(host)
        } else {
            let present = || self.addresses_on(&pod.spec.node_name, host);
            let free = self.addresses.of(node, uid, has.filter(|has| *has != host), present);
            free.ok_or_else(|| Error::transient(format!("{} has no address left for {key}", pod.spec.node_name)))?
        };
        let lacks = match pod.is_settled || pod.has_ended() || pod.metadata.deletion_timestamp.is_some() {
            true => NOTHING.clone(),
            false => self.missing.look(context.client(), &key, &pod, now).await?,
        };
        let resize = self.resize(node, &pod);
        let step = plan(&pod, Place { host, pod: address, lost, lacks: &lacks, resize: &resize }, now);
        let next = self.tell(&pod, &key, now).into_iter().chain(missing::next(&pod, &lacks, now));
        let wake = match step {
            Step::Nothing => {
                self.say(&pod, self.missing.tell(&key, &pod, &pod.status, &lacks, now));
                None
            }
            Step::Wait(until) => {
                self.say(&pod, self.missing.tell(&key, &pod, &pod.status, &lacks, now));
                Some(until)
            }
            Step::Write(status, wake) => {
                write(&context, &pod, &status).await?;
                self.say(&pod, events::changes(&pod, &status));
                self.say(&pod, self.missing.tell(&key, &pod, &status, &lacks, now));
                wake
            }
            Step::Delete => {
                delete(&context, &pod).await?;
                self.forget(&key);
                self.addresses.release(node, uid);
                self.admission.seen(node, uid);
                None
            }
        };
        Ok(wake
            .into_iter()
            .chain(next)
            .min()
            .map_or_else(Action::done, |until| Action::requeue_after(context.clock().until(until))))
    }
}

impl Kubelet {
    /// Lets a pod in, once. One that leaves is not asked.
    fn admit(&self, node: usize, pod: &Pod) -> Result<(), Rejection> {
        if pod.has_arrived() || pod.has_ended() || pod.metadata.deletion_timestamp.is_some() {
            self.admission.seen(node, &pod.metadata.uid);
            return Ok(());
        }
        let snapshot = self.pods.lister().snapshot();
        let others = snapshot.by_index(BY_NODE, &pod.spec.node_name).map(|other| &**other);
        self.admission.admit(node, self.nodes.capacity(), pod, others)
    }

    /// What becomes of a pod that asks for something else than it has.
    fn resize(&self, node: usize, pod: &Pod) -> Resize {
        if !resize::is_asked(pod) || pod.metadata.deletion_timestamp.is_some() || pod.has_ended() {
            return Resize::Nothing;
        }
        let snapshot = self.pods.lister().snapshot();
        let others = snapshot.by_index(BY_NODE, &pod.spec.node_name).map(|other| &**other);
        match self.admission.resize(node, self.nodes.capacity(), pod, others) {
            Ok(()) => Resize::Granted,
            Err(rejection) => Resize::Deferred(rejection.message),
        }
    }

    /// Tells what has happened to a pod since the last look; when there is more to tell.
    fn tell(&self, pod: &Pod, key: &Key, now: Timestamp) -> Option<Timestamp> {
        if told::is_quiet(pod) {
            self.forget(key);
            return None;
        }
        let now = status::seconds(now);
        let last = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), now);
        self.say(pod, told::since(pod, last, now));
        told::next(pod, now)
    }

    fn forget(&self, key: &Key) {
        self.missing.forget(key);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn say(&self, pod: &Pod, said: impl IntoIterator<Item = Said>) {
        let recorder = self.recorder.on(&pod.spec.node_name);
        for Said { container, what } in said {
            recorder.record(events::about(pod, container), what);
        }
    }

    /// The addresses that pods on a node have, by uid.
    fn addresses_on(&self, node: &str, host: Ipv4Addr) -> Vec<(Box<str>, Ipv4Addr)> {
        let snapshot = self.pods.lister().snapshot();
        let living = snapshot.by_index(BY_NODE, node).filter(|pod| !pod.has_ended());
        let address = |pod: &Arc<Pod>| {
            let address = pod.status.pod_ip.as_deref()?.parse().ok()?;
            (address != host).then(|| (pod.metadata.uid.clone(), address))
        };
        living.filter_map(address).collect()
    }

    /// A pod with the details that the cache has dropped.
    async fn whole(&self, context: &Context, pod: &Arc<Pod>) -> Result<Arc<Pod>, Error> {
        let api: Api<core::Pod> = Api::namespaced(context.client().clone(), &pod.metadata.namespace);
        let request = Request::new(api.resource_url()).get(&pod.metadata.name, &GetParams::default());
        match context.client().request::<Pod>(request.map_err(Error::transient)?).await {
            Ok(found) if found.metadata.uid == pod.metadata.uid => Ok(Arc::new(found)),
            Ok(_) => Ok(pod.clone()),
            Err(error) if retry::is_not_found(&error) => Ok(pod.clone()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn write(context: &Context, pod: &Pod, status: &core::PodStatus) -> Result<(), Error> {
    let api: Api<core::Pod> = Api::namespaced(context.client().clone(), &pod.metadata.namespace);
    let patch = Patch::Strategic(status::patch(&pod.metadata.uid, &pod.status, status));
    let request = Request::new(api.resource_url())
        .patch_subresource("status", &pod.metadata.name, &PatchParams::default(), &patch)
        .map_err(Error::transient)?;
    // The server sends the whole pod; nobody reads it.
    match context.client().request::<IgnoredAny>(request).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn delete(context: &Context, pod: &Pod) -> Result<(), Error> {
    let api: Api<core::Pod> = Api::namespaced(context.client().clone(), &pod.metadata.namespace);
    let uid = Some(pod.metadata.uid.to_string());
    let how = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    };
    let request = Request::new(api.resource_url()).delete(&pod.metadata.name, &how).map_err(Error::transient)?;
    match context.client().request::<IgnoredAny>(request).await {
        Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
