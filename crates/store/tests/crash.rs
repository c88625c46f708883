//! Power cuts and kills after each single disk operation: what was acknowledged is there, the rest whole or absent.

mod support;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::Revision;
use setpoint_store::{Disk, Durability, Expectation, MemoryDisk, Options, Report, Store, Transaction, verify};
use support::traced_disk::TracedDisk;
use support::truth::Truth;
use support::workload::{Answers, Load, work};
use support::{ByNode, dump, open, pod, put, run, seeds, small};

/// A disk between two runs, and what is known about it.
struct World {
    seed: u64,
    disk: MemoryDisk,
    /// Everything that was ever committed on the way here, and may be there.
    truth: Truth,
    /// What must be there.
    durable: Revision,
    /// The newest revision that anyone has seen.
    visible: Revision,
}

/// One run of a store on a disk that recorded each step.
struct Run {
    /// A copy of the disk after each changing operation, with the number of that operation.
    copies: Vec<(u64, MemoryDisk)>,
    opened_at: u64,
    opened_revision: Revision,
    /// The newest commit that was found.
    found: Revision,
    answers: Answers,
}

#[test]
fn a_power_cut_after_any_operation_loses_nothing_that_was_acknowledged() {
    let mut cuts = 0;
    for seed in seeds(6) {
        let mut world = World::new(seed);
        for generation in 0..4 {
            cuts += run(world.survives_all_cuts(generation));
            world = run(world.next(generation));
        }
    }
    assert!(cuts >= 2000, "only {cuts} cuts were tried");
}

impl World {
    fn new(seed: u64) -> World {
        let disk = MemoryDisk::new();
        World { seed, disk, truth: Truth::default(), durable: Revision::ZERO, visible: Revision::ZERO }
    }

    /// Runs writers on a copy of this world's disk, and keeps each state that the disk went through.
    async fn run(&self, generation: u64) -> (Run, Truth) {
        let disk = self.disk.copy();
        disk.start_recording();
        let first = disk.operations() + 1;
        let (store, report) = open_or_panic(TracedDisk::slow(disk.clone(), self.seed), self.seed).await;
        let opened_at = disk.operations();
        let mut truth = self.truth.clone();
        let found = check_state(&store, &report, &truth);
        truth.cut(found);
        let opened_revision = store.snapshot().revision();
        let load = Load { commits_each: 12, ..Load::new(self.seed * 10 + generation) };
        let answers = work(&store, &disk, load).await;
        if (self.seed + generation).is_multiple_of(2) {
            store.close().await;
        }
        answers.tell(&mut truth);
        let copies = (first..).zip(disk.take_recording()).collect();
        (Run { copies, opened_at, opened_revision, found, answers }, truth)
    }

    /// Cuts the power after each operation of a run, and opens what is left.
    async fn survives_all_cuts(&self, generation: u64) -> usize {
        let (run, truth) = self.run(generation).await;
        for (at, copy) in &run.copies {
            let left = copy.power_cut(self.seed * 100_000 + at);
            let world = self.after(&run, *at, left, &truth);
            world.check_one(&world.disk.copy()).await;
            if at.is_multiple_of(5) {
                world.check_opening().await;
            }
        }
        run.copies.len()
    }

    /// Goes on from a random moment of a run, by a power cut or by a kill of the process alone.
    async fn next(&self, generation: u64) -> World {
        let (run, truth) = self.run(generation).await;
        let mut rng = StdRng::seed_from_u64(self.seed * 7 + generation);
        let (at, copy) = &run.copies[rng.random_range(0..run.copies.len())];
        let left = if rng.random() { copy.power_cut(rng.random()) } else { copy.copy() };
        self.after(&run, *at, left, &truth)
    }

    /// What is known after operation `at` of a run.
    fn after(&self, run: &Run, at: u64, disk: MemoryDisk, truth: &Truth) -> World {
        let (mut durable, mut visible) = (self.durable, self.visible);
        let mut truth = truth.clone();
        if at >= run.opened_at {
            durable = durable.max(run.found).max(run.answers.durable_by(at));
            visible = visible.max(run.opened_revision).max(run.answers.visible_by(at));
        } else {
            truth = self.truth.clone();
        }
        World { seed: self.seed, disk, truth, durable, visible }
    }

    /// Looks before opening, then opens with a power cut after each step of it.
    async fn check_opening(&self) {
        let before = verify(&self.disk.copy(), &ByNode, None).await.unwrap_or_default();
        let found = self.check_one(&self.disk.copy()).await;
        assert_eq!((before.objects, before.torn, before.commits), (found.objects, found.torn, found.commits));
        let opening = self.disk.copy();
        opening.start_recording();
        drop(open_or_panic(opening.clone(), self.seed).await);
        for (step, copy) in (0..).zip(opening.take_recording()) {
            self.check_one(&copy.power_cut(self.seed + step)).await;
        }
    }

    /// Opens the disk and compares.
    async fn check_one(&self, disk: &MemoryDisk) -> Report {
        let (store, report) = open_or_panic(disk.clone(), self.seed).await;
        let found = check_state(&store, &report, &self.truth);
        assert!(found >= self.durable, "seed {}: {} was durable, only {found} is there", self.seed, self.durable);
        let opened = store.snapshot().revision();
        assert!(opened >= self.visible, "seed {}: {} was seen, now it is {opened}", self.seed, self.visible);
        let change = put(&pod("red", "after"), Expectation::Any, "after");
        let next = store.commit(Transaction::of(change)).await.expect("it goes on").revision;
        assert!(next > opened && next > self.visible, "seed {}: {next} is not new", self.seed);
        report
    }
}

async fn open_or_panic(disk: impl Disk, seed: u64) -> (Store, Report) {
    open(disk, small()).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

/// The state is that of some commit, whole: returns its revision.
fn check_state(store: &Store, report: &Report, truth: &Truth) -> Revision {
    let jump = if report.clean { 0 } else { u64::from(small().relaxed_max) + 1 };
    let found = truth.newest_until(Revision::new(report.revision.get() - jump));
    assert_eq!(dump(&store.snapshot()), truth.state_at(found), "not the state at {found}");
    found
}

/// A log of synced commits that ends without a mark, what it holds, and the place of its last group.
struct Tail {
    disk: MemoryDisk,
    truth: Truth,
    file: String,
    start: usize,
    end: usize,
}

impl Tail {
    async fn new(last_bytes: usize, durability: Durability) -> Tail {
        let disk = MemoryDisk::new();
        let options = Options { segment_bytes: 64 * 1024, checkpoint_bytes: 1 << 20, ..small() };
        let (store, _) = open(disk.clone(), options).await.expect("a new store");
        let mut truth = Truth::default();
        for n in 0..4 {
            let bytes = if n == 3 { last_bytes } else { 30 };
            let (left, right) = (pod("red", "left"), pod("blue", "right"));
            let value = format!("{n}{}", "v".repeat(bytes));
            let both = Transaction::of(put(&left, Expectation::Any, &value)).and(put(&right, Expectation::Any, &value));
            let before = (n == 3).then(|| disk.copy());
            let committed = store.commit(both.durability(durability)).await.expect("committed");
            let mut objects = committed.objects.into_iter();
            let mut next = || objects.next().expect("two objects");
            truth.commit(committed.revision, vec![(left, next()), (right, next())]);
            if let Some(before) = before {
                let file = "segment-00000000000000000001".to_owned();
                let old = before.read(&file, 0, usize::MAX).await.expect("the segment");
                let new = disk.read(&file, 0, usize::MAX).await.expect("the segment");
                let start = (0..new.len()).find(|at| old[*at] != new[*at]).expect("something was written");
                let end = (0..new.len()).rfind(|at| new[*at] != 0).expect("something was written") + 1;
                return Tail { disk: disk.copy(), truth, file, start, end };
            }
        }
        unreachable!("the fourth commit returns")
    }

    /// Opens the log with its last group changed: it is there whole or not at all, as `kept` says.
    async fn check(&self, change: impl FnOnce(&mut Vec<u8>), whole: bool) {
        let disk = self.disk.copy();
        disk.corrupt(&self.file, change);
        let (store, report) = open_or_panic(disk, 0).await;
        let found = check_state(&store, &report, &self.truth);
        let expected = if whole { self.truth.newest() } else { Revision::new(self.truth.newest().get() - 1) };
        assert_eq!(found, expected);
        if let Some(torn) = report.torn {
            assert_eq!((torn.file, torn.offset), (self.file.clone(), self.start as u64));
        }
    }
}

#[test]
fn a_last_record_cut_at_any_byte_is_dropped_whole_and_said_so() {
    run(async {
        let tail = Tail::new(100, Durability::Synced).await;
        for cut in tail.start..tail.end {
            tail.check(|bytes| bytes[cut..].fill(0), false).await;
            tail.check(|bytes| bytes.truncate(cut), false).await;
        }
        tail.check(|_| (), true).await;
    });
}

#[test]
fn a_last_record_with_any_subset_of_its_sectors_is_whole_or_dropped() {
    run(async {
        let tail = Tail::new(1800, Durability::Relaxed).await;
        let first = tail.start / 512;
        let sectors = tail.end.div_ceil(512) - first;
        assert!((7..=12).contains(&sectors), "{sectors} sectors");
        let all = (1u32 << sectors) - 1;
        for kept in 0..=all {
            let change = |bytes: &mut Vec<u8>| {
                for sector in (0..sectors).filter(|sector| kept & (1 << sector) == 0) {
                    let from = ((first + sector) * 512).max(tail.start);
                    bytes[from..(first + sector + 1) * 512].fill(0);
                }
            };
            tail.check(change, kept == all).await;
        }
    });
}

#[test]
fn relaxed_commits_are_lost_only_from_the_end_and_their_revisions_never_come_back() {
    let mut lost = 0;
    for seed in seeds(60) {
        run(async {
            let disk = MemoryDisk::new();
            let (store, _) = open_or_panic(disk.clone(), seed).await;
            let load = Load { relaxed_in_ten: 9, writers: 2, ..Load::new(seed) };
            let answers = work(&store, &disk, load).await;
            let mut truth = Truth::default();
            answers.tell(&mut truth);
            let (durable, visible) = (answers.durable_by(u64::MAX), answers.visible_by(u64::MAX));
            let world = World { seed, disk: disk.power_cut(seed), truth, durable, visible };
            let (store, report) = open_or_panic(world.disk.copy(), seed).await;
            let found = check_state(&store, &report, &world.truth);
            lost += visible.get() - found.get();
            world.check_opening().await;
        });
    }
    assert!(lost > 0, "no power cut lost anything: the disk is not one that loses");
}

#[test]
fn no_more_relaxed_revisions_wait_for_a_sync_than_are_passed_over_after_a_crash() {
    for seed in seeds(10) {
        run(async {
            let disk = MemoryDisk::new();
            let options = Options { segment_bytes: 64 * 1024, checkpoint_bytes: 1 << 20, ..small() };
            let (store, _) = open(disk.clone(), options.clone()).await.expect("a new store");
            let load = Load { relaxed_in_ten: 10, commits_each: 60, pauses: false, ..Load::new(seed) };
            let answers = work(&store, &disk, load).await;
            let mut truth = Truth::default();
            answers.tell(&mut truth);
            let visible = answers.visible_by(u64::MAX);
            assert!(visible.get() > 5 * u64::from(options.relaxed_max));
            let disk = disk.power_cut(seed);
            World { seed, disk, truth, durable: Revision::ZERO, visible }.check_opening().await;
        });
    }
}
