//! Pods that wait for a node: by priority, then by age; those that failed pause, those that fit nowhere sleep.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use setpoint_runtime::Key;
use tokio::time::Instant;

use crate::demand::Demand;

/// The pause after the first failure; it doubles with each that follows.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A pod that waits.
#[derive(Clone)]
pub struct Waiting {
    pub key: Key,
    pub uid: Arc<str>,
    pub priority: i32,
    pub demand: Arc<Demand>,
    /// What its condition says already.
    pub told: Box<str>,
    pub failures: u32,
    order: u64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Active,
    Paused(Instant),
    Asleep,
    /// Taken from the queue and not given back yet.
    Out,
}

/// All pods that wait.
#[derive(Default)]
pub struct Queue {
    pods: HashMap<Arc<str>, Waiting>,
    active: BTreeSet<(Reverse<i32>, u64, Arc<str>)>,
    paused: BTreeSet<(Instant, Arc<str>)>,
    asleep: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    next: u64,
}

impl Queue {
    pub fn get(&self, uid: &str) -> Option<&Waiting> {
        self.pods.get(uid)
    }

    pub fn uids(&self) -> Vec<Arc<str>> {
        self.pods.keys().cloned().collect()
    }

    /// Adds a pod.
    pub fn add(&mut self, key: Key, uid: &str, priority: i32, demand: Arc<Demand>, told: &str) {
        let uid: Arc<str> = uid.into();
        self.next += 1;
        let place = Place::Active;
        let told = told.into();
        self.active.insert((Reverse(priority), self.next, uid.clone()));
        let pod = Waiting { key, uid: uid.clone(), priority, demand, told, failures: 0, order: self.next, place };
        self.pods.insert(uid, pod);
    }

    pub fn remove(&mut self, uid: &str) -> Option<Waiting> {
        self.lift(uid)?;
        self.pods.remove(uid)
    }

    /// Takes the first pod; it is out until it sleeps, pauses or is removed.
    pub fn pop(&mut self, now: Instant) -> Option<Waiting> {
        while let Some((until, uid)) = self.paused.first().cloned().filter(|(until, _)| *until <= now) {
            self.paused.remove(&(until, uid.clone()));
            self.activate(&uid);
        }
        let (.., uid) = self.active.pop_first()?;
        let pod = self.pods.get_mut(&uid)?;
        pod.place = Place::Out;
        Some(pod.clone())
    }

    /// A pod that fits nowhere sleeps until its class is woken.
    pub fn sleep(&mut self, uid: &str, told: &str) {
        if self.lift(uid).is_none() {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.failures = pod.failures.saturating_add(1);
        pod.told = told.into();
        pod.place = Place::Asleep;
        self.asleep.entry(pod.demand.class.clone()).or_default().insert(pod.uid.clone());
    }

    /// A pod that could not be bound is tried again after a pause.
    pub fn pause(&mut self, uid: &str, now: Instant) {
        if self.lift(uid).is_none() {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let pause = PAUSE.saturating_mul(1 << pod.failures.min(5)).min(PAUSE_MAX);
        pod.failures = pod.failures.saturating_add(1);
        pod.place = Place::Paused(now + pause);
        self.paused.insert((now + pause, pod.uid.clone()));
    }

    /// Wakes the pods of a class: it fits somewhere. How many they are.
    pub fn wake(&mut self, class: &str) -> usize {
        let woken = self.asleep.remove(class).unwrap_or_default();
        for uid in &woken {
            self.activate(uid);
        }
        woken.len()
    }

    pub fn is_asleep(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.place == Place::Asleep)
    }

    /// When the next pause ends.
    pub fn next_pause(&self) -> Option<Instant> {
        self.paused.first().map(|(until, _)| *until)
    }

    fn activate(&mut self, uid: &Arc<str>) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.place = Place::Active;
            self.active.insert((Reverse(pod.priority), pod.order, uid.clone()));
        }
    }

    /// Takes a pod out of the place where it is.
    fn lift(&mut self, uid: &str) -> Option<()> {
        let pod = self.pods.get_mut(uid)?;
        match std::mem::replace(&mut pod.place, Place::Out) {
            Place::Active => {
                self.active.remove(&(Reverse(pod.priority), pod.order, pod.uid.clone()));
            }
            Place::Paused(until) => {
                self.paused.remove(&(until, pod.uid.clone()));
            }
            Place::Asleep => {
                if let Some(asleep) = self.asleep.get_mut(&pod.demand.class) {
                    asleep.remove(uid);
                    if asleep.is_empty() {
                        self.asleep.remove(&pod.demand.class);
                    }
                }
            }
            Place::Out => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Wishes;

    fn queue(pods: &[(&str, i32)]) -> Queue {
        let demand = Arc::new(Demand::of(&Wishes::default()));
        let mut queue = Queue::default();
        for (uid, priority) in pods {
            queue.add(Key::namespaced("shop", uid), uid, *priority, demand.clone(), "");
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
    fn a_pod_that_sleeps_is_woken_with_its_class_and_one_that_pauses_by_time() {
        let mut queue = queue(&[("a", 0), ("b", 0)]);
        let now = Instant::now();
        assert_eq!(order(&mut queue, now), ["a", "b"]);
        queue.sleep("a", "no room");
        queue.pause("b", now);
        assert_eq!(order(&mut queue, now), [""; 0]);
        assert_eq!(order(&mut queue, now + PAUSE), ["b"]);
        let class = queue.get("a").unwrap().demand.class.clone();
        assert_eq!(queue.wake(&class), 1);
        assert_eq!(order(&mut queue, now), ["a"]);
        queue.pause("b", now);
        queue.pause("b", now);
        assert_eq!(queue.next_pause(), Some(now + PAUSE * 4), "a pause doubles with each failure");
    }

    #[test]
    fn a_pod_that_is_removed_is_nowhere() {
        let mut queue = queue(&[("a", 0), ("b", 0), ("c", 0)]);
        let now = Instant::now();
        order(&mut queue, now);
        queue.sleep("a", "");
        queue.pause("b", now);
        for uid in ["a", "b", "c"] {
            assert!(queue.remove(uid).is_some());
        }
        assert_eq!((queue.asleep.len(), queue.paused.len(), queue.active.len()), (0, 0, 0));
    }
}
