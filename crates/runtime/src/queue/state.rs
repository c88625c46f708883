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
use super::sampler::Sampler;
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
    /// Of which adds the time until they are taken is measured.
    waits: Sampler,
    /// Of which takes the time until they are done is measured.
    runs: Sampler,
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
    /// When it became ready, if that is measured.
    ready: Option<Stamp>,
    /// When the worker took it, if that is measured.
    started: Option<Stamp>,
}

/// The beginning of a span that is measured.
#[derive(Clone, Copy)]
struct Stamp {
    at: Instant,
    /// How many spans it stands for; none if it is only watched while it lasts.
    stands_for: u32,
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
            waits: Sampler::default(),
            runs: Sampler::default(),
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
        if self.mark_dirty(slot, priority) && self.timed && self.waits.counts() {
            let at = (self.now)();
            self.slots[slot as usize].ready = Some(Stamp { at, stands_for: self.waits.timed(at) });
        }
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
        let entry = self.next()?;
        self.takes += 1;
        self.processing += 1;
        let slot = &mut self.slots[entry.slot as usize];
        slot.dirty = false;
        slot.processing = true;
        let run_counts = self.timed && self.runs.counts();
        let ready = slot.ready.take();
        if run_counts || ready.is_some() {
            // One look at the clock is the end of waiting and the start of work.
            let now = (self.now)();
            if let Some(Stamp { at, stands_for }) = ready {
                self.stats.queue_duration.observe(now.saturating_duration_since(at), stands_for);
            }
            if run_counts {
                slot.started = Some(Stamp { at: now, stands_for: self.runs.timed(now) });
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
        let again = entry.dirty;
        let priority = entry.priority;
        if let Some(Stamp { at, stands_for }) = entry.started.take() {
            self.stats.work_duration.observe((self.now)().saturating_duration_since(at), stands_for);
        }
        if again {
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
            if self.mark_dirty(slot, waiting.priority) && self.timed {
                // Its end was known beforehand: no look at the clock is saved by leaving it out.
                self.slots[slot as usize].ready = Some(Stamp { at: until, stands_for: 1 });
            }
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
        if !self.timed {
            return stats;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.processing) {
            // One that was left out in a burst is watched from now on: it may be the one that never ends.
            let started = slot.started.get_or_insert(Stamp { at: now, stands_for: 0 });
            let held = now.saturating_duration_since(started.at);
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

    /// Whether the key was not dirty before.
    fn mark_dirty(&mut self, slot: u32, priority: Priority) -> bool {
        let holder = &mut self.slots[slot as usize];
        if holder.dirty {
            if priority > holder.priority {
                let old = std::mem::replace(&mut holder.priority, priority);
                if !holder.processing {
                    self.leave(old);
                    self.push(slot, priority);
                }
            }
            return false;
        }
        self.stats.adds += 1;
        holder.dirty = true;
        holder.priority = priority;
        if !holder.processing {
            self.push(slot, priority);
        }
        true
    }

    /// A key no longer stands in a level; its entry is passed over later.
    fn leave(&mut self, level: Priority) {
        let depth = &mut self.depth[level as usize];
        *depth -= 1;
        if *depth == 0 {
            self.levels[level as usize].clear();
        }
    }

    fn push(&mut self, slot: u32, priority: Priority) {
        self.sequence += 1;
        self.slots[slot as usize].entry = self.sequence;
        self.levels[priority as usize].push_back(Entry { slot, sequence: self.sequence });
        self.depth[priority as usize] += 1;
    }

    /// Takes the entry whose turn it is out of its level.
    fn next(&mut self) -> Option<Entry> {
        let fair = self.takes % FAIR_EVERY == FAIR_EVERY - 1;
        let mut chosen: Option<(usize, u64)> = None;
        for level in (0..self.levels.len()).rev() {
            if self.depth[level] == 0 {
                continue;
            }
            let front = self.live_front(level)?;
            if chosen.is_none_or(|(_, oldest)| front < oldest) {
                chosen = Some((level, front));
            }
            if !fair {
                break;
            }
        }
        let (level, _) = chosen?;
        self.depth[level] -= 1;
        self.levels[level].pop_front()
    }

    /// The sequence of a level's first live entry, after those before it are dropped.
    fn live_front(&mut self, level: usize) -> Option<u64> {
        loop {
            let front = *self.levels[level].front()?;
            let slot = &self.slots[front.slot as usize];
            if slot.dirty && !slot.processing && slot.entry == front.sequence {
                return Some(front.sequence);
            }
            self.levels[level].pop_front();
        }
    }

    fn slot_of(&mut self, key: K) -> u32 {
        let hash = self.hasher.hash_one(&key);
        if let Some(slot) = self.find(hash, &key) {
            return slot;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                // All else is as `release` found it: neither dirty nor held nor waiting.
                let holder = &mut self.slots[slot as usize];
                (holder.key, holder.hash) = (Some(key), hash);
                slot
            }
            None => {
                self.slots.push(Slot {
                    key: Some(key),
                    hash,
                    dirty: false,
                    processing: false,
                    priority: Priority::Normal,
                    entry: 0,
                    causes: Causes::default(),
                    waiting: None,
                    ready: None,
                    started: None,
                });
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
