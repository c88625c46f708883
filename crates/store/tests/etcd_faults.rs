//! Members of a real etcd cluster are killed and paused while servers write to it and watch it: nothing that was acknowledged is lost,
//! reads are never stale, and no event is lost, doubled or out of order.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{Durability, Store};
use support::etcd::{self, Cluster, prefix, run_real};
use support::linearizability::check;
use support::planted::{Plan, record};
use support::truth::Truth;
use support::watch_checker::{Checker, Interest, Seen};
use support::workload::{Answers, transaction};
use support::{dump, dump_of, pods, seeds};

/// How long a fault lasts: longer than an election, shorter than anybody's patience.
const FAULT: Duration = Duration::from_millis(2500);

/// How long all is well between two faults.
const REST: Duration = Duration::from_millis(1500);

/// Strikes one member after another until it is told to end; the majority is always there.
async fn strike(mut cluster: Cluster, seed: u64, over: Arc<AtomicBool>) -> (Cluster, usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = 0;
    while !over.load(Ordering::Relaxed) {
        let at = rng.random_range(0..cluster.len());
        let kill: bool = rng.random();
        if kill {
            cluster.kill(at)
        } else {
            cluster.pause(at)
        }
        tokio::time::sleep(FAULT).await;
        if kill {
            cluster.start_again(at)
        } else {
            cluster.resume(at)
        }
        faults += 1;
        tokio::time::sleep(REST).await;
    }
    (cluster, faults)
}

/// Two servers, each of which begins with another member.
async fn servers(cluster: &Cluster, prefix: &str) -> Vec<Store> {
    let mut servers = Vec::new();
    for first in 0..2 {
        servers.push(etcd::open(cluster.options(prefix, first)).await);
    }
    servers
}

#[test]
fn clients_of_two_servers_see_one_order_while_members_fail() {
    for seed in seeds(1) {
        let cluster = Cluster::start(3);
        run_real(async {
            let stores = servers(&cluster, &prefix()).await;
            let over = Arc::new(AtomicBool::new(false));
            let striking = tokio::spawn(strike(cluster, seed, Arc::clone(&over)));
            let plan = Plan { seed, clients: 8, calls_each: 1200, objects: 24, wrong: None };
            let (history, _) = record(&stores, plan).await;
            over.store(true, Ordering::Relaxed);
            let (_, faults) = striking.await.expect("it ends");
            assert!(faults > 0 && history.len() > 5000, "{faults} faults, {} calls", history.len());
            assert_eq!(check(&history), Ok(()), "seed {seed}");
        });
    }
}

#[test]
fn watchers_get_exactly_what_happened_while_members_fail() {
    for seed in seeds(1) {
        let cluster = Cluster::start(3);
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
}

async fn write(store: Store, seed: u64, answers: Arc<Mutex<Answers>>) {
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..400 {
        let (transaction, keys) = transaction(&store, &mut rng, &format!("{seed}-{number}"), 10);
        let answer = store.commit(transaction).await;
        answers.lock().expect("no writer panicked").note(answer, Durability::Synced, keys, 0);
    }
}
