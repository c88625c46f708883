//! Members of a real etcd cluster are killed, paused and cut off, one or most of them, while servers write to it and watch it: nothing that
//! was acknowledged is lost, reads are never stale, and no event is lost, doubled or out of order.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{Durability, Endpoint, Store};
use support::apart::{self, Apart, Cut};
use support::etcd::{self, Cluster, prefix, run_real};
use support::linearizability::check;
use support::planted::{Plan, record};
use support::truth::Truth;
use support::watch_checker::{Checker, Interest, Seen};
use support::workload::{Answers, transaction};
use support::{dump, dump_of, pods, seeds};

/// Members of a cluster: as few as can do without one.
const MEMBERS: usize = 3;

/// How long a fault lasts: longer than an election, shorter than anybody's patience.
const FAULT: Duration = Duration::from_millis(2500);

/// How long all is well between two faults.
const REST: Duration = Duration::from_millis(1500);

/// An etcd cluster whose members something can happen to.
trait Struck: Send + 'static {
    /// Where its members are, beginning with one of them.
    fn endpoints(&self, first: usize) -> Vec<Endpoint>;

    /// Lets something happen to a member, chosen by chance, and returns what undoes it.
    fn strike(&mut self, at: usize, rng: &mut StdRng) -> Box<dyn FnOnce(&mut Self) + Send>;
}

impl Struck for Cluster {
    fn endpoints(&self, first: usize) -> Vec<Endpoint> {
        Cluster::endpoints(self, first)
    }

    fn strike(&mut self, at: usize, rng: &mut StdRng) -> Box<dyn FnOnce(&mut Cluster) + Send> {
        if rng.random() {
            self.kill(at);
            Box::new(move |cluster| cluster.start_again(at))
        } else {
            self.pause(at);
            Box::new(move |cluster| cluster.resume(at))
        }
    }
}

impl Struck for Apart {
    fn endpoints(&self, first: usize) -> Vec<Endpoint> {
        Apart::endpoints(self, first)
    }

    fn strike(&mut self, at: usize, rng: &mut StdRng) -> Box<dyn FnOnce(&mut Apart) + Send> {
        let cut = Cut::ALL[rng.random_range(0..Cut::ALL.len())];
        self.cut(at, cut);
        Box::new(move |cluster| cluster.heal(at, cut))
    }
}

/// Strikes members until it is told to end: in turn two of them, so that there is no majority, and one.
async fn strike<C: Struck>(mut cluster: C, seed: u64, over: Arc<AtomicBool>) -> (C, usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = 0;
    while !over.load(Ordering::Relaxed) {
        let at = rng.random_range(0..MEMBERS);
        let count = 2 - faults % 2;
        let undo: Vec<_> = (at..at + count).map(|at| cluster.strike(at % MEMBERS, &mut rng)).collect();
        tokio::time::sleep(FAULT).await;
        undo.into_iter().for_each(|undo| undo(&mut cluster));
        faults += 1;
        tokio::time::sleep(REST).await;
    }
    (cluster, faults)
}

/// Two servers, each of which begins with another member.
async fn servers(cluster: &impl Struck, prefix: &str) -> Vec<Store> {
    let mut servers = Vec::new();
    for first in 0..2 {
        servers.push(etcd::open(etcd::options(cluster.endpoints(first), prefix)).await);
    }
    servers
}

#[test]
fn clients_of_two_servers_see_one_order_while_members_fail() {
    for seed in seeds(1) {
        clients_see_one_order(Cluster::start(MEMBERS), seed);
    }
}

#[test]
fn clients_of_two_servers_see_one_order_while_members_of_an_old_etcd_fail() {
    match Cluster::start_old(MEMBERS) {
        Some(cluster) => clients_see_one_order(cluster, seeds(1).end),
        None => eprintln!("left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one"),
    }
}

#[test]
fn clients_of_two_servers_see_one_order_while_members_are_cut_off() {
    if apart::inside("clients_of_two_servers_see_one_order_while_members_are_cut_off") {
        clients_see_one_order(Apart::start(MEMBERS), seeds(1).end);
    }
}

fn clients_see_one_order(cluster: impl Struck, seed: u64) {
    run_real(async {
        let stores = servers(&cluster, &prefix()).await;
        let over = Arc::new(AtomicBool::new(false));
        let striking = tokio::spawn(strike(cluster, seed, Arc::clone(&over)));
        let plan = Plan { seed, clients: 8, calls_each: 700, objects: 24, wrong: None };
        let (history, _) = record(&stores, plan).await;
        over.store(true, Ordering::Relaxed);
        let (_, faults) = striking.await.expect("it ends");
        assert!(faults > 1 && history.len() > 5000, "{faults} faults, {} calls", history.len());
        assert_eq!(check(&history), Ok(()), "seed {seed}");
    });
}

#[test]
fn watchers_get_exactly_what_happened_while_members_fail() {
    for seed in seeds(1) {
        watchers_get_what_happened(Cluster::start(MEMBERS), seed);
    }
}

#[test]
fn watchers_get_exactly_what_happened_while_members_of_an_old_etcd_fail() {
    match Cluster::start_old(MEMBERS) {
        Some(cluster) => watchers_get_what_happened(cluster, seeds(1).end),
        None => eprintln!("left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one"),
    }
}

#[test]
fn watchers_get_exactly_what_happened_while_members_are_cut_off() {
    if apart::inside("watchers_get_exactly_what_happened_while_members_are_cut_off") {
        watchers_get_what_happened(Apart::start(MEMBERS), seeds(1).end);
    }
}

fn watchers_get_what_happened(cluster: impl Struck, seed: u64) {
    run_real(async {
        let stores = servers(&cluster, &prefix()).await;
        let interests = [
            Interest::default(),
            Interest { namespace: Some("red"), ..Interest::default() },
            Interest { color: Some("blue"), ..Interest::default() },
        ];
        let mut watchers = Vec::new();
        for store in &stores {
            let snapshot = store.snapshot();
            for interest in &interests {
                let checker = Checker::new(interest.clone(), &dump_of(&snapshot, &pods()), snapshot.revision());
                let watcher = store.watch(interest.request(snapshot.revision())).expect("a watcher");
                watchers.push((checker, watcher));
            }
        }
        let over = Arc::new(AtomicBool::new(false));
        let striking = tokio::spawn(strike(cluster, seed, Arc::clone(&over)));
        let answers = Arc::new(Mutex::new(Answers::default()));
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let (store, answers) = (stores[writer % 2].clone(), Arc::clone(&answers));
                tokio::spawn(async move { write(store, seed * 10 + writer as u64, answers).await })
            })
            .collect();
        for writer in writers {
            writer.await.expect("a writer");
        }
        over.store(true, Ordering::Relaxed);
        let (_cluster, faults) = striking.await.expect("it ends");
        let mut truth = Truth::default();
        answers.lock().expect("no writer panicked").tell(&mut truth);
        assert!(faults > 0 && truth.steps() > 1000, "{faults} faults, {} changes", truth.steps());
        for store in &stores {
            store.fresh().expect("etcd has others").await.expect("etcd answers");
            assert_eq!(dump(&store.snapshot()), truth.state(), "seed {seed}");
        }
        for (mut checker, mut watcher) in watchers {
            let events: Vec<Seen> = watcher.poll().expect("kept").iter().map(Seen::of).collect();
            let mut all = events;
            loop {
                let more = watcher.poll().expect("kept");
                if more.is_empty() {
                    break;
                }
                all.extend(more.iter().map(Seen::of));
            }
            assert_eq!(checker.deliver(&truth, &all, watcher.revision()), Ok(()), "seed {seed}");
        }
    });
}

async fn write(store: Store, seed: u64, answers: Arc<Mutex<Answers>>) {
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..400 {
        let (transaction, keys) = transaction(&store, &mut rng, &format!("{seed}-{number}"), 10);
        let answer = store.commit(transaction).await;
        answers.lock().expect("no writer panicked").note(answer, Durability::Synced, keys, 0);
    }
}
