//! Pods that wait for a node: by priority, then by age; those that failed pause, those that fit nowhere sleep until something
//! happens that can help them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use setpoint_runtime::Key;
use tokio::time::Instant;

use crate::demand::Demand;
use crate::devices::Wanted;
use crate::relation::Relation;
use crate::tally::{GroundId, TallyId};

/// The pause after the first failure; it doubles with each that follows.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a pod sleeps if nothing wakes it: what can help it may be something that nobody thought of.
const SLEEP_MAX: Duration = Duration::from_secs(5 * 60);

/// A pod that waits.
#[derive(Clone)]
pub struct Waiting {
    pub key: Key,
    pub uid: Arc<str>,
    pub generation: i64,
    pub priority: i32,
    /// Whether it may send other pods away.
    pub preempts: bool,
    pub demand: Arc<Demand>,
    pub relation: Arc<Relation>,
    /// Its claims; with each, whether it comes and goes with the pod.
    pub claims: Box<[(Box<str>, bool)]>,
    /// Its claims of devices.
    pub devices: Box<[Wanted]>,
    /// Its images; few nodes tell theirs.
    pub images: Box<[Box<str>]>,
    /// What its condition says already.
    pub told: Box<str>,
    /// The node that its status nominates.
    pub nominated: Box<str>,
    failures: u32,
    failed: Option<Instant>,
    order: u64,
    place: Place,
}

/// Something that may happen and that pods sleep for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// A class fits somewhere, and did nowhere.
    Opened(u64),
    /// A node fits a class, and didn't.
    Gained(u64),
    /// A node that pods name has changed.
    Node(Box<str>),
    /// A tally has more.
    More(TallyId),
    /// A tally has less.
    Less(TallyId),
    /// Nodes came into a ground, left it or moved in it.
    Ground(GroundId),
    /// A nomination is gone.
    Nomination,
    /// Something about a claim.
    Claim(Key),
    /// Something about volumes or their classes.
    Storage,
    /// Something about a claim of devices.
    Device(Key),
    /// Classes of devices.
    DeviceClass,
}

impl Call {
    /// Whether those who are called needn't pause first: they will find a place, or it is their own claim that has changed.
    fn is_sure(&self) -> bool {
        matches!(self, Call::Opened(_) | Call::Claim(_) | Call::Device(_))
    }

    fn class(&self) -> Option<u64> {
        match self {
            Call::Opened(class) | Call::Gained(class) => Some(*class),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Active,
    Paused(Instant),
    Asleep(Vec<Call>, Instant),
    /// Taken from the queue and not given back yet.
    Out,
}

type Rank = (Reverse<i32>, u64, Arc<str>);

/// All pods that wait.
#[derive(Default)]
pub struct Queue {
    pods: HashMap<Arc<str>, Waiting>,
    active: BTreeSet<Rank>,
    paused: BTreeSet<(Instant, Arc<str>)>,
    asleep: HashMap<Call, BTreeSet<Rank>>,
    /// When those who sleep are woken in any case.
    alarms: BTreeSet<(Instant, Arc<str>)>,
    /// The classes that somebody sleeps for, with how many do.
    awaited: HashMap<u64, usize>,
    next: u64,
}

/// What is known of a pod when it begins to wait.
pub struct Arrival {
    pub key: Key,
    pub uid: Arc<str>,
    pub generation: i64,
    pub priority: i32,
    pub preempts: bool,
    pub demand: Arc<Demand>,
    pub relation: Arc<Relation>,
    pub claims: Box<[(Box<str>, bool)]>,
    pub devices: Box<[Wanted]>,
    pub images: Box<[Box<str>]>,
    pub told: Box<str>,
    pub nominated: Box<str>,
}

impl Queue {
    pub fn get(&self, uid: &str) -> Option<&Waiting> {
        self.pods.get(uid)
    }

    /// Changes what is known of a pod, but not its place.
    pub fn update(&mut self, uid: &str, change: impl FnOnce(&mut Waiting)) {
        if let Some(pod) = self.pods.get_mut(uid) {
            let (order, priority) = (pod.order, pod.priority);
            change(pod);
            (pod.order, pod.priority) = (order, priority);
        }
    }

    pub fn uids(&self) -> Vec<Arc<str>> {
        self.pods.keys().cloned().collect()
    }

    /// Adds a pod.
    pub fn add(&mut self, new: Arrival) {
        self.next += 1;
        let Arrival {
            key,
            uid,
            generation,
            priority,
            preempts,
            demand,
            relation,
            claims,
            devices,
            images,
            told,
            nominated,
        } = new;
        let pod = Waiting {
            key,
            uid: uid.clone(),
            generation,
            priority,
            preempts,
            demand,
            relation,
            claims,
            devices,
            images,
            told,
            nominated,
            failures: 0,
            failed: None,
            order: self.next,
            place: Place::Active,
        };
        self.active.insert(pod.rank());
        self.pods.insert(uid, pod);
    }

    pub fn remove(&mut self, uid: &str) -> Option<Waiting> {
        self.lift(uid)?;
        self.pods.remove(uid)
    }

    /// Takes the first pod; it is out until it sleeps, pauses or is removed.
    pub fn pop(&mut self, now: Instant) -> Option<Waiting> {
        self.ring(now);
        let (.., uid) = self.active.pop_first()?;
        let pod = self.pods.get_mut(&uid)?;
        pod.place = Place::Out;
        Some(pod.clone())
    }

    /// A pod that fits nowhere sleeps until it is called.
    pub fn sleep(&mut self, uid: &str, calls: Vec<Call>, now: Instant) {
        if self.lift(uid).is_none() {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.failures = pod.failures.saturating_add(1);
        pod.failed = Some(now);
        let alarm = now + SLEEP_MAX;
        for call in &calls {
            self.asleep.entry(call.clone()).or_default().insert(pod.rank());
            if let Some(class) = call.class() {
                *self.awaited.entry(class).or_default() += 1;
            }
        }
        self.alarms.insert((alarm, pod.uid.clone()));
        pod.place = Place::Asleep(calls, alarm);
    }

    /// A pod that could not be bound is tried again after a pause.
    pub fn pause(&mut self, uid: &str, now: Instant) {
        if self.lift(uid).is_none() {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.failures = pod.failures.saturating_add(1);
        pod.failed = Some(now);
        let until = now + pod.pause();
        pod.place = Place::Paused(until);
        self.paused.insert((until, pod.uid.clone()));
    }

    /// Wakes everybody who sleeps for this.
    pub fn call(&mut self, call: &Call, now: Instant) {
        let Some(called) = self.asleep.get(call) else { return };
        for (.., uid) in called.clone() {
            self.wake(&uid, call.is_sure(), now);
        }
    }

    /// Wakes the first of those who sleep for this.
    pub fn call_one(&mut self, call: &Call, now: Instant) {
        let first = self.asleep.get(call).and_then(|called| called.first().cloned());
        if let Some((.., uid)) = first {
            self.wake(&uid, call.is_sure(), now);
        }
    }

    /// Tries a pod again now, wherever it is.
    pub fn hurry(&mut self, uid: &str) {
        if self.pods.get(uid).is_some_and(|pod| pod.place != Place::Out) && self.lift(uid).is_some() {
            self.activate(uid);
        }
    }

    /// Those who sleep for this.
    pub fn sleepers(&self, call: &Call) -> impl Iterator<Item = &Waiting> {
        let called = self.asleep.get(call).into_iter().flatten();
        called.filter_map(|(.., uid)| self.pods.get(uid))
    }

    /// Whether somebody sleeps for a class.
    pub fn awaits(&self, class: u64) -> bool {
        self.awaited.contains_key(&class)
    }

    pub fn is_active(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.place == Place::Active)
    }

    /// When time is the next to wake somebody.
    pub fn next_alarm(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Arc<str>)>| set.first().map(|(at, _)| *at);
        [first(&self.paused), first(&self.alarms)].into_iter().flatten().min()
    }

    /// Wakes those whose time has come.
    fn ring(&mut self, now: Instant) {
        let due = |set: &BTreeSet<(Instant, Arc<str>)>| set.first().filter(|(at, _)| *at <= now).cloned();
        while let Some((_, uid)) = due(&self.paused).or_else(|| due(&self.alarms)) {
            self.lift(&uid);
            self.activate(&uid);
        }
    }

    fn wake(&mut self, uid: &str, is_sure: bool, now: Instant) {
        if self.lift(uid).is_none() {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        match pod.failed.map(|failed| failed + pod.pause()) {
            Some(until) if !is_sure && until > now => {
                pod.place = Place::Paused(until);
                self.paused.insert((until, pod.uid.clone()));
            }
            _ => self.activate(uid),
        }
    }

    fn activate(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.place = Place::Active;
            self.active.insert(pod.rank());
        }
    }

    /// Takes a pod out of the place where it is.
    fn lift(&mut self, uid: &str) -> Option<()> {
        let pod = self.pods.get_mut(uid)?;
        match std::mem::replace(&mut pod.place, Place::Out) {
            Place::Active => {
                self.active.remove(&pod.rank());
            }
            Place::Paused(until) => {
                self.paused.remove(&(until, pod.uid.clone()));
            }
            Place::Asleep(calls, alarm) => {
                self.alarms.remove(&(alarm, pod.uid.clone()));
                let rank = pod.rank();
                for call in calls {
                    self.wait_no_more(&call, &rank);
                }
            }
            Place::Out => {}
        }
        Some(())
    }

    fn wait_no_more(&mut self, call: &Call, rank: &Rank) {
        if let Some(called) = self.asleep.get_mut(call) {
            called.remove(rank);
            if called.is_empty() {
                self.asleep.remove(call);
            }
        }
        let Some(class) = call.class() else { return };
        if let Some(count) = self.awaited.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&class);
            }
        }
    }
}

impl Waiting {
    fn rank(&self) -> Rank {
        (Reverse(self.priority), self.order, self.uid.clone())
    }

    /// How long it pauses after its last failure.
    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(5)).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Wishes;
    use crate::profile::Profile;

    fn queue(pods: &[(&str, i32)]) -> Queue {
        let demand = Arc::new(Demand::of(&Wishes::default(), &Arc::new(Profile::named("a")), 1));
        let mut queue = Queue::default();
        for (uid, priority) in pods {
            queue.add(Arrival {
                key: Key::namespaced("shop", uid),
                uid: (*uid).into(),
                generation: 1,
                priority: *priority,
                preempts: true,
                demand: demand.clone(),
                relation: Arc::default(),
                claims: Box::default(),
                devices: Box::default(),
                images: Box::default(),
                told: "".into(),
                nominated: "".into(),
            });
        }
        queue
    }

    fn order(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now)).map(|pod| pod.uid.to_string()).collect()
    }

    #[test]
    fn more_important_pods_come_first_and_of_equals_the_older() {
        let mut queue = queue(&[("a", 0), ("b", 7), ("c", 0), ("d", 7), ("e", -1)]);
        assert_eq!(order(&mut queue, Instant::now()), ["b", "d", "a", "c", "e"]);
    }

    #[test]
    fn a_pod_that_sleeps_is_woken_by_its_calls_and_one_that_pauses_by_time() {
        let mut queue = queue(&[("a", 0), ("b", 0)]);
        let now = Instant::now();
        assert_eq!(order(&mut queue, now), ["a", "b"]);
        queue.sleep("a", vec![Call::Opened(1), Call::Storage], now);
        queue.pause("b", now);
        assert_eq!(order(&mut queue, now), [""; 0]);
        assert_eq!(order(&mut queue, now + PAUSE), ["b"]);
        assert!(queue.awaits(1) && !queue.awaits(2));
        queue.call(&Call::Opened(2), now);
        assert_eq!(order(&mut queue, now), [""; 0]);
        queue.call(&Call::Opened(1), now);
        assert!(!queue.awaits(1));
        assert_eq!(order(&mut queue, now), ["a"]);
        queue.pause("b", now);
        queue.pause("b", now);
        assert_eq!(queue.next_alarm(), Some(now + PAUSE * 4), "a pause doubles with each failure");
    }

    #[test]
    fn a_call_that_may_help_doesn_t_shorten_the_pause_and_time_wakes_in_the_end() {
        let mut queue = queue(&[("a", 0)]);
        let now = Instant::now();
        order(&mut queue, now);
        queue.sleep("a", vec![Call::Storage], now);
        queue.call(&Call::Storage, now);
        assert_eq!(order(&mut queue, now), [""; 0]);
        assert_eq!(order(&mut queue, now + PAUSE), ["a"]);
        queue.sleep("a", vec![Call::Storage], now);
        assert_eq!(order(&mut queue, now + SLEEP_MAX), ["a"]);
    }

    #[test]
    fn a_pod_that_is_removed_is_nowhere() {
        let mut queue = queue(&[("a", 0), ("b", 0), ("c", 0)]);
        let now = Instant::now();
        order(&mut queue, now);
        queue.sleep("a", vec![Call::Gained(1)], now);
        queue.pause("b", now);
        for uid in ["a", "b", "c"] {
            assert!(queue.remove(uid).is_some());
        }
        assert_eq!((queue.asleep.len(), queue.paused.len(), queue.active.len()), (0, 0, 0));
        assert_eq!((queue.alarms.len(), queue.awaited.len()), (0, 0));
    }
}
