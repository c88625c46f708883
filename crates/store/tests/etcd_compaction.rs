//! Watches, compaction and faults at once: while etcd forgets five times a second, members are killed and paused, connections are cut, and
//! watchers go on elsewhere from where they were. Nobody misses an event or gets one twice or out of order: who can't be told everything is
//! told that it has to list again.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::Revision;
use setpoint_store::{
    Change, CommitError, Endpoint, EtcdOptions, Expectation, Key, Object, Store, Transaction, WatchError, WindowBounds,
};
use support::etcd::{self, Cluster, prefix, run_real};
use support::proxy::{Proxy, Way};
use support::truth::Truth;
use support::watch_checker::{Checker, Interest, Seen};
use support::{ByNode, Dump, NAMESPACES, dump_of, json, pod, pods, seeds, value_of};
use tokio::time::timeout;

const MEMBERS: usize = 3;

/// How often etcd forgets.
const COMPACTION: Duration = Duration::from_millis(200);

/// How long a member is away: for many compactions, and longer than an election.
const FAULT: Duration = Duration::from_millis(2500);

/// How long all members are well in between.
const REST: Duration = Duration::from_millis(1200);

/// Faults of members in a run.
const FAULTS: usize = 4;

/// How long everybody may take to come to an end once all is well: who has lost something waits for it for ever.
const END_MAX: Duration = Duration::from_secs(60);

/// How long connections last at most.
const CONNECTED: Duration = Duration::from_millis(900);

/// Writers, each with keys of its own.
const WRITERS: usize = 6;
const KEYS_EACH: usize = 3;

/// Those who follow: each interest twice, by one who comes back soon and one who comes back late.
const WATCHERS: usize = 8;

/// Events that a server keeps: few, so that who was away for a while is too late.
const WINDOW: usize = 150;

/// What is known to have been written.
type Written = Arc<Mutex<BTreeMap<Revision, (Key, Arc<Object>)>>>;

/// The members, and the ways to them for each server.
struct World {
    cluster: Cluster,
    ways: Vec<Vec<Proxy>>,
}

impl World {
    async fn start(cluster: Cluster) -> World {
        let mut ways = Vec::new();
        for server in 0..2 {
            let mut proxies = Vec::new();
            for member in cluster.endpoints(server) {
                proxies.push(Proxy::before(&member).await);
            }
            ways.push(proxies);
        }
        World { cluster, ways }
    }

    async fn servers(&self, prefix: &str) -> [Store; 2] {
        let open = async |server: usize| {
            let endpoints: Vec<Endpoint> = self.ways[server].iter().map(|way| way.endpoint.clone()).collect();
            let window = WindowBounds { events: WINDOW, ..WindowBounds::default() };
            let options = EtcdOptions { compact_every: COMPACTION, window, ..etcd::options(endpoints, prefix) };
            etcd::open(options).await
        };
        [open(0).await, open(1).await]
    }
}

/// Kills and pauses members, one or two at a time, while connections are cut. Then all is well again.
async fn strike(mut world: World, seed: u64) -> World {
    let mut rng = StdRng::seed_from_u64(seed);
    for fault in 0..FAULTS {
        let at = rng.random_range(0..MEMBERS);
        let struck: Vec<usize> = (at..=at + fault % 2).map(|at| at % MEMBERS).collect();
        let is_killed = rng.random();
        for at in &struck {
            if is_killed { world.cluster.kill(*at) } else { world.cluster.pause(*at) }
        }
        cut_for(&world, &mut rng, FAULT).await;
        for at in struck {
            if is_killed { world.cluster.start_again(at) } else { world.cluster.resume(at) }
        }
        cut_for(&world, &mut rng, REST).await;
    }
    world
}

/// Cuts connections, each of which can be made anew at once.
async fn cut_for(world: &World, rng: &mut StdRng, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(CONNECTED.mul_f64(rng.random())).await;
        let way = &world.ways[rng.random_range(0..2)][rng.random_range(0..MEMBERS)];
        way.set(Way::Cut);
        way.set(Way::Open);
    }
}

/// Writes its own keys, each version on top of the one that it knows, until it is told to end. Nobody else writes them, so that what became
/// of a write whose outcome is not known shows with the next one.
async fn write(stores: [Store; 2], writer: usize, seed: u64, over: Arc<AtomicBool>, written: Written) {
    let mut rng = StdRng::seed_from_u64(seed * 100 + writer as u64);
    let keys: Vec<Key> = (0..KEYS_EACH)
        .map(|at| pod(NAMESPACES[(writer + at) % NAMESPACES.len()], &format!("w{writer}-{at}")))
        .collect();
    let mut known: Vec<Option<Revision>> = vec![None; KEYS_EACH];
    let mut open: Vec<Vec<String>> = vec![Vec::new(); KEYS_EACH];
    for number in 0.. {
        let is_over = over.load(Ordering::Relaxed);
        let unsettled = open.iter().position(|open| !open.is_empty());
        if is_over && unsettled.is_none() {
            return;
        }
        let at = if is_over { unsettled.unwrap_or(0) } else { rng.random_range(0..KEYS_EACH) };
        let value = format!("{writer}-{number}");
        let expectation = known[at].map_or(Expectation::Absent, Expectation::Unchanged);
        let color = ["red", "blue"][rng.random_range(0..2)];
        let object = json(&keys[at], color, ["n1", "n2"][rng.random_range(0..2)], &value);
        let change = Change::put(keys[at].clone(), expectation, object, &ByNode).expect("an object");
        let note = |object: &Arc<Object>| {
            let mut written = written.lock().expect("no writer panicked");
            let other = written.insert(object.revision(), (keys[at].clone(), Arc::clone(object)));
            assert!(other.is_none(), "{} was handed out twice", object.revision());
            Some(object.revision())
        };
        match stores[rng.random_range(0..2)].commit(Transaction::of(change)).await {
            Ok(committed) => {
                known[at] = note(committed.objects[0].as_ref().expect("it was put"));
                open[at].clear();
            }
            Err(CommitError::Conflict { actual, .. } | CommitError::Exists { actual, .. }) => {
                let found = value_of(actual.json());
                assert!(open[at].contains(&found), "{found} is in the way of {value}: nobody wrote it, or it was told");
                known[at] = note(&actual);
                open[at].clear();
            }
            Err(CommitError::Unknown(_)) => open[at].push(value),
            Err(CommitError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What a watcher was told between two lists.
struct Stretch {
    listed: Dump,
    from: Revision,
    told: Vec<(Vec<Seen>, Revision)>,
}

/// How a watcher comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    /// Soon, mostly in time.
    Soon,
    /// Only when a server has forgotten where it was.
    Late,
}

/// Follows with one server and the other, until it is told to end and has everything.
async fn follow(
    stores: [Store; 2],
    interest: Interest,
    returns: Returns,
    seed: u64,
    newest: Arc<Mutex<Option<Revision>>>,
) -> Vec<Stretch> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut at = 0;
    let mut seen: Option<Revision> = None;
    loop {
        at = (at + 1) % 2;
        let store = &stores[at];
        let from = match seen {
            Some(seen) => seen,
            None => {
                let snapshot = store.snapshot();
                let (listed, from) = (dump_of(&snapshot, &pods()), snapshot.revision());
                stretches.push(Stretch { listed, from, told: Vec::new() });
                from
            }
        };
        seen = Some(from);
        let mut watcher = match store.watch(interest.request(from)) {
            Ok(watcher) => watcher,
            Err(WatchError::Expired(_)) => {
                seen = None;
                continue;
            }
            // This server is behind the other one.
            Err(WatchError::Future { .. }) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        // Some stay away for longer than a server remembers.
        let patience = Duration::from_millis(rng.random_range(50..1500));
        let leaves = tokio::time::sleep(patience);
        tokio::pin!(leaves);
        let stretch = stretches.last_mut().expect("there was a list");
        loop {
            tokio::select! {
                () = &mut leaves => break,
                told = watcher.next() => match told {
                    Ok(events) => stretch.told.push((events.iter().map(Seen::of).collect(), watcher.revision())),
                    Err(WatchError::Expired(_)) => {
                        seen = None;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                },
            }
        }
        if seen.is_some() {
            // What a bookmark would have said.
            stretch.told.push((Vec::new(), watcher.revision()));
            seen = Some(watcher.revision());
        }
        let end = *newest.lock().expect("nobody panicked");
        if end.is_some_and(|end| seen.is_some_and(|seen| seen >= end)) {
            return stretches;
        }
        let left = seen.unwrap_or(store.snapshot().revision()).get();
        let is_forgotten = || stores.iter().all(|store| store.snapshot().revision().get() > left + 2 * WINDOW as u64);
        while returns == Returns::Late && !is_forgotten() && newest.lock().expect("nobody panicked").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[test]
fn watchers_get_what_happened_or_are_told_to_list_again_while_etcd_forgets_and_fails() {
    for seed in seeds(1) {
        watched(Cluster::start(MEMBERS), seed);
    }
}

#[test]
fn the_same_holds_with_an_old_etcd() {
    match Cluster::start_old(MEMBERS) {
        Some(cluster) => watched(cluster, seeds(1).end),
        None => eprintln!("left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one"),
    }
}

fn watched(cluster: Cluster, seed: u64) {
    run_real(async {
        let world = World::start(cluster).await;
        let stores = world.servers(&prefix()).await;
        let first = stores[0].snapshot().revision();
        let (over, newest) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let interests = [
            Interest::default(),
            Interest { namespace: Some("red"), ..Interest::default() },
            Interest { color: Some("blue"), ..Interest::default() },
            Interest { color: Some("red"), node: Some("n1"), ..Interest::default() },
        ];
        let following: Vec<_> = interests
            .iter()
            .cycle()
            .take(WATCHERS)
            .enumerate()
            .map(|(at, interest)| {
                let (seed, returns) =
                    (seed * 100 + at as u64, if at < interests.len() { Returns::Soon } else { Returns::Late });
                let following = follow(stores.clone(), interest.clone(), returns, seed, Arc::clone(&newest));
                (interest.clone(), tokio::spawn(following))
            })
            .collect();
        let written: Written = Arc::default();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(stores.clone(), writer, seed, Arc::clone(&over), Arc::clone(&written))))
            .collect();
        let world = strike(world, seed).await;
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            timeout(END_MAX, writer).await.expect("a write is never answered").expect("a writer");
        }
        let mut truth = Truth::default();
        let all = std::mem::take(&mut *written.lock().expect("no writer panicked"));
        for (revision, (key, object)) in all {
            truth.commit(revision, vec![(key, Some(object))]);
        }
        assert!(truth.steps() > 3 * WINDOW, "{} writes only", truth.steps());
        *newest.lock().expect("nobody panicked") = Some(truth.newest());
        let (mut relists, mut events) = (0, 0);
        for (interest, following) in following {
            let stretches = timeout(END_MAX, following).await.expect("an event never comes").expect("a watcher");
            relists += stretches.len() - 1;
            for stretch in stretches {
                let mut expected = truth.state_at(stretch.from);
                expected.retain(|key, _| *key.resource() == pods());
                assert_eq!(stretch.listed, expected, "seed {seed}: a list at {}", stretch.from);
                let mut checker = Checker::new(interest.clone(), &stretch.listed, stretch.from);
                for (told, bookmark) in stretch.told {
                    assert_eq!(checker.deliver(&truth, &told, bookmark), Ok(()), "seed {seed}, {interest:?}");
                }
                events += checker.events;
            }
        }
        assert!(relists > 0 && events > 1000, "{relists} lists again, {events} events");
        for store in &stores {
            store.fresh().expect("etcd has others").await.expect("etcd answers");
            assert_eq!(dump_of(&store.snapshot(), &pods()), truth.state(), "seed {seed}");
            // Who asks from the beginning is told so, by etcd's own word or by ours.
            let asked = store.watch(Interest::default().request(first));
            assert!(matches!(asked, Err(WatchError::Expired(_))), "what is forgotten can't be told");
        }
        assert!(is_forgotten(&world.cluster, first), "etcd was never compacted");
    });
}

/// Whether etcd has forgotten how things were at a revision.
fn is_forgotten(cluster: &Cluster, at: Revision) -> bool {
    let url = format!("http://127.0.0.1:{}/v3/kv/range", cluster.ports(0)[0]);
    let body = format!(r#"{{"key":"Lw==","revision":"{at}"}}"#);
    let answer = std::process::Command::new("curl").args(["-sS", "-d", &body, &url]).output().expect("curl runs");
    String::from_utf8_lossy(&answer.stdout).contains("has been compacted")
}
