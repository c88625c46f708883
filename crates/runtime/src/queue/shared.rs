//! The queue's state behind a lock, and who is woken when it changes.
//!
//! Two rules keep workers from sleeping through work. There are never fewer woken workers than ready keys while others
//! sleep. While a key waits for its time, one sleeping worker, the timekeeper, has its alarm set to the earliest of them.

use std::collections::VecDeque;
use std::hash::Hash;
use std::task::{Poll, Waker};

use tokio::time::Instant;

use super::state::{State, Taken};
use super::sync::{Mutex, MutexGuard};

pub struct Shared<K> {
    inner: Mutex<Inner<K>>,
}

struct Inner<K> {
    state: State<K>,
    sleepers: VecDeque<Sleeper>,
    next_sleeper: u64,
    /// Workers that were woken and have not looked yet.
    woken: usize,
    timekeeper: Option<(u64, Instant)>,
    drains: Vec<Waker>,
}

struct Sleeper {
    id: u64,
    waker: Waker,
}

/// One worker's place among the sleepers.
#[derive(Default)]
pub struct Place {
    id: Option<u64>,
    /// When the worker must look again even if nobody wakes it.
    pub alarm: Option<Instant>,
}

impl<K: Clone + Eq + Hash> Shared<K> {
    pub fn new(state: State<K>) -> Self {
        let inner =
            Inner { state, sleepers: VecDeque::new(), next_sleeper: 0, woken: 0, timekeeper: None, drains: Vec::new() };
        Self { inner: Mutex::new(inner) }
    }

    /// Changes the state, then wakes whom the change concerns.
    pub fn change<T>(&self, change: impl FnOnce(&mut State<K>) -> T) -> T {
        let mut inner = self.lock();
        let answer = change(&mut inner.state);
        Self::unlock(inner);
        answer
    }

    /// Takes the next key, or sleeps; `None` when the queue is shut down and empty.
    pub fn poll_take(&self, place: &mut Place, waker: &Waker) -> Poll<Option<Taken<K>>> {
        let mut inner = self.lock();
        inner.leave(place);
        let answer = match inner.state.take() {
            Some(taken) => Poll::Ready(Some(taken)),
            None if inner.state.closed() => Poll::Ready(None),
            None => {
                inner.sleep(place, waker);
                Poll::Pending
            }
        };
        Self::unlock(inner);
        answer
    }

    /// A worker no longer waits; if it had been woken, another one is.
    pub fn abandon(&self, place: &mut Place) {
        // Whoever got a key at once never slept, and needs no second look at the lock.
        if place.id.is_none() {
            return;
        }
        let mut inner = self.lock();
        inner.leave(place);
        Self::unlock(inner);
    }

    /// Waits until no key is ready or held.
    pub fn poll_idle(&self, waker: &Waker) -> Poll<()> {
        let mut inner = self.lock();
        if inner.state.idle() {
            return Poll::Ready(());
        }
        if !inner.drains.iter().any(|known| known.will_wake(waker)) {
            inner.drains.push(waker.clone());
        }
        Poll::Pending
    }

    /// Lets go of the lock, then wakes whom the change concerns.
    fn unlock(mut inner: MutexGuard<'_, Inner<K>>) {
        // Under load nobody sleeps.
        if inner.sleepers.is_empty() && inner.drains.is_empty() {
            return;
        }
        let wakers = inner.settle();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        // A panic while the lock is held can only come from a key's own `Hash`, `Eq` or `Clone`, or from a limiter.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Inner<K> {
    fn sleep(&mut self, place: &mut Place, waker: &Waker) {
        let id = self.next_sleeper;
        self.next_sleeper += 1;
        place.id = Some(id);
        self.sleepers.push_back(Sleeper { id, waker: waker.clone() });
        if self.timekeeper.is_none() {
            self.timekeeper = self.state.earliest().map(|earliest| (id, earliest));
            place.alarm = self.timekeeper.map(|(_, alarm)| alarm);
        }
    }

    fn leave(&mut self, place: &mut Place) {
        place.alarm = None;
        let Some(id) = place.id.take() else { return };
        match self.sleepers.iter().position(|sleeper| sleeper.id == id) {
            Some(position) => drop(self.sleepers.remove(position)),
            None => self.woken -= 1,
        }
        self.timekeeper.take_if(|(timekeeper, _)| *timekeeper == id);
    }

    fn settle(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        if !self.drains.is_empty() && self.state.idle() {
            wakers.append(&mut self.drains);
        }
        if self.sleepers.is_empty() {
            return wakers;
        }
        if self.state.closed() {
            self.woken += self.sleepers.len();
            wakers.extend(self.sleepers.drain(..).map(|sleeper| sleeper.waker));
            return wakers;
        }
        while self.woken < self.state.ready()
            && let Some(sleeper) = self.sleepers.pop_front()
        {
            self.woken += 1;
            wakers.push(sleeper.waker);
        }
        wakers.extend(self.alarm_to_set());
        wakers
    }

    /// Whom to wake so that it sets its alarm, if none is set early enough.
    fn alarm_to_set(&mut self) -> Option<Waker> {
        let earliest = self.state.earliest()?;
        let position = match self.timekeeper {
            Some((_, alarm)) if alarm <= earliest => return None,
            Some((id, _)) => {
                self.timekeeper = None;
                self.sleepers.iter().position(|sleeper| sleeper.id == id)?
            }
            // Whoever was woken looks at the clock next, takes a key and settles, or becomes the timekeeper.
            None if self.woken > 0 => return None,
            None => 0,
        };
        let sleeper = self.sleepers.remove(position)?;
        self.woken += 1;
        Some(sleeper.waker)
    }
}
