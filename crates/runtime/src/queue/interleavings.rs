//! The queue under every interleaving of small programs: the same source as the real one, with a lock that explores.

use std::future::poll_fn;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use loom::future::block_on;
use loom::thread;
use tokio::time::Instant;

use super::{Priority, QueueOptions, State, limiter, state};

mod sync {
    pub use loom::sync::{Mutex, MutexGuard};
}

#[path = "shared.rs"]
#[expect(clippy::duplicate_mod, reason = "the same source with another lock is the point")]
mod shared;

/// Three threads have too many interleavings to try all; those with up to three forced switches are tried.
fn explore(program: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(program);
}

/// Longer than the limiter's first delay.
const LONG: Duration = Duration::from_secs(1800);

type Queue = Arc<shared::Shared<u8>>;

fn queue() -> Queue {
    let options = QueueOptions { limiter: Box::new(limiter::controller_limiter()), timed: false };
    Arc::new(shared::Shared::new(State::new(options, still)))
}

/// Time stands still: no delay ends on a machine that is slow.
fn still() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

fn add(queue: &Queue, key: u8) {
    queue.change(|state| state.add(key, Priority::Normal, None));
}

/// Waits for a key as a worker does.
fn take(queue: &Queue) -> Option<state::Taken<u8>> {
    let mut place = place();
    block_on(poll_fn(|context| queue.poll_take(&mut place, context.waker())))
}

fn place() -> shared::Place {
    shared::Place::default()
}

fn done(queue: &Queue, slot: u32) {
    queue.change(|state| state.done(slot));
}

#[test]
fn two_sleeping_workers_get_two_keys() {
    explore(|| {
        let queue = queue();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || take(&queue).map(|taken| taken.key))
            })
            .collect();
        add(&queue, 1);
        add(&queue, 2);
        let mut keys: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap().unwrap()).collect();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

#[test]
fn a_key_added_while_it_runs_runs_once_more_and_never_twice_at_once() {
    loom::model(|| {
        let queue = queue();
        add(&queue, 1);
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || add(&queue, 1))
        };
        let first = take(&queue).unwrap();
        if let Some(second) = queue.change(State::take) {
            panic!("{} is held twice", second.key);
        }
        adder.join().unwrap();
        done(&queue, first.slot);
        let runs = 1 + queue.change(|state| state.ready());
        assert!(runs == 1 || runs == 2, "one run for both adds, or one after the other");
        assert_eq!(queue.change(|state| state.stats().adds), runs as u64);
    });
}

#[test]
fn a_worker_that_stops_waiting_passes_its_wake_on() {
    explore(|| {
        let queue = queue();
        let quitter = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut place = place();
                let waker = std::task::Waker::noop();
                if let std::task::Poll::Ready(Some(taken)) = queue.poll_take(&mut place, waker) {
                    let key = taken.key;
                    done(&queue, taken.slot);
                    add(&queue, key);
                }
                queue.abandon(&mut place);
            })
        };
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || take(&queue).unwrap().key)
        };
        add(&queue, 1);
        quitter.join().unwrap();
        assert_eq!(worker.join().unwrap(), 1);
    });
}

#[test]
fn shutdown_wakes_every_worker_and_what_was_ready_is_still_handed_out() {
    loom::model(|| {
        let queue = queue();
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut runs = 0;
                while let Some(taken) = take(&queue) {
                    runs += 1;
                    done(&queue, taken.slot);
                }
                runs
            })
        };
        add(&queue, 1);
        queue.change(State::close);
        add(&queue, 2);
        assert_eq!(worker.join().unwrap(), 1);
    });
}

#[test]
fn a_drain_ends_when_the_last_key_is_done() {
    loom::model(|| {
        let queue = queue();
        add(&queue, 1);
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || {
                let taken = take(&queue).unwrap();
                done(&queue, taken.slot);
            })
        };
        queue.change(State::close);
        block_on(poll_fn(|context| queue.poll_idle(context.waker())));
        assert!(queue.change(|state| state.idle()));
        worker.join().unwrap();
    });
}

/// Waits as a worker does until it has to set its alarm to `end`.
fn sleep_until(queue: &Queue, end: Instant) {
    let mut place = place();
    block_on(poll_fn(|context| match queue.poll_take(&mut place, context.waker()) {
        Poll::Ready(_) => panic!("nothing is ready"),
        Poll::Pending if place.alarm == Some(end) => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
    }));
    queue.abandon(&mut place);
}

#[test]
fn a_sleeping_worker_learns_of_a_delay_and_of_one_that_ends_first() {
    loom::model(|| {
        let queue = queue();
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || sleep_until(&queue, still() + limiter::BASE_DELAY))
        };
        queue.change(|state| state.add_after(1, LONG, Priority::Normal, None));
        queue.change(|state| state.add_limited(2, Priority::Normal, None));
        worker.join().unwrap();
    });
}

#[test]
fn a_worker_that_keeps_the_time_and_leaves_passes_its_alarm_on() {
    explore(|| {
        let queue = queue();
        let quitter = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut place = place();
                assert!(queue.poll_take(&mut place, std::task::Waker::noop()).is_pending());
                queue.abandon(&mut place);
            })
        };
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || sleep_until(&queue, still() + LONG))
        };
        queue.change(|state| state.add_after(1, LONG, Priority::Normal, None));
        quitter.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn a_shutdown_and_a_delayed_add_leave_nothing_that_waits() {
    loom::model(|| {
        let queue = queue();
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || take(&queue).is_none())
        };
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.change(|state| state.add_limited(1, Priority::Normal, None)))
        };
        queue.change(State::close);
        adder.join().unwrap();
        assert!(worker.join().unwrap(), "a key that waits for its time is not handed out");
        assert_eq!(queue.change(|state| (state.stats().waiting, state.earliest())), (0, None));
    });
}
