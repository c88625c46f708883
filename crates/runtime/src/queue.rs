//! Work queues: keys in the order in which they became ready, each held by at most one worker.
//!
//! - [`WorkQueue`] is what controllers use: de-duplicating, fair, with delays, back-off, priorities and causes.
//! - [`limiter`] says how long a key waits after a failure.
//! - `state` holds the rules, `shared` wakes workers; both are synchronous and tested on their own.

pub mod cause;
pub mod limiter;
mod sampler;
mod shared;
mod state;
pub mod stats;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

pub use self::cause::{Cause, Causes, What};
pub use self::limiter::{Bucket, Limiter};
use self::shared::{Place, Shared};
pub use self::state::FAIR_EVERY;
use self::state::{State, Taken};
pub use self::stats::QueueStats;

/// The lock of the queue; the exhaustive tests put another one in its place.
mod sync {
    pub use std::sync::{Mutex, MutexGuard};
}

/// How urgent a key is. Within a priority keys are first in, first out.
///
/// A higher one is taken first, but every [`FAIR_EVERY`]th take goes to the oldest key, so none starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Can wait: the first list of a cache, a resync.
    Low,
    /// Changes.
    #[default]
    Normal,
    /// Must not wait behind changes.
    High,
}

/// How a queue behaves; [`QueueOptions::default`] is right for most controllers.
pub struct QueueOptions<K> {
    /// How long a key waits after a failure.
    pub limiter: Box<dyn Limiter<K>>,
    /// Whether spans are measured; costs three looks at the clock per key up to a million keys per second, and a few per
    /// hundred keys beyond that, of which a sample is measured.
    pub timed: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Default for QueueOptions<K> {
    fn default() -> Self {
        Self { limiter: Box::new(limiter::controller_limiter()), timed: true }
    }
}

/// A queue of keys for workers; clones share it.
///
/// A key that is added again before a worker takes it is run once; one that is added while it runs, runs once more
/// afterwards. One key never runs twice at once.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint_runtime::queue::WorkQueue;
///
/// let queue = WorkQueue::default();
/// queue.add("web");
/// queue.add("web");
/// let item = queue.get().await.unwrap();
/// assert_eq!((*item.key(), queue.len()), ("web", 0));
/// queue.add("web"); // while it runs
/// assert_eq!(queue.len(), 0);
/// item.done();
/// assert_eq!(queue.len(), 1);
/// # });
/// ```
pub struct WorkQueue<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
    /// Counts plain shutdowns, which end a drain.
    shutdowns: watch::Sender<u64>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(QueueOptions::default())
    }
}

impl<K: Clone + Eq + Hash> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), shutdowns: self.shutdowns.clone() }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new(options: QueueOptions<K>) -> Self {
        let state = State::new(options, Instant::now);
        Self { shared: Arc::new(Shared::new(state)), shutdowns: watch::Sender::new(0) }
    }

    /// Makes a key ready, unless it is or the queue is shut down.
    pub fn add(&self, key: K) {
        self.shared.change(|state| state.add(key, Priority::Normal, None));
    }

    /// Makes a key ready and remembers why. A key that is ready already keeps its place, or, if `priority` is higher than
    /// its own, goes to the end of that priority.
    pub fn add_because(&self, key: K, priority: Priority, cause: Cause) {
        self.shared.change(|state| state.add(key, priority, Some(cause)));
    }

    /// Makes a key ready after a delay. Of several delays for one key the earliest end counts; an [`add`](Self::add)
    /// meanwhile doesn't cancel it.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.shared.change(|state| state.add_after(key, delay, Priority::Normal, None));
    }

    /// Like [`add_after`](Self::add_after), and remembers why.
    pub fn add_after_because(&self, key: K, delay: Duration, priority: Priority, cause: Cause) {
        self.shared.change(|state| state.add_after(key, delay, priority, Some(cause)));
    }

    /// Makes a key ready after the delay that the limiter gives it.
    pub fn add_rate_limited(&self, key: K) {
        self.shared.change(|state| state.add_limited(key, Priority::Normal, None));
    }

    /// Like [`add_rate_limited`](Self::add_rate_limited), and remembers why.
    pub fn add_rate_limited_because(&self, key: K, priority: Priority, cause: Cause) {
        self.shared.change(|state| state.add_limited(key, priority, Some(cause)));
    }

    /// Forgets the failures of a key; it stays in the queue if it is there. Call it when a key has succeeded.
    pub fn forget(&self, key: &K) {
        self.shared.change(|state| state.forget(key));
    }

    /// How many failures of a key the limiter remembers.
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.change(|state| state.failures(key))
    }

    /// When a delayed key will be ready.
    #[must_use]
    pub fn due(&self, key: &K) -> Option<Instant> {
        self.shared.change(|state| state.due(key))
    }

    /// How many keys are ready.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.change(|state| {
            state.advance();
            state.ready()
        })
    }

    /// Whether no key is ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The figures of this moment.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        self.shared.change(State::stats)
    }

    /// The next key, once there is one; `None` when the queue is shut down and empty.
    pub async fn get(&self) -> Option<Item<'_, K>> {
        let mut waiting = Waiting { shared: &self.shared, place: Place::default() };
        let mut alarm: Option<Pin<Box<Sleep>>> = None;
        let taken = poll_fn(|context| {
            loop {
                let place = &mut waiting.place;
                if let Poll::Ready(taken) = self.shared.poll_take(place, context.waker()) {
                    return Poll::Ready(taken);
                }
                let Some(at) = place.alarm else { return Poll::Pending };
                let alarm = match &mut alarm {
                    Some(alarm) => {
                        alarm.as_mut().reset(at);
                        alarm
                    }
                    unset => unset.insert(Box::pin(tokio::time::sleep_until(at))),
                };
                if alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        taken.await.map(|taken| self.item(taken))
    }

    /// The next key, if one is ready.
    #[must_use]
    pub fn try_get(&self) -> Option<Item<'_, K>> {
        self.shared.change(State::take).map(|taken| self.item(taken))
    }

    /// Refuses new keys and drops those that wait for their time; workers get what is ready, then `None`.
    pub fn shutdown(&self) {
        self.shared.change(State::close);
        self.shutdowns.send_modify(|count| *count += 1);
    }

    /// Shuts down and waits until workers have finished everything that was ready. A [`shutdown`](Self::shutdown)
    /// meanwhile ends the wait.
    pub async fn shutdown_with_drain(&self) {
        let mut shutdowns = self.shutdowns.subscribe();
        self.shared.change(State::close);
        tokio::select! {
            biased;
            () = poll_fn(|context| self.shared.poll_idle(context.waker())) => {}
            _ = shutdowns.changed() => {}
        }
    }

    /// Whether the queue refuses new keys.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shared.change(|state| state.closed())
    }

    fn item(&self, taken: Taken<K>) -> Item<'_, K> {
        let Taken { slot, key, causes, priority } = taken;
        Item { shared: &self.shared, slot, key, causes, priority }
    }
}

/// A key in a worker's hands: nobody else gets it until this is dropped.
#[must_use = "a dropped item is done"]
pub struct Item<'a, K: Clone + Eq + Hash> {
    shared: &'a Shared<K>,
    slot: u32,
    key: K,
    causes: Causes,
    priority: Priority,
}

impl<K: Clone + Eq + Hash> Item<'_, K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Why it is here.
    pub fn causes(&self) -> &Causes {
        &self.causes
    }

    /// How urgent it was; a retry keeps it.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The work is finished; same as dropping, so that a worker that panics doesn't hold its key for ever.
    pub fn done(self) {}
}

impl<K: Clone + Eq + Hash> Drop for Item<'_, K> {
    fn drop(&mut self) {
        self.shared.change(|state| state.done(self.slot));
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Item<'_, K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Item").field("key", &self.key).field("causes", &self.causes).finish_non_exhaustive()
    }
}

/// Gives up the place among the sleepers when a worker stops waiting.
struct Waiting<'a, K: Clone + Eq + Hash> {
    shared: &'a Shared<K>,
    place: Place,
}

impl<K: Clone + Eq + Hash> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        self.shared.abandon(&mut self.place);
    }
}
