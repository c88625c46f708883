//! Figures of the controllers, one line each: API server, store on the disk and all controllers in this process, on one thread
//! beside those that write to the disk.
//! Pods are objects only: nobody schedules or runs them. Run by `make bench`; arguments choose some by name.

mod usage;

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_apiserver::user::User;
use setpoint_apiserver::{ApiServer, Registry};
use setpoint_controllers::{Choice, Wiring, add_to};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_store::{Options, RealDisk, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use usage::{cpu_time, resident_bytes};

/// Requests that the benchmark itself has in flight.
const IN_FLIGHT: usize = 128;

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    runtime.block_on(async {
        for count in [1_000, 10_000] {
            if is_chosen("deployment") {
                deployment(count).await;
            }
        }
        if is_chosen("rollout") {
            rollout(1_000).await;
        }
        if is_chosen("jobs") {
            jobs(10_000).await;
        }
        if is_chosen("restart") {
            restart(100_000).await;
        }
    });
}

/// An API server on the disk, and what runs beside it.
struct Plane {
    api: ApiServer,
    _folder: tempfile::TempDir,
    _stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Plane {
    async fn start() -> Plane {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = RealDisk::new(folder.path()).expect("a disk");
        let registry = Arc::new(Registry::builtin());
        let opened = Store::open(Arc::new(disk), Arc::clone(&registry) as _, Options::default()).await;
        let (store, _) = opened.expect("an empty store opens");
        let (stop, stopping) = watch::channel(false);
        let (clock, chance) = (setpoint_apiserver::Clock::system(), setpoint_apiserver::Chance::seeded(0));
        let api = ApiServer::new(store, registry, clock, chance, stopping);
        api.prepare(SocketAddr::from(([192, 0, 2, 1], 6443)))
            .await
            .expect("an empty store takes what the system needs");
        let mut tasks = JoinSet::new();
        tasks.spawn(api.tend());
        let plane = Plane { api, _folder: folder, _stop: stop, tasks };
        make::<ServiceAccount>(&plane.client(), json!({"metadata": {"name": "default"}})).await;
        plane
    }

    fn client(&self) -> Client {
        let groups = vec!["system:masters".to_owned()];
        let user = User { name: "kubernetes-admin".to_owned(), groups, ..User::default() };
        Client::new(self.api.acting_as(user), "default")
    }

    /// Starts all controllers and waits until their caches are full.
    async fn control(&mut self) {
        let (client, clock) = (self.client(), Clock::starting_at(Timestamp::now()));
        let manager = Manager::new(client.clone(), clock, Chance::seeded(0), ManagerOptions::default());
        let manager = manager.expect("a manager without election");
        let (config, client_of) = (Config::default(), |_: &str| client.clone());
        let wiring = Wiring {
            manager: &manager,
            client_of: &client_of,
            config: &config,
            instance: "bench",
            root_ca: None,
            tokens: None,
            signer: None,
        };
        add_to(&wiring, &Choice::all()).expect("controllers");
        let running = manager.clone();
        self.tasks.spawn(async move { running.run(pending()).await.expect("they run on") });
        while !manager.ready().report(&[]).0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The revision of the newest write: each makes one.
    async fn revision(&self) -> u64 {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        let list = pods.list_metadata(&ListParams::default().limit(1)).await.expect("a list");
        list.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0)
    }

    /// Waits until nobody has written for half a second; says when the last write was seen.
    async fn quiet(&self) -> Instant {
        let (mut revision, mut since) = (self.revision().await, Instant::now());
        while since.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let newest = self.revision().await;
            if newest != revision {
                (revision, since) = (newest, Instant::now());
            }
        }
        since
    }
}

/// What a stretch of work took.
struct Stretch {
    start: Instant,
    cpu: Duration,
    revision: u64,
}

impl Stretch {
    async fn begin(plane: &Plane) -> Stretch {
        Stretch { start: Instant::now(), cpu: cpu_time(), revision: plane.revision().await }
    }

    async fn end(self, plane: &Plane, what: &str, count: usize) {
        let (took, cpu) = (self.start.elapsed().as_secs_f64(), cpu_time().saturating_sub(self.cpu));
        let (each, rate) = (cpu.as_secs_f64() * 1e6 / count as f64, count as f64 / took);
        let (writes, memory) = (plane.revision().await - self.revision, resident_bytes() / 1_000_000);
        println!("{what}: {took:.2} s, {rate:.0}/s, {each:.0} us of CPU each, {writes} writes, {memory} MB resident");
    }
}

async fn make<K>(client: &Client, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("an object that is taken")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}})
}

fn web(count: usize) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template("web:1")}})
}

/// Waits until the set of a deployment says that it has so many pods.
async fn until_replicas(client: &Client, count: usize) {
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    loop {
        let all = sets.list(&ListParams::default()).await.expect("a list").items;
        let replicas = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        if !all.is_empty() && all.iter().map(replicas).sum::<i32>() as usize == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_no_pods(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    while !pods.list_metadata(&ListParams::default().limit(1)).await.expect("a list").items.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn deployment(count: usize) {
    let mut plane = Plane::start().await;
    plane.control().await;
    let client = plane.client();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());

    let stretch = Stretch::begin(&plane).await;
    make::<Deployment>(&client, web(count)).await;
    until_replicas(&client, count).await;
    stretch.end(&plane, &format!("deployment of {count}, until all pods exist"), count).await;
    plane.quiet().await;

    let stretch = Stretch::begin(&plane).await;
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("web", &PatchParams::default(), &none).await.expect("a change");
    until_no_pods(&client).await;
    stretch.end(&plane, &format!("deployment of {count} scaled to 0"), count).await;
    plane.quiet().await;

    let all = Patch::Merge(json!({"spec": {"replicas": count}}));
    deployments.patch("web", &PatchParams::default(), &all).await.expect("a change");
    until_replicas(&client, count).await;
    plane.quiet().await;
    let stretch = Stretch::begin(&plane).await;
    deployments.delete("web", &DeleteParams::background()).await.expect("it goes");
    until_no_pods(&client).await;
    stretch.end(&plane, &format!("cascade delete of a deployment of {count}"), count).await;
}

/// Says of pods that aren't ready that they are, as fast as it can.
async fn play_pods(client: Client) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    loop {
        let all = pods.list(&ListParams::default()).await.expect("a list").items;
        let waiting =
            all.into_iter().filter(|pod| pod.status.as_ref().is_none_or(|status| status.conditions.is_none()));
        let ready =
            Patch::Merge(json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}));
        let told = waiting.map(|pod| {
            let (pods, ready) = (&pods, &ready);
            // One that is gone meanwhile needs nothing.
            async move {
                drop(pods.patch_status(&pod.metadata.name.unwrap_or_default(), &PatchParams::default(), ready).await)
            }
        });
        stream::iter(told).buffer_unordered(IN_FLIGHT).for_each(async |()| {}).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn rollout(count: usize) {
    let mut plane = Plane::start().await;
    plane.control().await;
    let client = plane.client();
    plane.tasks.spawn(play_pods(client.clone()));
    make::<Deployment>(&client, web(count)).await;
    until_replicas(&client, count).await;
    plane.quiet().await;
    let stretch = Stretch::begin(&plane).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let next = Patch::Merge(json!({"spec": {"template": template("web:2")}}));
    deployments.patch("web", &PatchParams::default(), &next).await.expect("a change");
    loop {
        let deployment = deployments.get("web").await.expect("a deployment");
        let status = deployment.status.unwrap_or_default();
        // What it says before it has seen the change is of the pods before.
        let is_seen = status.observed_generation == deployment.metadata.generation;
        let is_done = |number: Option<i32>| is_seen && number == i32::try_from(count).ok();
        if is_done(status.updated_replicas) && is_done(status.available_replicas) && is_done(status.replicas) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stretch.end(&plane, &format!("rolling update of {count}, who makes pods ready included"), count).await;
}

async fn jobs(count: usize) {
    let mut plane = Plane::start().await;
    plane.control().await;
    let client = plane.client();
    let mut template = template("web:1");
    template["spec"]["restartPolicy"] = json!("Never");
    let stretch = Stretch::begin(&plane).await;
    let made = (0..count).map(|number| {
        let job = json!({"metadata": {"name": format!("job-{number}")}, "spec": {"template": template}});
        make::<Job>(&client, job)
    });
    stream::iter(made).buffer_unordered(IN_FLIGHT).for_each(async |_| {}).await;
    plane.quiet().await;
    stretch.end(&plane, &format!("{count} jobs made, until each has its pod and its status"), count).await;
}

/// Sets of a thousand pods each are there, and their controllers come back.
async fn restart(count: usize) {
    let mut plane = Plane::start().await;
    let client = plane.client();
    for number in 0..count / 1_000 {
        let set = make::<ReplicaSet>(&client, json!({"metadata": {"name": format!("set-{number}")}, "spec": {
            "replicas": 1_000, "selector": {"matchLabels": {"set": number.to_string()}},
            "template": {"metadata": {"labels": {"set": number.to_string()}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}))
        .await;
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.metadata.name, "uid": set.metadata.uid, "controller": true});
        let metadata = json!({"generateName": format!("set-{number}-"), "labels": {"set": number.to_string()}, "ownerReferences": [owner]});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
        let made = (0..1_000).map(|_| make::<Pod>(&client, pod.clone()));
        stream::iter(made).buffer_unordered(IN_FLIGHT).for_each(async |_| {}).await;
    }
    let before = resident_bytes();
    let stretch = Stretch::begin(&plane).await;
    plane.control().await;
    let synced = stretch.start.elapsed().as_secs_f64();
    let quiet = plane.quiet().await.duration_since(stretch.start).as_secs_f64();
    let (cpu, memory) = (cpu_time().saturating_sub(stretch.cpu).as_secs_f64(), resident_bytes().saturating_sub(before));
    let writes = plane.revision().await - stretch.revision;
    println!(
        "restart with {count} pods: synced after {synced:.2} s, last write after {quiet:.2} s, {cpu:.2} s of CPU, {writes} writes, {} bytes more per pod",
        memory / count
    );
}
