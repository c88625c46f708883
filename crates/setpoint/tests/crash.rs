//! Power cuts under load: what was answered is there afterwards, with the version that was answered.

mod server;

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use server::Server;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CYCLES: u64 = 10;
const WRITERS: usize = 16;
/// Names that each writer uses again and again, so that creates, changes and deletes all happen.
const NAMES: u64 = 4;
/// The server is killed once this many writes at most were answered in a cycle.
const WRITES_MAX: u64 = 400;
/// A server that stops answering is a failure, not a stall.
const CYCLE_TIMEOUT: Duration = Duration::from_secs(60);

/// One object as a client knows it: its version and its value; nothing when it is not there.
type Known = Option<(u64, String)>;

/// One client that writes to names of its own, so that it alone decides what they hold.
struct Writer {
    prefix: String,
    turn: u64,
    answered: BTreeMap<String, Known>,
    /// The write that was sent last; it may have happened even if no answer came.
    sent: Option<(String, Option<String>)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answered_write_is_lost_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let chance = std::collections::hash_map::RandomState::new();
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    for cycle in 0..CYCLES {
        let server = Server::start(folder.path());
        let api = Api::default_namespaced(server.client().await);
        let stored = list(&api).await;
        writers.iter_mut().for_each(|writer| writer.compare(&stored, cycle));
        let kill_after = 1 + chance.hash_one(cycle) % WRITES_MAX;
        let round = write_until_killed(server, api, writers, kill_after);
        writers = tokio::time::timeout(CYCLE_TIMEOUT, round).await.expect("the server answers or is dead");
    }
    let server = Server::start(folder.path());
    let stored = list(&Api::default_namespaced(server.client().await)).await;
    writers.iter_mut().for_each(|writer| writer.compare(&stored, CYCLES));
    assert!(writers.iter().all(|writer| writer.turn >= CYCLES), "every writer writes in every cycle");
}

/// How many backups are taken while the server is written to.
const BACKUPS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_all_that_was_answered_before_and_nothing_out_of_order() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let answered: Vec<Arc<AtomicU64>> = (0..WRITERS).map(|_| Arc::default()).collect();
    let mut tasks = JoinSet::new();
    for (writer, answered) in answered.iter().cloned().enumerate() {
        let api = api.clone();
        tasks.spawn(async move {
            for turn in 0.. {
                let map = json!({"metadata": {"name": format!("{writer}-{turn}")}});
                let made = api.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await;
                if made.is_err() {
                    return;
                }
                answered.store(turn + 1, Ordering::SeqCst);
            }
        });
    }
    let mut backups = Vec::new();
    for number in 0..BACKUPS {
        let before: Vec<u64> = answered.iter().map(|answered| answered.load(Ordering::SeqCst)).collect();
        let file = folder.path().join(format!("{number}.backup"));
        run(&["backup".as_ref(), "--data-dir".as_ref(), data.as_os_str(), file.as_os_str()]);
        backups.push((before, file));
    }
    server.stop();
    tasks.join_all().await;
    assert!(backups[BACKUPS - 1].0.iter().all(|answered| *answered > 0), "nobody wrote: {backups:?}");
    for (number, (before, file)) in backups.into_iter().enumerate() {
        let other = folder.path().join(format!("{number}.data"));
        std::fs::create_dir_all(other.join("pki")).unwrap();
        std::fs::copy(data.join("pki/secrets.keys"), other.join("pki/secrets.keys")).unwrap();
        run(&["restore".as_ref(), "--data-dir".as_ref(), other.as_os_str(), file.as_os_str()]);
        let server = Server::start(&other);
        let found = list(&Api::default_namespaced(server.client().await)).await;
        for (writer, before) in before.into_iter().enumerate() {
            let has = |turn: u64| found.contains_key(&format!("{writer}-{turn}"));
            let count = (0..).take_while(|turn| has(*turn)).count() as u64;
            let all = found.keys().filter(|name| name.starts_with(&format!("{writer}-"))).count() as u64;
            assert!(count >= before && count == all, "{writer}: {all}, the first {count} of them, answered {before}");
        }
    }
    let left = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with('.')).count(), 0, "copies are taken away");
}

/// Runs a command that has to succeed.
fn run(arguments: &[&std::ffi::OsStr]) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_setpoint")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How many pods a rollout replaces.
const REPLICAS: i32 = 9;

#[tokio::test]
async fn a_rollout_goes_on_after_the_whole_control_plane_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let up = || Server::start_as(&["up", "--nodes", "3"], folder.path());
    let mut server = up();
    let api: Api<Deployment> = Api::default_namespaced(server.client().await);
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    api.create(&PostParams::default(), &serde_json::from_value(web).unwrap()).await.unwrap();
    until(&api, |status| status.available_replicas == Some(REPLICAS)).await;
    let next = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}});
    api.patch("web", &PatchParams::default(), &Patch::Strategic(next)).await.unwrap();
    until(&api, |status| status.updated_replicas.is_some_and(|updated| updated < REPLICAS)).await;
    server.kill();

    let server = up();
    let api: Api<Deployment> = Api::default_namespaced(server.client().await);
    until(&api, |status| {
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        counts == [Some(REPLICAS); 3] && status.terminating_replicas.unwrap_or_default() == 0
    })
    .await;
    let pods: Api<Pod> = Api::default_namespaced(server.client().await);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let images: Vec<_> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers[0].image.as_deref()).collect();
    assert_eq!(images, ["web:2"; REPLICAS as usize]);
    let addresses: std::collections::BTreeSet<_> =
        pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref()).collect();
    assert_eq!(addresses.len(), images.len(), "{addresses:?}");
}

/// Follows the deployment until its controller has seen what it asks for and its status is so.
async fn until(api: &Api<Deployment>, is_so: impl Fn(&DeploymentStatus) -> bool) {
    let parameters = WatchParams::default().fields("metadata.name=web").timeout(120);
    let mut events = api.watch(&parameters, "0").await.unwrap().boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(web) | WatchEvent::Modified(web)) = event.unwrap() else { continue };
        let status = web.status.unwrap_or_default();
        if status.observed_generation == web.metadata.generation && is_so(&status) {
            return;
        }
    }
    panic!("the watch ended before the deployment was as it should be");
}

/// Lets all writers write, kills the server after `kill_after` answers, and returns the writers once all have noticed.
async fn write_until_killed(
    mut server: Server,
    api: Api<ConfigMap>,
    writers: Vec<Writer>,
    kill_after: u64,
) -> Vec<Writer> {
    let (answers, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let mut tasks = JoinSet::new();
    for mut writer in writers {
        let (api, answers, enough) = (api.clone(), answers.clone(), enough.clone());
        tasks.spawn(async move {
            while writer.write(&api).await {
                if answers.fetch_add(1, Ordering::Relaxed) + 1 == kill_after {
                    enough.notify_one();
                }
            }
            writer
        });
    }
    enough.notified().await;
    server.kill();
    tasks.join_all().await
}

async fn list(api: &Api<ConfigMap>) -> BTreeMap<String, (u64, String)> {
    let maps = api.list(&ListParams::default()).await.unwrap();
    let all = version(&maps.metadata.resource_version);
    let known = maps.items.into_iter().map(|map| {
        let (name, (own, value)) = (map.metadata.name.clone().unwrap(), known(map));
        assert!(own <= all, "{name} is at {own}, newer than its list at {all}");
        (name, (own, value))
    });
    known.collect()
}

fn version(text: &Option<String>) -> u64 {
    text.as_deref().and_then(|text| text.parse().ok()).expect("a version is a number")
}

fn known(map: ConfigMap) -> (u64, String) {
    (version(&map.metadata.resource_version), map.data.unwrap_or_default().remove("turn").unwrap_or_default())
}

impl Writer {
    fn new(number: usize) -> Writer {
        Writer { prefix: format!("writer-{number}"), turn: 0, answered: BTreeMap::new(), sent: None }
    }

    /// One write: creates what is not there, else changes it, and deletes it every fifth time. False when the server is gone.
    async fn write(&mut self, api: &Api<ConfigMap>) -> bool {
        self.turn += 1;
        let (name, value) = (format!("{}-{}", self.prefix, self.turn % NAMES), self.turn.to_string());
        let there = self.answered.get(&name).is_some_and(Option::is_some);
        let delete = there && self.turn.is_multiple_of(5);
        self.sent = Some((name.clone(), (!delete).then(|| value.clone())));
        let body = json!({"metadata": {"name": name}, "data": {"turn": value}});
        let answer = if delete {
            api.delete(&name, &DeleteParams::default()).await.map(|_| None)
        } else if there {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await.map(|map| Some(known(map)))
        } else {
            let map = serde_json::from_value(body).unwrap();
            api.create(&PostParams::default(), &map).await.map(|map| Some(known(map)))
        };
        match answer {
            Ok(now) => {
                self.answered.insert(name, now);
                self.sent = None;
                true
            }
            Err(kube::Error::Api(status)) => panic!("{name}: {status:?}"),
            Err(_) => false,
        }
    }

    /// Checks that the server holds what it answered, or what was sent last, and goes on from there.
    fn compare(&mut self, stored: &BTreeMap<String, (u64, String)>, cycle: u64) {
        for number in 0..NAMES {
            let name = format!("{}-{number}", self.prefix);
            let (answered, stored) = (self.answered.get(&name).cloned().flatten(), stored.get(&name).cloned());
            let sent = self.sent.as_ref().filter(|(sent, _)| *sent == name).map(|(_, value)| value);
            let newer = |version: u64| answered.as_ref().is_none_or(|(old, _)| *old < version);
            let happened = match (&stored, sent) {
                (Some((version, value)), Some(Some(sent))) => value == sent && newer(*version),
                (None, Some(None)) => true,
                _ => false,
            };
            assert!(
                stored == answered || happened,
                "cycle {cycle}: {name} is {stored:?}, answered {answered:?}, sent {sent:?}"
            );
            self.answered.insert(name, stored);
        }
        self.sent = None;
    }
}
