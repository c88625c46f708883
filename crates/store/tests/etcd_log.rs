//! What the log in etcd promises beyond the model: several servers, bounds, leases, what is forgotten, and what is not ours.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use setpoint_api::Revision;
use setpoint_store::{
    Change, CommitError, EtcdError, EtcdFiles, EtcdOptions, Expectation, MemoryDisk, Store, Transaction, WatchError,
    fill,
};
use support::etcd::{self, Cluster, prefix, run_real};
use support::linearizability::check;
use support::planted::{Plan, record};
use support::proxy::{Proxy, Way};
use support::watch_checker::Interest;
use support::{ByNode, dump, node, open, pod, put, small, value_of};

/// What a server shows once it has everything that was written before.
async fn fresh_value(store: &Store, name: &str) -> Option<String> {
    store.fresh().expect("etcd has others").await.expect("etcd answers");
    let key = pod("red", name);
    store.snapshot().get(key.resource(), key.namespace(), name).map(|object| value_of(object.json()))
}

#[test]
fn what_one_server_writes_the_next_read_of_another_sees() {
    reads_are_fresh(&Cluster::start(1));
}

fn reads_are_fresh(cluster: &Cluster) {
    run_real(async {
        let prefix = prefix();
        let (one, other) = (cluster.open(&prefix).await, cluster.open(&prefix).await);
        for n in 0..200 {
            let (writer, reader) = if n % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let change = put(&pod("red", "a"), Expectation::Any, &n.to_string());
            let committed = writer.commit(Transaction::of(change)).await.expect("committed");
            assert_eq!(fresh_value(reader, "a").await, Some(n.to_string()));
            assert!(reader.snapshot().revision() >= committed.revision);
        }
        assert_eq!(dump(&one.snapshot()), dump(&other.snapshot()));
    });
}

#[test]
fn writes_of_somebody_else_in_etcd_are_no_reason_to_wait() {
    let cluster = Cluster::start(1);
    others_are_no_reason_to_wait(&cluster, true);
    // As with members that tell their progress too early.
    others_are_no_reason_to_wait(&cluster, false);
}

/// What old versions do differently is not asked of them; everything else is as it is with today's.
#[test]
fn an_old_etcd_gives_right_answers() {
    let Some(cluster) = Cluster::start_old(1) else {
        eprintln!(
            "left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one where Debian has it"
        );
        return;
    };
    reads_are_fresh(&cluster);
    others_are_no_reason_to_wait(&cluster, true);
    conditions_hold(&cluster);
    what_is_kept_for_a_time_goes(&cluster);
    run_real(async {
        let prefix = prefix();
        let stores = [cluster.open(&prefix).await, cluster.open(&prefix).await];
        let plan = Plan { seed: 1, clients: 8, calls_each: 150, objects: 24, wrong: None };
        let (history, _) = record(&stores, plan).await;
        assert_eq!(check(&history), Ok(()));
    });
}

fn others_are_no_reason_to_wait(cluster: &Cluster, asks_progress: bool) {
    run_real(async {
        let of = |prefix: &str| EtcdOptions { asks_progress, ..cluster.options(prefix, 0) };
        let (ours, theirs) = (etcd::open(of(&prefix())).await, etcd::open(of(&prefix())).await);
        for n in 0..20 {
            let change = put(&pod("red", "a"), Expectation::Any, &n.to_string());
            let committed = theirs.commit(Transaction::of(change)).await.expect("committed");
            assert_eq!(fresh_value(&ours, "a").await, None);
            ours.reached(committed.revision).await;
            assert!(ours.snapshot().revision() >= committed.revision);
        }
    });
}

#[test]
fn a_condition_on_another_object_holds_at_the_moment_of_the_commit() {
    conditions_hold(&Cluster::start(1));
}

fn conditions_hold(cluster: &Cluster) {
    run_real(async {
        let prefix = prefix();
        let (one, other) = (cluster.open(&prefix).await, cluster.open(&prefix).await);
        let if_there = || {
            let change = put(&pod("red", "b"), Expectation::Any, "1");
            Transaction::of(change).provided(pod("red", "a"), |found| found.is_some())
        };
        let refused = one.commit(if_there()).await.expect_err("there is no a");
        assert!(matches!(refused, CommitError::Unmet { actual: None, .. }), "{refused}");
        other.commit(Transaction::of(put(&pod("red", "a"), Expectation::Absent, "1"))).await.expect("committed");
        // The first server may not have seen it yet, and must not refuse for that.
        one.commit(if_there()).await.expect("there is one now");
        other.commit(Transaction::of(Change::delete(pod("red", "a"), Expectation::Any))).await.expect("committed");
        let refused = one.commit(if_there()).await.expect_err("it is gone");
        assert!(matches!(refused, CommitError::Unmet { actual: None, .. }), "{refused}");
    });
}

#[test]
fn what_etcd_does_not_take_is_told_in_its_words() {
    let cluster = Cluster::start_with(1, &["--quota-backend-bytes=16777216"]);
    run_real(async {
        let store = cluster.open(&prefix()).await;
        let large = put(&pod("red", "a"), Expectation::Any, &"x".repeat(1_600_000));
        let refused = store.commit(Transaction::of(large)).await.expect_err("too large");
        assert!(matches!(&refused, CommitError::TooLarge { limit: 1_572_864, .. }), "{refused}");
        let refused = loop {
            let change = put(&pod("red", "a"), Expectation::Any, &"x".repeat(1_000_000));
            if let Err(error) = store.commit(Transaction::of(change)).await {
                break error;
            }
        };
        assert_eq!(refused.to_string(), "etcdserver: mvcc: database space exceeded");
        assert!(matches!(refused, CommitError::Refused(_)));
        // Reads go on, and whoever looks after it is told.
        assert!(fresh_value(&store, "a").await.is_some());
        while store.health().is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(store.health(), Err("etcd has raised the alarm NOSPACE".to_owned()));
        assert_eq!(store.etcd().expect("it is on etcd").alarms, ["NOSPACE"]);
    });
}

#[test]
fn what_is_kept_for_a_time_goes_by_itself() {
    what_is_kept_for_a_time_goes(&Cluster::start(1));
}

fn what_is_kept_for_a_time_goes(cluster: &Cluster) {
    run_real(async {
        let store = cluster.open(&prefix()).await;
        assert!(store.expires());
        let mut watcher = store.watch(Interest::default().request(store.snapshot().revision())).expect("a watcher");
        let change = put(&pod("red", "a"), Expectation::Absent, "1");
        let kept = Transaction::of(change).kept_for(Duration::from_secs(1));
        store.commit(kept).await.expect("committed");
        let kinds = async {
            let mut kinds = Vec::new();
            while kinds.len() < 2 {
                kinds.extend(watcher.next().await.expect("kept").iter().map(|event| event.kind.as_str()));
            }
            kinds
        };
        assert_eq!(kinds.await, ["ADDED", "DELETED"]);
        assert!(store.snapshot().counts().is_empty());
    });
}

#[test]
fn one_of_several_servers_lets_etcd_forget_and_another_when_it_is_gone() {
    let cluster = Cluster::start(1);
    run_real(async {
        let prefix = prefix();
        let options = || EtcdOptions { compact_every: Duration::from_millis(500), ..cluster.options(&prefix, 0) };
        let (one, other) = (etcd::open(options()).await, etcd::open(options()).await);
        let mut watchers = [&one, &other]
            .map(|store| store.watch(Interest::default().request(store.snapshot().revision())).expect("a watcher"));
        let mut written = 0;
        for store in [&one, &other] {
            let change = put(&pod("red", "a"), Expectation::Any, &written.to_string());
            let at = store.commit(Transaction::of(change)).await.expect("committed").revision;
            while !is_forgotten(&cluster, at) {
                // A revision is forgotten once there is a later one.
                written += 1;
                let change = put(&pod("red", "a"), Expectation::Any, &written.to_string());
                other.commit(Transaction::of(change)).await.expect("committed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            written += 1;
            one.close().await;
        }
        // Who follows misses nothing by it.
        let mut values = Vec::new();
        while values.len() < written {
            let events = watchers[1].next().await.expect("kept");
            values
                .extend(events.iter().map(|event| value_of(event.object().json()).parse::<usize>().expect("a number")));
        }
        assert_eq!(values.last(), Some(&(written - 1)));
        assert!(values.is_sorted(), "{values:?}");
    });
}

/// Whether etcd has forgotten how things were at a revision.
fn is_forgotten(cluster: &Cluster, at: Revision) -> bool {
    let url = format!("http://127.0.0.1:{}/v3/kv/range", cluster.ports(0)[0]);
    let body = format!(r#"{{"key":"Lw==","revision":"{at}"}}"#);
    let answer = std::process::Command::new("curl").args(["-sS", "-d", &body, &url]).output().expect("curl runs");
    String::from_utf8_lossy(&answer.stdout).contains("has been compacted")
}

#[test]
fn a_feed_goes_on_after_a_restart_of_etcd() {
    let mut cluster = Cluster::start(1);
    run_real(async {
        let prefix = prefix();
        let (one, other) = (cluster.open(&prefix).await, cluster.open(&prefix).await);
        let mut watcher = one.watch(Interest::default().request(one.snapshot().revision())).expect("a watcher");
        let put_one = |n: usize| Transaction::of(put(&pod("red", "a"), Expectation::Any, &n.to_string()));
        for n in 0..10 {
            other.commit(put_one(n)).await.expect("committed");
        }
        cluster.kill(0);
        assert!(one.fresh().expect("etcd has others").await.is_err(), "a read that nobody confirmed");
        cluster.start_again(0);
        while other.commit(put_one(10)).await.is_err() {}
        let mut values = Vec::new();
        while values.len() < 11 {
            let events = watcher.next().await.expect("kept");
            values.extend(events.iter().map(|event| value_of(event.object().json())));
        }
        assert_eq!(values, (0..11).map(|n| n.to_string()).collect::<Vec<_>>());
        one.close().await;
        assert!(matches!(watcher.next().await, Err(WatchError::Closed)));
    });
}

#[test]
fn a_feed_whose_past_is_forgotten_begins_anew_and_watchers_are_told() {
    let cluster = Cluster::start_with(1, &["--auto-compaction-mode=periodic", "--auto-compaction-retention=1s"]);
    run_real(async {
        let prefix = prefix();
        let proxy = Proxy::before(&cluster.endpoints(0)[0]).await;
        let options = EtcdOptions { endpoints: vec![proxy.endpoint.clone()], ..cluster.options(&prefix, 0) };
        let (behind, direct) = (etcd::open(options).await, cluster.open(&prefix).await);
        let mut watcher = behind.watch(Interest::default().request(behind.snapshot().revision())).expect("a watcher");
        let put_one = |n: usize| Transaction::of(put(&pod("red", "a"), Expectation::Any, &n.to_string()));
        behind.commit(put_one(0)).await.expect("committed");
        assert_eq!(watcher.next().await.expect("kept").len(), 1);
        proxy.set(Way::Cut);
        for _ in 0..10 {
            direct.commit(put_one(1)).await.expect("committed");
        }
        // etcd forgets by the clock: what was written at first is gone once this is over.
        tokio::time::sleep(Duration::from_secs(5)).await;
        direct.commit(put_one(2)).await.expect("committed");
        proxy.set(Way::Open);
        assert!(matches!(watcher.next().await, Err(WatchError::Expired(_))), "nobody can know what came in between");
        assert_eq!(fresh_value(&behind, "a").await.as_deref(), Some("2"));
        behind.commit(put_one(3)).await.expect("committed");
        assert_eq!(fresh_value(&direct, "a").await.as_deref(), Some("3"));
    });
}

#[test]
fn a_write_whose_answer_is_lost_happens_once_and_is_told_so() {
    let cluster = Cluster::start(1);
    run_real(async {
        let prefix = prefix();
        let proxy = Proxy::before(&cluster.endpoints(0)[0]).await;
        let options = EtcdOptions { endpoints: vec![proxy.endpoint.clone()], ..cluster.options(&prefix, 0) };
        let (behind, direct) = (etcd::open(options).await, cluster.open(&prefix).await);
        for (round, way) in [Way::Mute, Way::Deaf, Way::Mute, Way::Deaf].into_iter().enumerate() {
            let before = direct.snapshot().revision();
            let mut watcher = direct.watch(Interest::default().request(before)).expect("a watcher");
            proxy.set(way);
            let (name, delete) = (format!("o{}", round / 2), round == 1);
            let change = || match delete {
                true => Change::delete(pod("red", "o0"), Expectation::Any),
                false => put(&pod("red", &name), Expectation::Absent, "1"),
            };
            let store = behind.clone();
            let transaction = Transaction::of(change());
            let committing = tokio::spawn(async move { store.commit(transaction).await });
            if way == Way::Mute {
                // It has happened, but only others know.
                assert_eq!(watcher.next().await.expect("kept").len(), 1);
            }
            proxy.has_lost().await;
            proxy.set(Way::Cut);
            proxy.set(Way::Open);
            let committed = committing.await.expect("it ends");
            if round == 3 {
                // The same name as the round before.
                assert!(matches!(committed, Err(CommitError::Exists { .. })), "{committed:?}");
                continue;
            }
            let committed = committed.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(committed.revision > before);
            direct.reached(committed.revision).await;
            let again = if way == Way::Mute { 0 } else { 1 };
            assert_eq!(watcher.poll().expect("kept").len(), again, "round {round}");
        }
    });
}

#[test]
fn a_prefix_that_something_else_uses_is_refused() {
    let cluster = Cluster::start(1);
    run_real(async {
        let (outer, inner) = (prefix(), "/core".to_owned());
        // What one prefix calls its own is nothing that another knows.
        cluster.open(&format!("{outer}{inner}")).await;
        let refused = Store::open_etcd(Arc::new(ByNode), cluster.options(&outer, 0)).await.err().expect("not ours");
        assert!(matches!(&refused, EtcdError::Unreadable { .. } | EtcdError::Foreign(_)), "{refused}");
    });
}

#[test]
fn files_in_common_are_written_by_the_first() {
    let cluster = Cluster::start(1);
    run_real(async {
        let options = cluster.options(&prefix(), 0);
        let files = EtcdFiles::new(&options).expect("settings");
        assert!(files.read().await.expect("read").is_empty());
        let of = |text: &str| vec![("ca.pem".to_owned(), text.into()), ("keys".to_owned(), text.into())];
        assert!(files.write_first(&of("one")).await.expect("written"));
        assert!(!files.write_first(&of("two")).await.expect("asked"));
        let found = files.read().await.expect("read");
        assert_eq!(found, [("ca.pem".to_owned(), "one".into()), ("keys".to_owned(), "one".into())]);
        // They are nobody's objects.
        assert!(etcd::open(options).await.snapshot().counts().is_empty());
    });
}

#[test]
fn everything_moves_into_etcd_in_its_order_and_beyond_all_revisions() {
    let cluster = Cluster::start(1);
    run_real(async {
        let (source, _) = open(MemoryDisk::new(), small()).await.expect("a new store");
        for n in 0..500 {
            let transaction =
                Transaction::of(put(&pod("red", &format!("o{}", n % 300)), Expectation::Any, &n.to_string()));
            let transaction = if n % 7 == 0 {
                transaction.and(put(&node("n"), Expectation::Any, &n.to_string()))
            } else {
                transaction
            };
            source.commit(transaction).await.expect("committed");
        }
        let (options, snapshot) = (cluster.options(&prefix(), 0), source.snapshot());
        assert_eq!(fill(&options, &snapshot, snapshot.revision()).await, Ok(301));
        assert_eq!(fill(&options, &snapshot, snapshot.revision()).await, Err(EtcdError::NotEmpty));
        let target = etcd::open(options).await;
        let contents = |store: &Store| -> BTreeMap<_, _> {
            store.snapshot().in_order().into_iter().map(|(key, object)| (key, object.without_revision())).collect()
        };
        assert_eq!(contents(&source), contents(&target));
        let at: BTreeMap<_, _> =
            target.snapshot().in_order().into_iter().map(|(key, object)| (key, object.revision())).collect();
        let order: Vec<_> = snapshot.in_order().iter().map(|(key, _)| at[key]).collect();
        assert!(order.is_sorted() && order.first() < order.last(), "{order:?}");
        let moved = target.snapshot().in_order();
        assert!(moved.iter().all(|(_, object)| object.revision() > snapshot.revision()));
        // Versions of before are conflicts, and a watch from one is told to list again.
        let (key, object) = &source.snapshot().in_order()[0];
        let stale = put(key, Expectation::Unchanged(object.revision()), "x");
        let refused = target.commit(Transaction::of(stale)).await.expect_err("an old version");
        assert!(matches!(refused, CommitError::Conflict { .. }), "{refused}");
        let watch = target.watch(Interest::default().request(Revision::new(snapshot.revision().get())));
        assert!(matches!(watch.err(), Some(WatchError::Expired(_))));
        let (key, object) = &moved[0];
        let change = put(key, Expectation::Unchanged(object.revision()), "y");
        target.commit(Transaction::of(change)).await.expect("the version of after");
    });
}
