//! Facts about the queue, in virtual time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use tokio::time::{Instant, advance, timeout};

use super::limiter::Exponential;
use super::{Cause, FAIR_EVERY, Item, Priority, QueueOptions, State, What, WorkQueue};

const MS: Duration = Duration::from_millis(1);

fn take(queue: &WorkQueue<u32>) -> Option<u32> {
    queue.try_get().map(|item| *item.key())
}

fn take_all(queue: &WorkQueue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| take(queue)).collect()
}

#[tokio::test(start_paused = true)]
async fn keys_come_out_in_the_order_of_their_first_add() {
    let queue = WorkQueue::default();
    [3, 1, 3, 2, 1].into_iter().for_each(|key| queue.add(key));
    assert_eq!(queue.len(), 3);
    assert_eq!(take_all(&queue), [3, 1, 2]);
    assert_eq!(queue.stats().adds, 3, "repetitions don't count");
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_while_it_runs_runs_once_more() {
    let queue = WorkQueue::default();
    queue.add(1);
    let item = queue.try_get().unwrap();
    queue.add(1);
    queue.add(1);
    assert!(queue.try_get().is_none(), "one key never runs twice at once");
    item.done();
    assert_eq!(take_all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_item_is_done() {
    let queue = WorkQueue::default();
    queue.add(1);
    let item = queue.try_get().unwrap();
    queue.add(1);
    drop(item);
    assert_eq!(take_all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn of_several_delays_the_earliest_end_counts() {
    let queue = WorkQueue::default();
    queue.add_after(1, 50 * MS);
    queue.add_after(1, 20 * MS);
    queue.add_after(1, 90 * MS);
    let start = Instant::now();
    let item = queue.get().await.unwrap();
    assert_eq!(start.elapsed(), 20 * MS);
    item.done();
    assert!(timeout(500 * MS, queue.get()).await.is_err(), "the later ones are gone");
}

#[tokio::test(start_paused = true)]
async fn an_add_does_not_cancel_a_delay() {
    let queue = WorkQueue::default();
    queue.add_after(1, 50 * MS);
    queue.add(1);
    assert_eq!(take_all(&queue), [1]);
    advance(50 * MS).await;
    assert_eq!(take_all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn no_delay_adds_at_once() {
    let queue = WorkQueue::default();
    queue.add_after(1, Duration::ZERO);
    assert_eq!(take_all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_without_end_is_no_trouble() {
    let queue = WorkQueue::default();
    queue.add_after(1, Duration::MAX);
    queue.add_after(2, MS);
    assert_eq!(queue.get().await.map(|item| *item.key()), Some(2));
    assert!(timeout(Duration::from_secs(3600), queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_due_before_another_was_added_comes_first() {
    let queue = WorkQueue::default();
    queue.add_after(1, 10 * MS);
    advance(20 * MS).await;
    queue.add(2);
    assert_eq!(take_all(&queue), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_sleeps_is_woken_by_a_shorter_delay_and_others_take_over_its_alarm() {
    let queue = WorkQueue::default();
    queue.add_after(9, 1000 * MS);
    let start = Instant::now();
    let worker = |queue: WorkQueue<u32>| async move {
        let item = queue.get().await.unwrap();
        let run = (*item.key(), start.elapsed());
        std::mem::forget(item); // held for ever: nobody takes it again
        run
    };
    let workers: Vec<_> = (0..3).map(|_| tokio::spawn(worker(queue.clone()))).collect();
    tokio::task::yield_now().await;
    queue.add_after(1, 10 * MS);
    tokio::task::yield_now().await;
    queue.add(2);
    let mut runs = Vec::new();
    for worker in workers {
        runs.push(worker.await.unwrap());
    }
    runs.sort_unstable();
    assert_eq!(runs, [(1, 10 * MS), (2, Duration::ZERO), (9, 1000 * MS)]);
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_adds_are_refused_what_is_ready_is_handed_out_and_delays_are_gone() {
    let queue = WorkQueue::default();
    queue.add(1);
    queue.add_after(2, 10 * MS);
    queue.shutdown();
    queue.add(3);
    queue.add_after(4, 10 * MS);
    queue.add_rate_limited(5);
    assert_eq!(queue.get().await.map(|item| *item.key()), Some(1));
    assert!(queue.get().await.is_none());
    assert_eq!(queue.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_held_keys_and_a_shutdown_ends_it() {
    let queue = WorkQueue::default();
    queue.add(1);
    let item = queue.get().await.unwrap();
    let drain = queue.shutdown_with_drain();
    tokio::pin!(drain);
    assert!(timeout(100 * MS, drain.as_mut()).await.is_err());
    queue.add(1);
    item.done();
    timeout(MS, drain).await.expect("the key that was added while shutting down was refused");

    let queue = WorkQueue::default();
    queue.add(1);
    let _held = queue.get().await.unwrap();
    let other = queue.clone();
    let drain = tokio::spawn(async move { other.shutdown_with_drain().await });
    tokio::task::yield_now().await;
    queue.shutdown();
    timeout(MS, drain).await.expect("a plain shutdown ends the wait").unwrap();
}

#[tokio::test(start_paused = true)]
async fn rate_limited_adds_back_off_until_forgotten() {
    let limiter = Box::new(Exponential::new(5 * MS, 1000 * MS));
    let queue = WorkQueue::new(QueueOptions { limiter, timed: true });
    let mut waits = Vec::new();
    for _ in 0..4 {
        let start = Instant::now();
        queue.add_rate_limited(1);
        queue.get().await.unwrap().done();
        waits.push(start.elapsed());
    }
    assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS, 40 * MS]);
    assert_eq!((queue.num_requeues(&1), queue.stats().retries), (4, 4));
    queue.forget(&1);
    assert_eq!(queue.num_requeues(&1), 0);
}

#[tokio::test(start_paused = true)]
async fn events_cannot_inflate_the_back_off() {
    let queue = WorkQueue::default();
    queue.add(1);
    // An event per millisecond wakes a key that fails each time: with client-go's counting it would wait for minutes.
    for _ in 0..100 {
        queue.get().await.unwrap().done();
        queue.add_rate_limited(1);
        advance(MS).await;
        queue.add(1);
    }
    assert!(queue.num_requeues(&1) <= 6, "5+10+20+40+80 ms cover 100 ms, got {}", queue.num_requeues(&1));
}

#[tokio::test(start_paused = true)]
async fn causes_survive_de_duplication_and_are_bounded() {
    let queue = WorkQueue::default();
    let cause = |name: &str| Cause::from_source(What::Updated, name, Some("7"));
    queue.add_because(1, Priority::Normal, cause("Pod a"));
    queue.add_because(1, Priority::Normal, cause("Pod a"));
    queue.add_because(1, Priority::Normal, cause("Pod b"));
    queue.add_after_because(1, MS, Priority::Normal, Cause::of(What::Requeue));
    let item = queue.try_get().unwrap();
    let said: Vec<_> = item.causes().first.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["Updated Pod a@7", "Updated Pod b@7"]);
    for number in 0..20 {
        queue.add_because(1, Priority::Normal, cause(&format!("Pod {number}")));
    }
    item.done();
    let item = queue.try_get().unwrap();
    assert_eq!((item.causes().first.len(), item.causes().more), (8, 12));
    item.done();
    let item = queue.get().await.unwrap();
    assert_eq!(item.causes().first, [Cause::of(What::Requeue)]);
}

#[tokio::test(start_paused = true)]
async fn a_higher_priority_is_taken_first_and_a_raised_key_goes_last_in_its_new_one() {
    let queue = WorkQueue::default();
    let add = |key, priority| queue.add_because(key, priority, Cause::of(What::Request));
    add(1, Priority::Low);
    add(2, Priority::Normal);
    add(3, Priority::High);
    add(1, Priority::High);
    add(3, Priority::Low);
    assert_eq!(queue.stats().depth, [0, 1, 2]);
    assert_eq!(take_all(&queue), [3, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_does_not_starve() {
    let queue = WorkQueue::default();
    queue.add_because(0, Priority::Low, Cause::of(What::Request));
    for key in 1..1000 {
        queue.add_because(key, Priority::High, Cause::of(What::Request));
    }
    let position = take_all(&queue).iter().position(|key| *key == 0).unwrap();
    assert_eq!(position as u64, FAIR_EVERY - 1);
}

#[tokio::test(start_paused = true)]
async fn the_figures_tell_spans() {
    let queue = WorkQueue::default();
    queue.add(1);
    advance(3 * MS).await;
    let item = queue.get().await.unwrap();
    advance(5 * MS).await;
    let stats = queue.stats();
    assert_eq!((stats.processing, stats.unfinished, stats.longest_running), (1, 5 * MS, 5 * MS));
    item.done();
    let stats = queue.stats();
    assert_eq!((stats.queue_duration.sum, stats.work_duration.sum), (0.003, 0.005));
    assert_eq!((stats.queue_duration.count(), stats.work_duration.count()), (1, 1));
}

thread_local! {
    static TICKS: Cell<u64> = const { Cell::new(0) };
    static START: Instant = Instant::now();
}

/// A clock that moves by 100 ns each time that it is looked at.
fn ticking() -> Instant {
    let ticks = TICKS.replace(TICKS.get() + 1);
    START.with(|start| *start + Duration::from_nanos(100 * ticks))
}

#[test]
fn beyond_a_million_runs_per_second_a_sample_stands_for_all_and_none_that_lasts_is_overlooked() {
    const RUNS: u64 = 10_000;
    let mut state = State::new(QueueOptions::default(), ticking);
    for _ in 0..RUNS {
        state.add(1, Priority::Normal, None);
        let taken = state.take().unwrap();
        state.done(taken.slot);
    }
    assert!(TICKS.get() < RUNS, "the clock was looked at {} times", TICKS.get());
    let stats = state.stats();
    for spans in [&stats.queue_duration, &stats.work_duration] {
        let missing = RUNS - spans.count();
        assert!(missing < 32, "{missing} runs are missing");
        let mean = spans.sum / spans.count() as f64;
        assert!((mean - 1e-7).abs() < 1e-12, "spans of one tick have a mean of {mean} s");
    }
    for key in 1..=40 {
        state.add(key, Priority::Normal, None);
        state.take().unwrap();
    }
    state.stats();
    TICKS.set(TICKS.get() + 10_000_000);
    let stats = state.stats();
    assert!(stats.unfinished >= 40 * Duration::from_secs(1), "each of the 40 is seen: {:?}", stats.unfinished);
    assert!(stats.work_duration.count() <= RUNS, "none of them has ended");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_shortened_delays_leave_nothing_behind() {
    let queue = WorkQueue::default();
    for delay in (1..=10_000).rev() {
        queue.add_after(1, delay * MS);
    }
    assert_eq!(queue.stats().waiting, 1);
    queue.get().await.unwrap().done();
    assert!(timeout(Duration::from_secs(60), queue.get()).await.is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    AddAfter(u32, u64),
    Get,
    Done(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..6_u32).prop_map(Step::Add),
        2 => (0..6_u32, 0..20_u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        3 => Just(Step::Get),
        3 => any::<usize>().prop_map(Step::Done),
        2 => (0..20_u64).prop_map(Step::Advance),
    ]
}

/// The queue as the description says it, without any thought of speed.
#[derive(Default)]
struct Model {
    queue: VecDeque<u32>,
    dirty: BTreeSet<u32>,
    processing: BTreeSet<u32>,
    waiting: BTreeMap<u32, (u64, u64)>,
    now: u64,
    order: u64,
}

impl Model {
    fn add(&mut self, key: u32) {
        if self.dirty.insert(key) && !self.processing.contains(&key) {
            self.queue.push_back(key);
        }
    }

    fn add_after(&mut self, key: u32, delay: u64) {
        if delay == 0 {
            return self.add(key);
        }
        self.order += 1;
        let new = (self.now + delay, self.order);
        let end = self.waiting.entry(key).or_insert(new);
        if new.0 < end.0 {
            *end = new;
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut due: Vec<_> =
            self.waiting.iter().filter(|(_, end)| end.0 <= self.now).map(|(key, end)| (*end, *key)).collect();
        due.sort_unstable();
        for (_, key) in due {
            self.waiting.remove(&key);
            self.add(key);
        }
    }

    fn get(&mut self) -> Option<u32> {
        let key = self.queue.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key);
        Some(key)
    }

    fn done(&mut self, key: u32) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.queue.push_back(key);
        }
    }
}

proptest::proptest! {
    #[test]
    fn the_queue_behaves_as_the_obvious_model(steps in proptest::collection::vec(step(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let queue = WorkQueue::default();
            let mut model = Model::default();
            let mut held: Vec<Item<'_, u32>> = Vec::new();
            for step in steps {
                match step {
                    Step::Add(key) => { queue.add(key); model.add(key); }
                    Step::AddAfter(key, delay) => { queue.add_after(key, Duration::from_millis(delay)); model.add_after(key, delay); }
                    Step::Get => {
                        let item = queue.try_get();
                        assert_eq!(item.as_ref().map(|item| *item.key()), model.get());
                        held.extend(item);
                    }
                    Step::Done(which) if !held.is_empty() => {
                        let item = held.swap_remove(which % held.len());
                        model.done(*item.key());
                        item.done();
                    }
                    Step::Done(_) => {}
                    Step::Advance(by) => { advance(Duration::from_millis(by)).await; model.advance(by); }
                }
                assert_eq!(queue.len(), model.queue.len());
                assert_eq!(queue.stats().waiting, model.waiting.len());
            }
        });
    }
}
