//! Figures of a whole control plane with simulated nodes, one line each. Run by `make bench`.
//!
//! Everything runs in one process, `setpoint up --nodes N` as released; this process only asks for things and looks a hundred times a
//! second whether they are there. Writes are told by the revisions that went by, CPU time and memory by `/proc`.
//!
//! Words after `--` choose parts: `cargo bench -p setpoint --bench cluster -- pods jobs`.

mod process;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config, Resource};
use process::{Process, is_chosen};
use serde::Deserialize;
use serde_json::json;

/// How often this process looks.
const LOOK: Duration = Duration::from_millis(10);

/// What never gets there is a failure, not a stall.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    if is_chosen("pods") {
        let cluster = Cluster::start(100).await;
        cluster.life_of_a_deployment(1_000).await;
        cluster.life_of_a_deployment(10_000).await;
    }
    if is_chosen("running") {
        Cluster::start(100).await.running(10_000).await;
        Cluster::start(1_000).await.running(100_000).await;
    }
    if is_chosen("rollout") {
        Cluster::start(100).await.rollout(1_000).await;
    }
    if is_chosen("jobs") {
        Cluster::start(100).await.jobs(10_000).await;
    }
    if is_chosen("large") {
        large(1_000, 100).await;
    }
}

/// Memory, idle CPU and a new start with many pods.
async fn large(nodes: usize, pods_per_node: usize) {
    let mut cluster = Cluster::start(nodes).await;
    println!("{nodes} nodes without pods: {} MB resident", cluster.process.resident() / 1_000_000);
    cluster.idle("without pods").await;
    let count = nodes * pods_per_node;
    cluster.grow(count).await;
    println!("{nodes} nodes and {count} pods: {} MB resident", cluster.process.resident() / 1_000_000);
    cluster.idle(&format!("with {count} pods")).await;
    cluster.process.kill();
    let start = Instant::now();
    let again = Cluster::start_on(nodes, cluster.folder).await;
    let (ready, cpu) = (start.elapsed(), again.process.cpu());
    let quiet = again.until_quiet().await;
    println!(
        "killed and started again with {count} pods: ready in {ready:?}, quiet {:.2} s later after {:.2} s of CPU, {} MB resident",
        quiet.as_secs_f64(),
        (again.process.cpu() - cpu).as_secs_f64(),
        again.process.resident() / 1_000_000
    );
}

struct Cluster {
    process: Process,
    client: Client,
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    nodes: usize,
    folder: tempfile::TempDir,
}

/// What is looked at of a pod that is watched.
#[derive(Clone, Deserialize)]
struct Seen {
    metadata: SeenMeta,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Clone, Deserialize)]
struct SeenMeta {
    name: String,
}

#[derive(Clone, Default, Deserialize)]
struct SeenStatus {
    phase: Option<String>,
}

impl Cluster {
    async fn start(nodes: usize) -> Cluster {
        let cluster = Cluster::start_on(nodes, tempfile::tempdir_in(".").expect("a writable directory")).await;
        cluster.until_quiet().await;
        cluster
    }

    async fn start_on(nodes: usize, folder: tempfile::TempDir) -> Cluster {
        let process = Process::start(&["up", "--nodes", &nodes.to_string()], folder.path());
        let kubeconfig = Kubeconfig::read_from(&process.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a whole kubeconfig")).expect("certificates");
        let (deployments, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Cluster { process, client, deployments, pods, nodes, folder }
    }

    /// A Deployment that grows, shrinks to nothing, grows again and is deleted with all that it has.
    async fn life_of_a_deployment(&self, count: usize) {
        self.grow(count).await;
        self.measure(&format!("{count} pods scaled to 0"), count, async {
            self.patch(json!({"spec": {"replicas": 0}})).await;
            self.until_no_pods().await;
        })
        .await;
        self.patch(json!({"spec": {"replicas": count}})).await;
        self.until(count, |status| status.ready_replicas).await;
        self.until_quiet().await;
        self.measure(&format!("{count} pods deleted with their Deployment"), count, async {
            self.deployments.delete("web", &DeleteParams::background()).await.expect("it goes");
            self.until_no_pods().await;
        })
        .await;
        self.until_quiet().await;
    }

    /// Makes a Deployment and waits until its pods are there, and until they run.
    async fn grow(&self, count: usize) {
        let start = Instant::now();
        let what = format!("{count} pods on {} nodes from Deployment to Ready", self.nodes);
        self.measure(&what, count, async {
            self.deployments.create(&PostParams::default(), &deployment(count)).await.expect("a Deployment");
            self.until(count, |status| status.replicas).await;
            println!("{count} pods exist after {:.2} s", start.elapsed().as_secs_f64());
            self.until(count, |status| status.ready_replicas).await;
        })
        .await;
        self.until_quiet().await;
    }

    /// How long each pod takes from the event that it is there to the one that it runs, as one sees it who watches.
    async fn running(&self, count: usize) {
        let request = Request::new(Pod::url_path(&(), Some("default")));
        let request = request.watch(&WatchParams::default().timeout(290), "0").expect("a request");
        let events = self.client.request_events::<Seen>(request).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        let (mut begun, mut spans, start) = (HashMap::new(), Vec::with_capacity(count), Instant::now());
        self.deployments.create(&PostParams::default(), &deployment(count)).await.expect("a Deployment");
        while spans.len() < count {
            match events.next().await.expect("the watch goes on").expect("events") {
                WatchEvent::Added(pod) => drop(begun.insert(pod.metadata.name, Instant::now())),
                WatchEvent::Modified(pod) if pod.status.phase.as_deref() == Some("Running") => {
                    spans.extend(begun.remove(&pod.metadata.name).map(|since| since.elapsed()));
                }
                _ => {}
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        spans.sort_unstable();
        let at = |percent: usize| spans[(spans.len() * percent / 100).min(spans.len() - 1)].as_secs_f64() * 1000.0;
        println!(
            "{count} pods on {} nodes Running, beside one who watches: {:.0}/s; each p50 {:.0} ms, p99 {:.0} ms after it was made",
            self.nodes,
            count as f64 / seconds,
            at(50),
            at(99),
        );
    }

    async fn rollout(&self, count: usize) {
        self.grow(count).await;
        self.measure(&format!("rolling update of {count} pods"), count, async {
            self.patch(json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})).await;
            self.until(count, |status| status.updated_replicas).await;
            self.until(count, |status| status.available_replicas).await;
            self.until(count, |status| status.replicas).await;
        })
        .await;
    }

    async fn jobs(&self, count: usize) {
        let jobs: Api<Job> = Api::default_namespaced(self.client.clone());
        self.measure(
            &format!("{count} Jobs of one pod each, created one by one over 16 calls, until all are complete"),
            count,
            async {
                let create = |number: usize| {
                    let jobs = jobs.clone();
                    async move { jobs.create(&PostParams::default(), &job(number)).await.expect("a Job") }
                };
                let made = futures_util::stream::iter((0..count).map(create)).buffer_unordered(16);
                made.for_each(async |_| {}).await;
                // Jobs that succeeded are those that this selector leaves out.
                let running = ListParams::default().fields("status.successful!=1").limit(1);
                self.until_so(async || jobs.list_metadata(&running).await.expect("a list").items.is_empty()).await;
            },
        )
        .await;
    }

    /// What something takes, for so many.
    async fn measure(&self, what: &str, count: usize, work: impl Future<Output = ()>) {
        let (cpu, revision, start) = (self.process.cpu(), self.revision().await, Instant::now());
        work.await;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), self.process.cpu() - cpu);
        let writes = self.revision().await - revision;
        println!(
            "{what}: {seconds:.2} s, {:.0}/s, {:.0} µs of CPU each, {:.2} writes each, {} MB resident",
            count as f64 / seconds,
            cpu.as_secs_f64() * 1e6 / count as f64,
            writes as f64 / count as f64,
            self.process.resident() / 1_000_000
        );
    }

    async fn idle(&self, how: &str) {
        let (cpu, revision) = (self.process.cpu(), self.revision().await);
        let seconds = 20;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let cpu = (self.process.cpu() - cpu).as_secs_f64() / seconds as f64 * 100.0;
        let writes = (self.revision().await - revision) as f64 / seconds as f64;
        println!("idle {how}, {} nodes: {cpu:.1} % of a core, {writes:.0} writes/s", self.nodes);
    }

    async fn patch(&self, patch: serde_json::Value) {
        self.deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.expect("a change");
    }

    /// Waits until so many are there.
    async fn until(&self, count: usize, number: fn(&DeploymentStatus) -> Option<i32>) {
        let is_so = async || {
            let deployment = self.deployments.get_status("web").await.expect("a Deployment");
            let Some(status) = &deployment.status else { return false };
            let is_seen = status.observed_generation == deployment.metadata.generation;
            is_seen && number(status) == i32::try_from(count).ok()
        };
        self.until_so(is_so).await;
    }

    async fn until_no_pods(&self) {
        let one = ListParams::default().limit(1);
        self.until_so(async || self.pods.list_metadata(&one).await.expect("a list").items.is_empty()).await;
    }

    async fn until_so(&self, is_so: impl AsyncFn() -> bool) {
        let start = Instant::now();
        while !is_so().await {
            assert!(start.elapsed() < PATIENCE, "it takes forever");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until hardly anything is done for half a second, and says how long that took before.
    async fn until_quiet(&self) -> Duration {
        let (start, window) = (Instant::now(), Duration::from_millis(500));
        // A twentieth of a processor, and what the renewals of so many leases take at most.
        let quiet = window / 20 + window * u32::try_from(self.nodes).expect("so many nodes") / 5_000;
        loop {
            let (before, cpu) = (start.elapsed(), self.process.cpu());
            tokio::time::sleep(window).await;
            if self.process.cpu() - cpu < quiet || before > PATIENCE {
                return before;
            }
        }
    }

    /// The revision of the store.
    async fn revision(&self) -> u64 {
        let list = self.deployments.list_metadata(&ListParams::default().limit(1)).await.expect("a list");
        list.metadata.resource_version.and_then(|version| version.parse().ok()).expect("a revision")
    }
}

fn deployment(count: usize) -> Deployment {
    let object = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": count,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]}},
    }});
    serde_json::from_value(object).expect("a Deployment")
}

fn job(number: usize) -> Job {
    let object = json!({"metadata": {"name": format!("sum-{number}")}, "spec": {"template": {"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "sum", "image": "sum:1", "command": ["true"]}],
    }}}});
    serde_json::from_value(object).expect("a Job")
}
