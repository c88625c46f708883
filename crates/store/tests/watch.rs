//! Watchers get every event they asked for, once, in order, whatever happens around them; or they are told to list again.

mod support;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::{GroupResource, Revision};
use setpoint_store::{
    BATCH_EVENTS_MAX, Change, Disk, Durability, Expectation, LARGE_BYTES, MemoryDisk, Options, Report, Selection,
    Store, Transaction, WatchError, WatchEvent, WatchKind, WatchRequest, WindowBounds,
};
use support::etcd::{Cluster, prefix, run_real};
use support::truth::Truth;
use support::watch_checker::{Checker, Follower, Interest, Seen, Violation};
use support::workload::{Load, work};
use support::{dump, json, node, nodes, open, pod, pods, put, rest, run, seeds, small};

/// Runs a test on both logs.
fn on_both(test: impl AsyncFn(Store)) {
    run(async {
        let options = Options { segment_bytes: 1 << 20, ..small() };
        test(open(MemoryDisk::new(), options).await.expect("a new store").0).await;
    });
    let cluster = Cluster::start(1);
    run_real(async { test(cluster.open(&prefix()).await).await });
}

fn interests() -> impl Iterator<Item = Interest> + Clone {
    let namespaces = [None, Some("red"), Some("blue"), Some("nowhere")];
    let colors = [None, Some("red"), Some("blue")];
    let nodes = [None, Some("n1"), Some("n3")];
    namespaces.into_iter().flat_map(move |namespace| {
        colors.into_iter().flat_map(move |color| nodes.into_iter().map(move |node| Interest { namespace, color, node }))
    })
}

/// What those are told who watch from each revision on: the events, or the oldest revision that there is.
fn pasts(store: &Store) -> Vec<String> {
    let told = |resource: &GroupResource, from: u64| {
        let (selection, from) = (Selection::everything(), Revision::new(from));
        let request = WatchRequest { resource: resource.clone(), namespace: None, selection, from };
        match store.watch(request).and_then(|mut watcher| watcher.poll()) {
            Ok(events) => {
                let event = |event: &WatchEvent| {
                    let mut line = event.kind.as_str().as_bytes().to_vec();
                    event.write_json(&mut line);
                    String::from_utf8(line).expect("JSON is UTF-8")
                };
                events.iter().map(event).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    };
    let newest = store.snapshot().revision().get();
    [pods(), nodes()].iter().flat_map(|resource| (0..=newest).map(|from| told(resource, from))).collect()
}

/// A store under load with many watchers, and what really happened.
struct World {
    seed: u64,
    rng: StdRng,
    disk: MemoryDisk,
    store: Store,
    truth: Truth,
    followers: Vec<Follower>,
    options: Options,
    /// Told to list again because of a revision that was lost.
    told_lost: usize,
}

impl World {
    async fn new(seed: u64, watchers: usize) -> World {
        let disk = MemoryDisk::new();
        let window = WindowBounds { events: 400, bytes: 1 << 20, ..WindowBounds::default() };
        let options = Options { window, segment_bytes: 64 * 1024, checkpoint_bytes: 256 * 1024, ..small() };
        let (store, _) = open(disk.clone(), options.clone()).await.expect("a new store");
        let truth = Truth::default();
        let followers = interests()
            .cycle()
            .take(watchers)
            .map(|interest| Follower::new(&store, interest, &truth.state()))
            .collect();
        let rng = StdRng::seed_from_u64(seed);
        World { seed, rng, disk, store, truth, followers, options, told_lost: 0 }
    }

    async fn burst(&mut self) {
        self.seed += 1;
        let load = Load { commits_each: 8, ..Load::new(self.seed) };
        work(&self.store, &self.disk, load).await.tell(&mut self.truth);
    }

    /// Each watcher at its own pace: the first is there for every burst, the last sleeps through most.
    fn poll_some(&mut self) {
        let state = self.truth.state();
        for (index, follower) in self.followers.iter_mut().enumerate() {
            if self.rng.random_range(0..=index / 2) > 0 {
                continue;
            }
            if self.rng.random_range(0..20) == 0 {
                follower.disconnect();
            }
            match follower.poll(&self.store, &self.truth) {
                Ok(()) => {}
                Err(WatchError::Expired(expired)) => {
                    assert!(expired.oldest > follower.checker.bookmark, "it was not too old: {expired:?}");
                    follower.relist(&self.store, &state);
                }
                Err(error) => panic!("{error}"),
            }
            if follower.checker.bookmark >= self.truth.newest() {
                assert!(follower.checker.agrees_with(&state), "watcher {index} has another state");
            }
        }
    }

    /// Closes the store or cuts the power, then goes on with what is left.
    async fn restart(&mut self) {
        let cut = self.rng.random();
        if cut {
            self.disk = self.disk.power_cut(self.rng.random());
        } else {
            self.store.close().await;
        }
        let (store, report) = open(self.disk.clone(), self.options.clone()).await.expect("it opens");
        self.store = store;
        let found = self.found(&report);
        self.truth.cut(found);
        assert_eq!(dump(&self.store.snapshot()), self.truth.state());
        let state = self.truth.state();
        for follower in &mut self.followers {
            follower.disconnect();
            let lost = follower.checker.bookmark > found && follower.checker.bookmark < report.revision;
            match follower.poll(&self.store, &self.truth) {
                Ok(()) => assert!(!lost, "it was not told that {} is lost", follower.checker.bookmark),
                Err(WatchError::Expired(_)) => {
                    self.told_lost += usize::from(lost);
                    follower.relist(&self.store, &state);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn found(&self, report: &Report) -> Revision {
        let jump = if report.clean { 0 } else { u64::from(self.options.relaxed_max) + 1 };
        self.truth.newest_until(Revision::new(report.revision.get() - jump))
    }
}

#[test]
fn fifty_watchers_of_twenty_thousand_events_miss_nothing() {
    run(async {
        let mut world = World::new(0, 50).await;
        let (mut changes, mut bursts) = (0, 0);
        while changes < 20_000 * seeds(1).end as usize {
            let before = world.truth.steps();
            world.burst().await;
            changes += world.truth.steps() - before;
            bursts += 1;
            world.poll_some();
            if world.rng.random_range(0..30) == 0 {
                let newest = world.truth.newest().get();
                let back = world.rng.random_range(0..600);
                world.store.compact(Revision::new(newest.saturating_sub(back)));
            }
            if bursts % 60 == 0 {
                world.restart().await;
            }
        }
        let relists: usize = world.followers.iter().map(|follower| follower.relists).sum();
        let events: usize = world.followers.iter().map(|follower| follower.checker.events).sum();
        assert!(relists > 100, "only {relists} watchers fell behind");
        assert!(world.told_lost > 0, "no watcher saw what was lost");
        assert!(events > 50_000, "only {events} events were delivered");
    });
}

#[test]
fn a_watch_resumes_from_any_kept_revision_with_exactly_the_rest() {
    for seed in seeds(3) {
        run(async {
            let mut world = World::new(seed * 1000, 0).await;
            for _ in 0..30 {
                world.burst().await;
            }
            if seed % 2 == 1 {
                world.restart().await;
            }
            let newest = world.store.snapshot().revision();
            let mut kept = 0;
            for from in 0..=newest.get() {
                for interest in [Interest::default(), Interest { color: Some("red"), ..Interest::default() }] {
                    let from = Revision::new(from);
                    let mut rest = Follower::new(&world.store, interest, &world.truth.state_at(from));
                    rest.checker.bookmark = from;
                    match rest.poll(&world.store, &world.truth) {
                        Ok(()) => {
                            assert_eq!(rest.checker.bookmark, newest);
                            assert!(rest.checker.agrees_with(&world.truth.state()));
                            kept += 1;
                        }
                        Err(WatchError::Expired(_)) => {
                            let pods =
                                world.truth.between(from, newest).filter(|(_, step)| step.key.namespace().is_some());
                            let is_lost = from > world.truth.newest();
                            // A window of 400 events keeps all of them but the rest of a transaction cut in two.
                            assert!(pods.count() >= 396 || is_lost || seed % 2 == 1, "{from} should have been kept");
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert!(kept > 100, "only {kept} resumed");
            let future = world.store.watch(Interest::default().request(newest.next()));
            assert!(matches!(future, Err(WatchError::Future { .. })));
        });
    }
}

#[test]
fn next_waits_for_selected_events_and_may_be_dropped_at_any_time() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        let tasks: Vec<_> = interests()
            .enumerate()
            .map(|(index, interest)| {
                let mut watcher = store.watch(interest.request(Revision::ZERO)).expect("nothing is too old");
                tokio::spawn(async move {
                    let mut deliveries = Vec::new();
                    let mut turns = 0;
                    loop {
                        turns += 1;
                        let events = tokio::select! {
                            biased;
                            events = watcher.next() => events,
                            () = tokio::task::yield_now(), if turns % 3 < index % 3 => continue,
                        };
                        match events {
                            Ok(events) => deliveries.push((events.iter().map(Seen::of).collect(), watcher.revision())),
                            Err(error) => return (interest, error, deliveries),
                        }
                    }
                })
            })
            .collect();
        let mut truth = Truth::default();
        for seed in 0..20 {
            work(&store, &disk, Load::new(seed)).await.tell(&mut truth);
        }
        store.close().await;
        for task in tasks {
            let (interest, error, deliveries) = task.await.expect("a watcher");
            assert_eq!(error, WatchError::Closed);
            let mut checker = Checker::new(interest, &Default::default(), Revision::ZERO);
            for (events, bookmark) in deliveries {
                let events: Vec<Seen> = events;
                assert!(!events.is_empty());
                assert_eq!(checker.deliver(&truth, &events, bookmark), Ok(()));
            }
            assert!(checker.agrees_with(&truth.state()), "{:?}", checker.interest);
        }
    });
}

#[test]
fn the_edges_of_a_selection_are_added_and_deleted_with_the_revision_of_the_change() {
    on_both(async |store| {
        let from = store.snapshot().revision();
        let by_label = Interest { color: Some("red"), ..Interest::default() };
        let by_field = Interest { node: Some("n1"), ..Interest::default() };
        let elsewhere = Interest { namespace: Some("blue"), ..Interest::default() };
        let mut watchers: Vec<_> = [by_label, by_field, elsewhere]
            .iter()
            .map(|interest| store.watch(interest.request(from)).expect("a watcher"))
            .collect();
        let key = pod("green", "a");
        // Color, node, and what the one by label and the one by field are told.
        let table = [
            ("blue", "n1", None, Some(WatchKind::Added)),
            ("red", "n1", Some(WatchKind::Added), Some(WatchKind::Modified)),
            ("red", "n2", Some(WatchKind::Modified), Some(WatchKind::Deleted)),
            ("blue", "n1", Some(WatchKind::Deleted), Some(WatchKind::Added)),
            ("blue", "n2", None, Some(WatchKind::Deleted)),
        ];
        for (color, node, by_label, by_field) in table {
            let json = json(&key, color, node, "v");
            let change = setpoint_store::Change::put(key.clone(), Expectation::Any, json, &support::ByNode);
            let committed = store.commit(Transaction::of(change.expect("an object"))).await.expect("committed");
            for (watcher, expected) in watchers.iter_mut().zip([by_label, by_field, None]) {
                let events = watcher.poll().expect("kept");
                assert_eq!(events.first().map(|event| event.kind), expected, "{color} {node}");
                assert!(events.iter().all(|event| event.revision() == committed.revision));
                let told = format!(r#""resourceVersion":"{}""#, committed.revision);
                assert!(events.iter().all(|event| Seen::of(event).json.contains(&told)));
                assert_eq!(watcher.revision(), committed.revision, "a bookmark moves without events, too");
            }
        }
    });
}

#[test]
fn a_watcher_that_falls_out_of_the_window_is_told_so_and_never_skipped() {
    run(async {
        let window = WindowBounds { events: 8, bytes: 1 << 20, ..WindowBounds::default() };
        let (store, _) = open(MemoryDisk::new(), Options { window, ..small() }).await.expect("a new store");
        let mut slow = store.watch(Interest::default().request(Revision::ZERO)).expect("a watcher");
        let mut after_compaction = store.watch(Interest::default().request(Revision::ZERO)).expect("a watcher");
        for n in 0..8 {
            let change = put(&pod("red", "a"), Expectation::Any, &n.to_string());
            store.commit(Transaction::of(change)).await.expect("committed");
        }
        store.compact(Revision::new(3));
        assert!(
            matches!(after_compaction.poll(), Err(WatchError::Expired(expired)) if expired.oldest == Revision::new(3))
        );
        assert!(matches!(after_compaction.next().await, Err(WatchError::Expired(_))));
        let text = after_compaction.poll().expect_err("expired").to_string();
        assert_eq!(text, "too old resource version: 0 (3)");
        assert!(slow.poll().is_err(), "the slow one is in the same place");
        let mut resumed = store.watch(Interest::default().request(Revision::new(3))).expect("kept");
        assert_eq!(resumed.poll().expect("kept").len(), 5);
        for n in 0..9 {
            let change = put(&pod("red", "a"), Expectation::Any, &n.to_string());
            store.commit(Transaction::of(change)).await.expect("committed");
        }
        assert!(matches!(resumed.poll(), Err(WatchError::Expired(_))));
    });
}

#[test]
fn less_is_kept_of_the_past_of_large_objects() {
    run(async {
        for (size, kept) in [(LARGE_BYTES - 4096, true), (LARGE_BYTES, false)] {
            let window = WindowBounds { large_bytes: 2 * LARGE_BYTES, ..WindowBounds::default() };
            let options = Options { window, segment_bytes: 4 << 20, ..small() };
            let (store, _) = open(MemoryDisk::new(), options).await.expect("a new store");
            for n in 0..4 {
                let change = put(&pod("red", "a"), Expectation::Any, &format!("{n}{}", "x".repeat(size)));
                store.commit(Transaction::of(change)).await.expect("committed");
            }
            let mut resumed = store.watch(Interest::default().request(Revision::new(1)));
            let found = resumed.as_mut().is_ok_and(|watcher| watcher.poll().is_ok());
            assert_eq!(found, kept, "three replaced versions of {size} bytes");
        }
    });
}

#[test]
fn a_start_knows_as_much_of_the_past_as_was_known_before_it() {
    let keys: Vec<_> = ["a", "b", "c", "d", "e"].iter().flat_map(|name| [pod("red", name), node(name)]).collect();
    for seed in seeds(40) {
        run(async {
            let mut rng = StdRng::seed_from_u64(seed);
            let window = WindowBounds { events: 30, bytes: rng.random_range(0..8_000), ..WindowBounds::default() };
            let options = Options { window, checkpoint_bytes: u64::MAX, ..small() };
            let disk = MemoryDisk::new();
            let (store, _) = open(disk.clone(), options.clone()).await.expect("a new store");
            for number in 0..rng.random_range(0..200) {
                let mut changed = Transaction::default();
                for key in &keys {
                    if rng.random_range(0..8) > 0 {
                        continue;
                    }
                    changed = changed.and(match rng.random_range(0..5) {
                        0 => Change::delete(key.clone(), Expectation::Any),
                        _ => put(key, Expectation::Any, &format!("{number}{}", "x".repeat(rng.random_range(0..400)))),
                    });
                }
                // A transaction of nothing is refused.
                let _ = store.commit(changed).await;
            }
            let before = (dump(&store.snapshot()), pasts(&store));
            store.close().await;
            let (store, report) = open(disk, options).await.expect("it opens");
            assert!(report.clean && report.checkpoint_objects == 0);
            assert_eq!((dump(&store.snapshot()), pasts(&store)), before, "seed {seed}");
        });
    }
}

#[test]
fn a_batch_is_bounded_and_never_splits_a_revision() {
    on_both(async |store| {
        let from = store.snapshot().revision();
        let mut truth = Truth::default();
        for n in 0..60 {
            let keys: Vec<_> = (0..37).map(|name| pod("red", &format!("o{name}"))).collect();
            let change = |transaction: Transaction, key| transaction.and(put(key, Expectation::Any, &n.to_string()));
            let transaction = keys.iter().fold(Transaction::default(), change);
            let committed = store.commit(transaction.durability(Durability::Relaxed)).await.expect("committed");
            truth.commit(committed.revision, keys.into_iter().zip(committed.objects).collect());
        }
        let mut watcher = store.watch(Interest::default().request(from)).expect("a watcher");
        let mut checker = Checker::new(Interest::default(), &Default::default(), from);
        let mut batches = 0;
        while checker.events < 60 * 37 {
            let events: Vec<_> = watcher.poll().expect("kept").iter().map(Seen::of).collect();
            assert!(!events.is_empty() && events.len() < BATCH_EVENTS_MAX + 37);
            assert_eq!(checker.deliver(&truth, &events, watcher.revision()), Ok(()));
            batches += 1;
        }
        assert!(batches >= 2);
    });
}

#[test]
fn revisions_lost_in_a_power_cut_are_told_as_expired() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        for n in 0..4 {
            let change = put(&pod("red", "a"), Expectation::Any, &n.to_string());
            let durability = if n == 0 { Durability::Synced } else { Durability::Relaxed };
            store.commit(Transaction::of(change).durability(durability)).await.expect("committed");
        }
        assert_eq!(store.snapshot().revision(), Revision::new(4));
        let (store, report) = open(without(&disk, br#""value":"1""#).await, small()).await.expect("it opens");
        for (from, is_lost) in [(1, false), (2, true), (4, true), (report.revision.get(), false)] {
            let watcher = store.watch(Interest::default().request(Revision::new(from)));
            assert_eq!(matches!(watcher, Err(WatchError::Expired(_))), is_lost, "{from}");
            assert_eq!(store.snapshot_at(&support::pods(), Revision::new(from)).is_err(), is_lost, "{from}");
        }
    });
}

/// What a power cut leaves that loses this text.
async fn without(disk: &MemoryDisk, text: &[u8]) -> MemoryDisk {
    for seed in 0..1000 {
        let left = disk.power_cut(seed);
        let bytes = left.read("segment-00000000000000000001", 0, usize::MAX).await.expect("the segment");
        if bytes.windows(text.len()).all(|window| window != text) {
            return left;
        }
    }
    panic!("no power cut loses it");
}

#[test]
fn what_is_planted_into_deliveries_is_found_and_named() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        let mut truth = Truth::default();
        work(&store, &disk, Load { commits_each: 60, ..Load::new(9) }).await.tell(&mut truth);
        tokio::time::advance(Duration::from_secs(1)).await;
        rest().await;
        let interest = Interest { color: Some("red"), ..Interest::default() };
        let mut watcher = store.watch(interest.request(Revision::ZERO)).expect("a watcher");
        let events: Vec<Seen> = watcher.poll().expect("kept").iter().map(Seen::of).collect();
        let bookmark = watcher.revision();
        let judge = |events: &[Seen], bookmark: Revision| {
            Checker::new(interest.clone(), &Default::default(), Revision::ZERO).deliver(&truth, events, bookmark)
        };
        assert_eq!(judge(&events, bookmark), Ok(()));
        let mut rng = StdRng::seed_from_u64(9);
        for _ in 0..20 {
            let alone = |at: &usize| {
                let revision = events[*at].revision;
                events.iter().filter(|event| event.revision == revision).count() == 1
            };
            let at = (0..).map(|_| rng.random_range(1..events.len() - 1)).find(alone).expect("one alone");
            let changed = |change: &dyn Fn(&mut Vec<Seen>)| {
                let mut events = events.clone();
                change(&mut events);
                judge(&events, bookmark)
            };
            assert_eq!(changed(&|events| drop(events.remove(at))), Err(Violation::Lost));
            assert_eq!(changed(&|events| events.truncate(at)), Err(Violation::BookmarkAhead));
            assert_eq!(changed(&|events| events.insert(at, events[at].clone())), Err(Violation::Doubled));
            assert_eq!(changed(&|events| events.push(events[0].clone())), Err(Violation::Doubled));
            assert_eq!(changed(&|events| events.swap(at, at - 1)), Err(Violation::OutOfOrder));
            let other = if events[at].kind == WatchKind::Added { WatchKind::Modified } else { WatchKind::Added };
            assert_eq!(changed(&|events| events[at].kind = other), Err(Violation::WrongKind));
            assert_eq!(changed(&|events| events[at].json = events[at - 1].json.clone()), Err(Violation::WrongObject));
            assert_eq!(changed(&|events| events[at].key = pod("red", "nobody")), Err(Violation::NeverHappened));
            let before = Revision::new(events[at].revision.get() - 1);
            assert_eq!(judge(&events[..=at], before), Err(Violation::BookmarkBehind));
        }
        let unselected = truth.between(Revision::ZERO, bookmark).find(|(revision, step)| {
            !events.iter().any(|event| event.revision == *revision) && step.key.namespace().is_some()
        });
        let (revision, step) = unselected.expect("something blue");
        let stranger = Seen { revision, key: step.key.clone(), ..events[0].clone() };
        let mut with_stranger = events.clone();
        with_stranger.insert(events.partition_point(|event| event.revision < revision), stranger);
        assert_eq!(judge(&with_stranger, bookmark), Err(Violation::NotSelected));
        let split = events.windows(2).position(|pair| pair[0].revision == pair[1].revision).expect("a transaction");
        let mut without_half = events.clone();
        without_half.remove(split);
        assert_eq!(judge(&without_half, bookmark), Err(Violation::Split));
    });
}
