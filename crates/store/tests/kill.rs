//! A real process on a real disk or a real etcd, killed at a random moment, again and again on the same data.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{Endpoint, Expectation, Options, RealDisk, Store, Transaction};
use support::etcd::{self, Cluster, prefix};
use support::{open, pod, put, seeds, value_of};

const PLACE: &str = "SETPOINT_KILL_PLACE";
const WRITERS: u64 = 16;
/// Each writer has this many pairs of objects.
const PAIRS: u64 = 4;

fn options() -> Options {
    Options { segment_bytes: 64 * 1024, checkpoint_bytes: 256 * 1024, ..support::small() }
}

/// What each writer wrote last to each of its pairs, as far as it was told so: value and revision.
type Acknowledged = BTreeMap<(u64, u64), (u64, u64)>;

/// Where the objects are.
enum Place {
    Directory(PathBuf),
    Etcd { port: u16, prefix: String },
}

impl Place {
    /// As the child is told.
    fn text(&self) -> String {
        match self {
            Place::Directory(directory) => directory.display().to_string(),
            Place::Etcd { port, prefix } => format!("etcd {port} {prefix}"),
        }
    }

    fn parse(text: &str) -> Place {
        match *text.split(' ').collect::<Vec<_>>() {
            ["etcd", port, prefix] => Place::Etcd { port: port.parse().expect("a port"), prefix: prefix.to_owned() },
            _ => Place::Directory(text.into()),
        }
    }

    async fn open(&self) -> Store {
        match self {
            Place::Directory(directory) => {
                open(RealDisk::new(directory).expect("a disk"), options()).await.expect("it opens").0
            }
            Place::Etcd { port, prefix } => {
                let member = Endpoint { host: "127.0.0.1".to_owned(), port: *port };
                etcd::open(etcd::options(vec![member], prefix)).await
            }
        }
    }
}

const TEST: &str = "nothing_that_a_killed_process_acknowledged_is_lost";

#[test]
fn nothing_that_a_killed_process_acknowledged_is_lost() {
    if let Ok(place) = std::env::var(PLACE) {
        return write_until_killed(&Place::parse(&place));
    }
    let directory = tempfile::tempdir().expect("a directory");
    kill_again_and_again(&Place::Directory(directory.path().to_owned()), seeds(30));
}

#[test]
fn nothing_that_a_killed_server_on_etcd_acknowledged_is_lost() {
    let cluster = Cluster::start(1);
    kill_again_and_again(&Place::Etcd { port: cluster.ports(0)[0], prefix: prefix() }, seeds(10));
}

#[test]
fn nothing_that_a_killed_server_on_an_old_etcd_acknowledged_is_lost() {
    match Cluster::start_old(1) {
        Some(cluster) => kill_again_and_again(&Place::Etcd { port: cluster.ports(0)[0], prefix: prefix() }, seeds(10)),
        None => eprintln!("left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one"),
    }
}

fn kill_again_and_again(place: &Place, cycles: std::ops::Range<u64>) {
    let mut rng = StdRng::seed_from_u64(1);
    let mut acknowledged = Acknowledged::new();
    for cycle in cycles {
        let before: u64 = acknowledged.values().map(|(value, _)| value).sum();
        kill_while_writing(place, &mut rng, &mut acknowledged);
        let after: u64 = acknowledged.values().map(|(value, _)| value).sum();
        assert!(after > before, "cycle {cycle}: nothing was written");
        check(place, &mut acknowledged, cycle);
    }
}

/// The child: sixteen writers, each telling what was acknowledged.
fn write_until_killed(place: &Place) {
    etcd::run_real(async {
        let store = place.open().await;
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
        for writer in writers {
            writer.await.expect("a writer");
        }
    });
}

async fn write(store: Store, writer: u64) {
    for n in 0.. {
        let pair = n % PAIRS;
        let (left, right) = names(writer, pair);
        let there = store.snapshot().get(left.resource(), left.namespace(), left.name());
        let value = there.as_ref().map_or(1, |object| value_of(object.json()).parse::<u64>().expect("a number") + 1);
        let expectation = there.map_or(Expectation::Absent, |object| Expectation::Unchanged(object.revision()));
        let both = Transaction::of(put(&left, expectation, &value.to_string())).and(put(
            &right,
            expectation,
            &value.to_string(),
        ));
        let revision = store.commit(both).await.expect("only this writer changes these").revision;
        let line = format!("{writer} {pair} {value} {revision}\n");
        std::io::stderr().write_all(line.as_bytes()).expect("the parent listens");
    }
}

fn names(writer: u64, pair: u64) -> (setpoint_store::Key, setpoint_store::Key) {
    (pod("red", &format!("w{writer}-{pair}")), pod("blue", &format!("w{writer}-{pair}")))
}

/// Starts the child, kills it some time after its first acknowledgement, and notes all that it told.
fn kill_while_writing(place: &Place, rng: &mut StdRng, acknowledged: &mut Acknowledged) {
    let mut child = start(place);
    let pipe = BufReader::new(child.stderr.take().expect("a pipe"));
    let (told, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // A line is short enough for a pipe to take it whole or not at all.
        pipe.split(b'\n').map_while(Result::ok).for_each(|line| drop(told.send(line)));
    });
    let first = lines.recv_timeout(Duration::from_secs(30)).expect("the child writes");
    let deadline = Instant::now() + Duration::from_millis(rng.random_range(0..60));
    let mut seen = vec![first];
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        seen.push(line);
    }
    child.kill().expect("it runs until it is killed");
    child.wait().expect("it ends");
    reader.join().expect("the pipe ends");
    seen.extend(lines);
    for line in seen {
        let line = String::from_utf8_lossy(&line).into_owned();
        let numbers: Vec<u64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        let [writer, pair, value, revision] = numbers[..] else { panic!("the child said: {line}") };
        acknowledged.insert((writer, pair), (value, revision));
    }
}

fn start(place: &Place) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", TEST, "--nocapture"])
        .env(PLACE, place.text())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Opens the store: each pair is as acknowledged, or as the one write after that left it; never half of it.
fn check(place: &Place, acknowledged: &mut Acknowledged, cycle: u64) {
    etcd::run_real(async {
        let store = place.open().await;
        let snapshot = store.snapshot();
        let newest = acknowledged.values().map(|(_, revision)| *revision).max().unwrap_or_default();
        assert!(snapshot.revision().get() >= newest, "cycle {cycle}: revision {newest} was acknowledged");
        for writer in 0..WRITERS {
            for pair in 0..PAIRS {
                let (left, right) = names(writer, pair);
                let get = |key: &setpoint_store::Key| snapshot.get(key.resource(), key.namespace(), key.name());
                let (left, right) = (get(&left), get(&right));
                let told = acknowledged.get(&(writer, pair)).copied();
                let what = format!("cycle {cycle}, writer {writer}, pair {pair}, acknowledged {told:?}");
                let Some((left, right)) = left.zip(right) else {
                    assert!(told.is_none(), "{what}: it is gone");
                    continue;
                };
                assert_eq!(left.revision(), right.revision(), "{what}: half of a transaction");
                let value: u64 = value_of(left.json()).parse().expect("a number");
                assert_eq!(value_of(left.json()), value_of(right.json()), "{what}: half of a transaction");
                let (told_value, told_revision) = told.unwrap_or_default();
                let as_told = value == told_value && left.revision().get() == told_revision;
                let one_more = value == told_value + 1 && left.revision().get() > told_revision;
                assert!(as_told || one_more, "{what}: found {value} at {}", left.revision());
                acknowledged.insert((writer, pair), (value, left.revision().get()));
            }
        }
        if cycle.is_multiple_of(3) {
            store.close().await;
        }
    });
}
