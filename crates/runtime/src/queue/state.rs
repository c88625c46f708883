//! The queue's rules as a synchronous state machine: no waiting, no waking, no lock.
//!
//! Invariant: a key stands in a level exactly when it is dirty and not processing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use tokio::time::Instant;

use super::cause::{Cause, Causes};
use super::limiter::{Limiter, later};
use super::stats::QueueStats;
use super::{Priority, QueueOptions};

/// Every so many takes the oldest key is taken, whatever its priority: a low one waits at most this many times as
/// long as the keys before it need, even if high ones never end.
pub const FAIR_EVERY: u64 = 8;

/// Superseded entries that the heap of waiting keys may hold beyond twice the live ones before it is rebuilt.
const STALE_SLACK: usize = 64;

pub struct State<K> {
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    levels: [VecDeque<Entry>; 3],
    depth: [usize; 3],
    heap: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    waiting: usize,
    processing: usize,
    sequence: u64,
    takes: u64,
    closed: bool,
    timed: bool,
    now: fn() -> Instant,
    limiter: Box<dyn Limiter<K>>,
    stats: QueueStats,
}

struct Slot<K> {
    key: Option<K>,
    hash: u64,
    dirty: bool,
    processing: bool,
    priority: Priority,
    /// Which entry of a level is this key's; older entries are passed over.
    entry: u64,
    causes: Causes,
    waiting: Option<Box<Waiting>>,
    /// When it became ready; while processing, when the worker took it.
    since: Option<Instant>,
    /// When it became ready for its next run while it is processing.
    dirty_since: Option<Instant>,
}

struct Waiting {
    until: Instant,
    entry: u64,
    priority: Priority,
    causes: Causes,
}

#[derive(Clone, Copy)]
struct Entry {
    slot: u32,
    sequence: u64,
}

/// A key that a worker has taken.
pub struct Taken<K> {
    pub slot: u32,
    pub key: K,
    pub causes: Causes,
    pub priority: Priority,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub fn new(options: QueueOptions<K>, now: fn() -> Instant) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            levels: Default::default(),
            depth: [0; 3],
            heap: BinaryHeap::new(),
            waiting: 0,
            processing: 0,
            sequence: 0,
            takes: 0,
            closed: false,
            timed: options.timed,
            now,
            limiter: options.limiter,
            stats: QueueStats::default(),
        }
    }

    pub fn add(&mut self, key: K, priority: Priority, cause: Option<Cause>) {
        if self.closed {
            return;
        }
        self.advance();
        let slot = self.slot_of(key);
        if let Some(cause) = cause {
            self.slots[slot as usize].causes.push(cause);
        }
        let ready = self.timed.then(self.now);
        self.mark_dirty(slot, priority, ready);
    }

    pub fn add_after(&mut self, key: K, delay: Duration, priority: Priority, cause: Option<Cause>) {
        if delay.is_zero() {
            return self.add(key, priority, cause);
        }
        if self.closed {
            return;
        }
        let until = later((self.now)(), delay);
        let slot = self.slot_of(key);
        self.sequence += 1;
        let entry = self.sequence;
        let waiting = match &mut self.slots[slot as usize].waiting {
            Some(waiting) => {
                waiting.priority = waiting.priority.max(priority);
                if until < waiting.until {
                    (waiting.until, waiting.entry) = (until, entry);
                    self.heap.push(Reverse((until, entry, slot)));
                }
                waiting
            }
            vacant => {
                self.waiting += 1;
                self.heap.push(Reverse((until, entry, slot)));
                vacant.insert(Box::new(Waiting { until, entry, priority, causes: Causes::default() }))
            }
        };
        if let Some(cause) = cause {
            waiting.causes.push(cause);
        }
        self.drop_superseded();
    }

    pub fn add_limited(&mut self, key: K, priority: Priority, cause: Option<Cause>) {
        if self.closed {
            return;
        }
        let delay = self.limiter.delay(&key, (self.now)());
        self.stats.retries += 1;
        self.add_after(key, delay, priority, cause);
    }

    /// The next key for a worker.
    pub fn take(&mut self) -> Option<Taken<K>> {
        self.advance();
        let level = self.next_level()?;
        let entry = self.levels[level].pop_front()?;
        self.takes += 1;
        self.depth[level] -= 1;
        self.processing += 1;
        let slot = &mut self.slots[entry.slot as usize];
        slot.dirty = false;
        slot.processing = true;
        if self.timed {
            let now = (self.now)();
            if let Some(ready) = slot.since.replace(now) {
                self.stats.queue_duration.observe(now.saturating_duration_since(ready));
            }
        }
        Some(Taken {
            slot: entry.slot,
            key: slot.key.clone()?,
            causes: std::mem::take(&mut slot.causes),
            priority: slot.priority,
        })
    }

    /// The worker has finished with a key; a key that became dirty meanwhile is ready again.
    pub fn done(&mut self, slot: u32) {
        self.processing -= 1;
        let entry = &mut self.slots[slot as usize];
        entry.processing = false;
        let started = entry.since.take();
        let again = entry.dirty;
        let ready = entry.dirty_since.take();
        let priority = entry.priority;
        if let Some(started) = started
            && self.timed
        {
            self.stats.work_duration.observe((self.now)().saturating_duration_since(started));
        }
        if again {
            self.slots[slot as usize].since = ready;
            self.push(slot, priority);
        } else {
            self.release(slot);
        }
    }

    /// Lets keys whose time has come become ready.
    pub fn advance(&mut self) {
        if self.heap.is_empty() {
            return;
        }
        let now = (self.now)();
        while let Some(&Reverse((until, entry, slot))) = self.heap.peek()
            && until <= now
        {
            self.heap.pop();
            let holder = &mut self.slots[slot as usize];
            let Some(waiting) = holder.waiting.take_if(|waiting| waiting.entry == entry) else { continue };
            for cause in waiting.causes.first {
                holder.causes.push(cause);
            }
            holder.causes.more += waiting.causes.more;
            self.waiting -= 1;
            self.mark_dirty(slot, waiting.priority, Some(until));
        }
    }

    /// When the next waiting key is due.
    pub fn earliest(&mut self) -> Option<Instant> {
        while let Some(&Reverse((until, entry, slot))) = self.heap.peek() {
            if self.slots[slot as usize].waiting.as_ref().is_some_and(|waiting| waiting.entry == entry) {
                return Some(until);
            }
            self.heap.pop();
        }
        None
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.heap.clear();
        self.waiting = 0;
        for slot in 0..self.slots.len() {
            if self.slots[slot].waiting.take().is_some() {
                self.release(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    pub fn closed(&self) -> bool {
        self.closed
    }

    pub fn ready(&self) -> usize {
        self.depth.iter().sum()
    }

    /// Whether no key is ready or held.
    pub fn idle(&self) -> bool {
        self.processing == 0 && self.ready() == 0
    }

    pub fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    pub fn failures(&self, key: &K) -> u32 {
        self.limiter.failures(key)
    }

    pub fn stats(&mut self) -> QueueStats {
        self.advance();
        let now = (self.now)();
        let mut stats = self.stats.clone();
        (stats.depth, stats.waiting, stats.processing) = (self.depth, self.waiting, self.processing);
        for slot in self.slots.iter().filter(|slot| slot.processing) {
            let held = slot.since.map_or(Duration::ZERO, |started| now.saturating_duration_since(started));
            stats.unfinished += held;
            stats.longest_running = stats.longest_running.max(held);
        }
        stats
    }

    /// When a waiting key will be ready; for those who ask why nothing happens.
    pub fn due(&self, key: &K) -> Option<Instant> {
        let slot = self.find(self.hasher.hash_one(key), key)?;
        self.slots[slot as usize].waiting.as_ref().map(|waiting| waiting.until)
    }

    fn mark_dirty(&mut self, slot: u32, priority: Priority, ready: Option<Instant>) {
        let holder = &mut self.slots[slot as usize];
        if holder.dirty {
            if priority > holder.priority {
                let old = std::mem::replace(&mut holder.priority, priority);
                if !holder.processing {
                    self.depth[old as usize] -= 1;
                    self.push(slot, priority);
                }
            }
            return;
        }
        self.stats.adds += 1;
        holder.dirty = true;
        holder.priority = priority;
        if holder.processing {
            holder.dirty_since = ready;
        } else {
            holder.since = ready;
            self.push(slot, priority);
        }
    }

    fn push(&mut self, slot: u32, priority: Priority) {
        self.sequence += 1;
        self.slots[slot as usize].entry = self.sequence;
        self.levels[priority as usize].push_back(Entry { slot, sequence: self.sequence });
        self.depth[priority as usize] += 1;
    }

    /// The level to take from, with a live entry at its front.
    fn next_level(&mut self) -> Option<usize> {
        for level in 0..3 {
            while let Some(front) = self.levels[level].front() {
                let slot = &self.slots[front.slot as usize];
                if slot.dirty && !slot.processing && slot.entry == front.sequence {
                    break;
                }
                self.levels[level].pop_front();
            }
        }
        let levels = self.levels.iter().enumerate();
        let mut fronts = levels.filter_map(|(level, queue)| queue.front().map(|front| (level, front.sequence)));
        if self.takes % FAIR_EVERY == FAIR_EVERY - 1 {
            fronts.min_by_key(|(_, sequence)| *sequence).map(|(level, _)| level)
        } else {
            fronts.next_back().map(|(level, _)| level)
        }
    }

    fn slot_of(&mut self, key: K) -> u32 {
        let hash = self.hasher.hash_one(&key);
        if let Some(slot) = self.find(hash, &key) {
            return slot;
        }
        let fresh = Slot {
            key: Some(key),
            hash,
            dirty: false,
            processing: false,
            priority: Priority::Normal,
            entry: 0,
            causes: Causes::default(),
            waiting: None,
            since: None,
            dirty_since: None,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                u32::try_from(self.slots.len() - 1).expect("fewer than 4 billion keys fit into memory")
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| slots[*slot as usize].hash);
        slot
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        self.index.find(hash, |slot| self.slots[*slot as usize].key.as_ref() == Some(key)).copied()
    }

    /// Frees the slot of a key that is neither dirty nor processing nor waiting.
    fn release(&mut self, slot: u32) {
        let holder = &mut self.slots[slot as usize];
        if holder.dirty || holder.processing || holder.waiting.is_some() || holder.key.is_none() {
            return;
        }
        holder.key = None;
        let hash = holder.hash;
        if let Ok(entry) = self.index.find_entry(hash, |candidate| *candidate == slot) {
            entry.remove();
        }
        self.free.push(slot);
    }

    fn drop_superseded(&mut self) {
        if self.heap.len() <= 2 * self.waiting + STALE_SLACK {
            return;
        }
        let slots = &self.slots;
        self.heap.retain(|Reverse((_, entry, slot))| {
            slots[*slot as usize].waiting.as_ref().is_some_and(|waiting| waiting.entry == *entry)
        });
    }
}
