//! Servers and most of etcd are killed and paused under the hands of clients, which go on with another server: nothing that was
//! acknowledged is lost, no read is stale, and a watch that goes on elsewhere misses nothing and gets nothing twice.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::etcd_process::Cluster;
use crate::linearizability::{Answer, Call, Operation, Version, check};
use crate::parts::{PATIENCE, until};
use crate::server::Server;
use crate::start;

/// How long a client waits for an answer until it goes to the other server.
const CALL_MAX: Duration = Duration::from_secs(2);

/// How long a fault lasts: longer than clients wait.
const FAULT: Duration = Duration::from_millis(2500);

/// How long all is well between two faults.
const REST: Duration = Duration::from_millis(700);

/// Each has an object of its own to write, and reads those of all.
const CLIENTS: u64 = 6;

/// The two servers, and what clients know of them.
struct World {
    servers: Mutex<[Option<Server>; 2]>,
    clients: Mutex<[Client; 2]>,
    /// Which came before which, for the judge.
    clock: AtomicU64,
    /// Tells all values apart.
    values: AtomicU64,
    over: AtomicBool,
    /// The revision of the last write, once there are no more.
    newest: AtomicU64,
}

impl World {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    async fn maps(&self, at: usize) -> Api<ConfigMap> {
        Api::default_namespaced(self.clients.lock().await[at % 2].clone())
    }
}

/// What is known of a call.
enum Outcome<T> {
    Answered(T),
    /// The server refused it, as HTTP says.
    Refused(u16),
    /// Nobody knows whether it was done, or will be.
    Unknown,
}

async fn call<T>(calling: impl Future<Output = kube::Result<T>>) -> Outcome<T> {
    match timeout(CALL_MAX, calling).await {
        Ok(Ok(answer)) => Outcome::Answered(answer),
        Ok(Err(Error::Api(status))) if [404, 409].contains(&status.code) => Outcome::Refused(status.code),
        Ok(Err(_)) | Err(_) => Outcome::Unknown,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_servers_that_fail_see_one_order_and_every_event_once() {
    let (mut cluster, folder) = (Cluster::start(3), tempfile::tempdir().unwrap());
    let data = ["one", "other"].map(|name| folder.path().join(name));
    let servers = data.each_ref().map(|data| start(&cluster, &["server"], data));
    let clients = [servers[0].client().await, servers[1].client().await];
    let world = Arc::new(World {
        servers: Mutex::new(servers.map(Some)),
        clients: Mutex::new(clients),
        clock: AtomicU64::new(0),
        values: AtomicU64::new(1),
        over: AtomicBool::new(false),
        newest: AtomicU64::new(0),
    });
    let list = world.maps(0).await.list(&ListParams::default().labels("by=test")).await.unwrap();
    let from = list.metadata.resource_version.unwrap();
    let watching: Vec<_> = (0..2).map(|at| tokio::spawn(watch(Arc::clone(&world), at, from.clone()))).collect();
    let calling: Vec<_> = (0..CLIENTS).map(|client| tokio::spawn(work(Arc::clone(&world), client))).collect();
    strike(&world, &mut cluster, &data).await;
    world.over.store(true, Ordering::SeqCst);
    let mut history = Vec::new();
    for client in calling {
        history.extend(client.await.unwrap());
    }
    // Everything as it is in the end, by both.
    for at in 0..2 {
        for object in 0..CLIENTS {
            let seen = until("an answer", PATIENCE, async || read(&world, at, object).await).await;
            history.push(seen);
        }
    }
    assert_eq!(check(&history), Ok(()));
    let mut written: Vec<(u64, u64)> = history
        .iter()
        .filter_map(|operation| match (operation.call, operation.answer) {
            (Call::Create { value } | Call::Replace { value, .. }, Answer::Done { revision }) => {
                Some((revision, value))
            }
            _ => None,
        })
        .collect();
    written.sort_unstable();
    let reads = history.len() - written.len();
    assert!(written.len() > 100 && reads > 100, "{} writes, {reads} reads", written.len());
    world.newest.store(written.last().map_or(0, |(revision, _)| *revision), Ordering::SeqCst);
    for watcher in watching {
        let told = watcher.await.unwrap();
        assert_eq!(told, written, "each once, in order, and no other");
    }
}

/// Everything that can happen to a server, and to a majority of etcd.
async fn strike(world: &World, cluster: &mut Cluster, data: &[PathBuf; 2]) {
    for at in [0, 1] {
        if let Some(server) = &world.servers.lock().await[at] {
            server.pause();
        }
        tokio::time::sleep(FAULT).await;
        if let Some(server) = &world.servers.lock().await[at] {
            server.resume();
        }
        tokio::time::sleep(REST).await;
        // Dropped is killed.
        world.servers.lock().await[1 - at].take();
        tokio::time::sleep(FAULT).await;
        let again = start(cluster, &["server"], &data[1 - at]);
        world.clients.lock().await[1 - at] = again.client().await;
        world.servers.lock().await[1 - at] = Some(again);
        tokio::time::sleep(REST).await;
        // Paused, then killed: no majority, and nobody who says so.
        cluster.pause(at);
        cluster.pause(at + 1);
        tokio::time::sleep(FAULT).await;
        cluster.resume(at);
        cluster.kill(at + 1);
        tokio::time::sleep(REST).await;
        cluster.start_again(at + 1);
        tokio::time::sleep(REST).await;
    }
}

/// A write of which nobody knows whether it was done, or will be.
struct Open {
    asked: Call,
    value: u64,
    called: u64,
}

/// One client: writes its own object, each version on top of the one that it knows, and reads any.
async fn work(world: Arc<World>, client: u64) -> Vec<Operation> {
    let mut history = Vec::new();
    let mut server = client as usize;
    let mut known: Option<u64> = None;
    // All of them on top of what is known: only one of them, or the next one, can be done.
    let mut open: Vec<Open> = Vec::new();
    while !world.over.load(Ordering::SeqCst) || !open.is_empty() {
        match read(&world, server, world.tick() % CLIENTS).await {
            Some(seen) => history.push(seen),
            None => server += 1,
        }
        let value = world.values.fetch_add(1, Ordering::SeqCst);
        let (maps, called) = (world.maps(server).await, world.tick());
        let asked = known.map_or(Call::Create { value }, |expected| Call::Replace { expected, value });
        let next = map(client, value, known);
        let answered = match known {
            None => call(maps.create(&PostParams::default(), &next)).await,
            Some(_) => call(maps.replace(&name(client), &PostParams::default(), &next)).await,
        };
        match answered {
            Outcome::Answered(map) => {
                let answer = Answer::Done { revision: version(&map).revision };
                history.push(Operation { object: client, call: asked, answer, called, returned: world.tick() });
                known = Some(version(&map).revision);
                open.clear();
            }
            Outcome::Unknown => {
                open.push(Open { asked, value, called });
                server += 1;
            }
            Outcome::Refused(_) => {
                // Nobody else writes it: one of those was done, or this one, sent a second time by its way here.
                open.push(Open { asked, value, called });
                let seen = loop {
                    match read(&world, server, client).await {
                        Some(seen) => break seen,
                        None => server += 1,
                    }
                };
                let Answer::Found(Some(found)) = seen.answer else {
                    panic!("a write was refused, and nothing is there")
                };
                let done = open.iter().find(|open| open.value == found.value);
                let Open { asked, called, .. } = done.unwrap_or_else(|| panic!("{found:?} is in the way of {asked:?}"));
                let answer = Answer::Done { revision: found.revision };
                let (call, called, returned) = (*asked, *called, seen.returned);
                history.push(Operation { object: client, call, answer, called, returned });
                history.push(seen);
                known = Some(found.revision);
                open.clear();
            }
        }
    }
    history
}

/// A read of an object, if it was answered.
async fn read(world: &World, at: usize, object: u64) -> Option<Operation> {
    let (maps, called) = (world.maps(at).await, world.tick());
    let found = match call(maps.get(&name(object))).await {
        Outcome::Answered(map) => Some(version(&map)),
        Outcome::Refused(404) => None,
        Outcome::Refused(_) | Outcome::Unknown => return None,
    };
    Some(Operation { object, call: Call::Get, answer: Answer::Found(found), called, returned: world.tick() })
}

/// Follows all objects, with the other server when one is silent, until everything that was written was told.
async fn watch(world: Arc<World>, mut at: usize, mut from: String) -> Vec<(u64, u64)> {
    let mut told = Vec::new();
    let wanted = WatchParams::default().labels("by=test").timeout(60);
    let is_over = |told: &Vec<(u64, u64)>| {
        let newest = world.newest.load(Ordering::SeqCst);
        newest > 0 && told.last().is_some_and(|(revision, _)| *revision >= newest)
    };
    while !is_over(&told) {
        let maps = world.maps(at).await;
        at += 1;
        let Ok(Ok(events)) = timeout(CALL_MAX, maps.watch(&wanted, &from)).await else { continue };
        let mut events = events.boxed();
        while let Ok(Ok(Some(event))) = timeout(CALL_MAX, events.try_next()).await {
            match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => {
                    let Version { revision, value } = version(&map);
                    told.push((revision, value));
                    from = revision.to_string();
                }
                WatchEvent::Bookmark(bookmark) => from = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if status.code >= 500 => break,
                event => panic!("{event:?}"),
            }
            if is_over(&told) {
                break;
            }
        }
    }
    told
}

fn name(object: u64) -> String {
    format!("object-{object}")
}

fn map(object: u64, value: u64, expected: Option<u64>) -> ConfigMap {
    let mut map = json!({
        "metadata": {"name": name(object), "labels": {"by": "test"}}, "data": {"value": value.to_string()},
    });
    if let Some(expected) = expected {
        map["metadata"]["resourceVersion"] = expected.to_string().into();
    }
    crate::object(map)
}

fn version(map: &ConfigMap) -> Version {
    let value = map.data.as_ref().and_then(|data| data.get("value")).expect("all have a value");
    let number = |text: &str| text.parse().expect("a number");
    Version { revision: number(&map.resource_version().expect("a version")), value: number(value) }
}
