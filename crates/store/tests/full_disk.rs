//! A disk that is full or broken: full is said, reads go on, and it heals by itself; broken stops the store for good.

mod support;

use std::io::ErrorKind;
use std::time::Duration;

use setpoint_store::{CommitError, Expectation, Fault, MemoryDisk, OpenError, Options, Store, Transaction};
use support::traced_disk::{Operation, TracedDisk};
use support::truth::Truth;
use support::workload::{Answers, Load, work};
use support::{dump, open, pod, put, rest, run, seeds, small};

fn load(seed: u64) -> Load {
    Load { commits_each: 8, relaxed_in_ten: 2, ..Load::new(seed) }
}

/// An empty store whose opening is not part of the test. Odd seeds have a disk where checkpoints and commits overlap.
async fn opened(seed: u64) -> (TracedDisk, Store) {
    let memory = MemoryDisk::new();
    let disk = if seed % 2 == 1 { TracedDisk::slow(memory, seed) } else { TracedDisk::new(memory) };
    let (store, _) = open(disk.clone(), small()).await.expect("a new store");
    (disk, store)
}

/// What the disk does in a run without faults, from its opening on.
fn operations(load: Load) -> Vec<Operation> {
    run(async {
        let (disk, store) = opened(load.seed).await;
        let before = disk.changes().len();
        work(&store, &disk.memory, load).await;
        disk.changes().split_off(before).into_iter().map(|(operation, _)| operation).collect()
    })
}

/// Half of the writes that fail put down half of their bytes.
fn fault(n: u64, operation: Operation, kind: ErrorKind) -> Fault {
    if operation == Operation::Write && n.is_multiple_of(2) { Fault::Partial(kind) } else { Fault::Error(kind) }
}

async fn commit_one(store: &Store) -> Result<(), CommitError> {
    let change = put(&pod("red", "probe"), Expectation::Any, "probe");
    store.commit(Transaction::of(change)).await.map(drop)
}

/// Opens the disk as it is and as a power cut leaves it: everything acknowledged is there.
async fn check_after(disk: &MemoryDisk, answers: &Answers, unanswered_may_be_there: bool, what: &str) {
    let mut truth = Truth::default();
    answers.tell(&mut truth);
    for left in [disk.copy(), disk.power_cut(7)] {
        left.set_capacity(None);
        let (store, _) = open(left, small()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = dump(&store.snapshot());
        if unanswered_may_be_there && found != truth.state() {
            // A group that was written and whose answer was an error: what came before it is untouched.
            let newer = |revision| revision > truth.newest();
            let state = truth.state();
            let kept = found.iter().filter(|(_, (revision, _))| !newer(*revision));
            assert!(kept.clone().all(|(key, object)| state.get(key) == Some(object)), "{what}");
            assert!(found.values().any(|(revision, _)| newer(*revision)) || found.len() < state.len(), "{what}");
        } else {
            assert_eq!(found, truth.state(), "{what}");
        }
        commit_one(&store).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn a_full_disk_at_any_operation_refuses_writes_and_heals() {
    let (mut refused, mut stopped) = (0, 0);
    for seed in seeds(2) {
        let load = Load { relaxed_in_ten: 0, ..load(seed) };
        for (n, operation) in (1..).zip(operations(load)) {
            let what = format!("seed {seed}, {operation:?} number {n}");
            run(async {
                let (disk, store) = opened(seed).await;
                disk.memory.fail(n, fault(n, operation, ErrorKind::StorageFull));
                let answers = work(&store, &disk.memory, load).await;
                let syncing = matches!(operation, Operation::Sync | Operation::SyncDirectory);
                let has_stopped = store.stopped().borrow().is_some();
                assert!(!has_stopped || syncing, "{what}: {:?}", answers.stopped);
                refused += answers.full;
                stopped += usize::from(has_stopped);
                check_after(&disk.memory, &answers, has_stopped, &what).await;
                if !has_stopped {
                    commit_one(&store).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            });
        }
    }
    assert!(refused > 20, "only {refused} writes were refused");
    assert!(stopped > 20, "only {stopped} failed syncs stopped it");
}

#[test]
fn a_full_disk_serves_reads_and_heals_when_there_is_space() {
    for seed in seeds(12) {
        run(async {
            let (disk, store) = opened(seed).await;
            let before = work(&store, &disk.memory, load(seed)).await;
            let used = disk.memory.used();
            disk.memory.set_capacity(Some(used.saturating_sub(1000) + seed % 12 * 512));
            let state = dump(&store.snapshot());
            let during = work(&store, &disk.memory, Load { commits_each: 30, ..load(seed + 1000) }).await;
            assert!(during.full > 0, "seed {seed}: it never was full");
            assert!(during.stopped.is_empty() && store.stopped().borrow().is_none());
            if during.acknowledged.is_empty() {
                assert_eq!(dump(&store.snapshot()), state, "seed {seed}: refused and yet visible");
            }
            disk.memory.set_capacity(None);
            // A checkpoint that had no space is tried again after a while.
            tokio::time::advance(Duration::from_secs(11)).await;
            let after = work(&store, &disk.memory, load(seed + 2000)).await;
            assert!(after.full == 0 && !after.acknowledged.is_empty());
            let mut all = Answers::default();
            for answers in [before, during, after] {
                all.acknowledged.extend(answers.acknowledged);
            }
            let mut truth = Truth::default();
            all.tell(&mut truth);
            assert_eq!(dump(&store.snapshot()), truth.state());
            store.close().await;
            check_after(&disk.memory, &all, false, &format!("seed {seed}")).await;
        });
    }
}

#[test]
fn a_broken_disk_at_any_operation_stops_the_store_at_once_and_the_next_start_is_right() {
    let mut stops = 0;
    for seed in seeds(2) {
        for (n, operation) in (1..).zip(operations(load(seed))) {
            let what = format!("seed {seed}, {operation:?} number {n}");
            run(async {
                let (disk, store) = opened(seed).await;
                let before = disk.changes().len();
                disk.memory.fail(n, fault(n, operation, ErrorKind::Other));
                let answers = work(&store, &disk.memory, load(seed)).await;
                let why = store.stopped().borrow().clone();
                let last = commit_one(&store).await;
                if operation == Operation::Remove && why.is_none() {
                    return last.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                let why = why.unwrap_or_else(|| panic!("{what}: it went on"));
                assert!(why.contains("planted fault"), "{what}: {why}");
                assert!(matches!(&last, Err(CommitError::Stopped(told)) if *told == why), "{what}: {last:?}");
                assert!(answers.stopped.iter().all(|told| *told == why), "{what}");
                stops += 1;
                tokio::time::advance(Duration::from_secs(60)).await;
                rest().await;
                store.close().await;
                check_ending(&disk.changes()[before + n as usize - 1..], &what);
                check_after(&disk.memory, &synced(answers), true, &what).await;
            });
        }
    }
    assert!(stops > 60, "only {stops} runs stopped");
}

/// After the operation that failed, only what cleans up, and what was under way beside it: a step of a checkpoint's temporary file
/// when the log failed, the group being written when a checkpoint failed. No checkpoint is completed.
fn check_ending(changes: &[(Operation, String)], what: &str) {
    let ((operation, file), later) = changes.split_first().expect("the operation that failed");
    let of_log = file.starts_with("segment-") && *operation != Operation::Remove;
    let allowed = |operation: &Operation, file: &str| match operation {
        Operation::Remove => true,
        Operation::Rename => false,
        _ if of_log => file.ends_with(".tmp"),
        _ => !file.starts_with("checkpoint-"),
    };
    let orderly = later.iter().all(|(operation, file)| allowed(operation, file));
    assert!(orderly && later.len() <= if of_log { 4 } else { 8 }, "{what}: it went on: {later:?}");
}

/// Answers without the commits behind the last durable one: a power cut may take those.
fn synced(mut answers: Answers) -> Answers {
    let durable = answers.durable_by(u64::MAX);
    answers.acknowledged.retain(|acknowledged| acknowledged.revision <= durable);
    answers
}

#[test]
fn a_read_error_while_opening_is_told_as_such() {
    run(async {
        let (disk, store) = opened(0).await;
        work(&store, &disk.memory, load(1)).await;
        store.close().await;
        let healthy = TracedDisk::new(disk.memory.copy());
        open(healthy.clone(), small()).await.expect("a healthy disk");
        assert!(healthy.reads() > 5);
        for n in 1..=healthy.reads() {
            let broken = TracedDisk::new(disk.memory.copy());
            broken.fail_read(n);
            let opened = open(broken, small()).await;
            assert!(matches!(opened, Err(OpenError::Io(_))), "read {n} failed, and it was opened or called damaged");
        }
    });
}

#[test]
fn a_fault_while_opening_a_new_directory_leaves_one_that_opens() {
    run(async {
        for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
            let healthy = MemoryDisk::new();
            open(healthy.clone(), small()).await.expect("a healthy disk");
            for n in 1..=healthy.operations() {
                let disk = MemoryDisk::new();
                disk.fail(n, Fault::Error(kind));
                let opened = open(disk.clone(), small()).await;
                assert!(matches!(opened, Err(OpenError::Io(_))), "operation {n} failed, and it was opened");
                for left in [disk.copy(), disk.power_cut(n)] {
                    let (store, _) = open(left, Options { identity: [8; 16], ..small() }).await.expect("it opens");
                    commit_one(&store).await.expect("it works");
                }
            }
        }
    });
}

#[test]
fn steady_writing_keeps_no_checkpoint_from_being_finished() {
    run(async {
        let disk = TracedDisk::slow(MemoryDisk::new(), 3);
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        let mut commits = Vec::new();
        // A new commit at every turn, while each operation of the disk takes at least one: something is always waiting.
        for _ in 0..3000 {
            let store = store.clone();
            commits.push(tokio::spawn(async move { commit_one(&store).await }));
            tokio::task::yield_now().await;
        }
        let finished = store.figures().checkpoints;
        assert!(finished > 10, "only {finished} checkpoints");
        for commit in commits {
            commit.await.expect("no panic").expect("committed");
        }
    });
}
