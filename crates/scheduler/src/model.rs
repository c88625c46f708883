//! A slow and obvious scheduler, and random clusters on which the fast one has to agree with it.
//!
//! `SETPOINT_CLUSTERS` says how many clusters are tried; `make clusters` tries ten thousand. A failure tells its seed.

mod filters;
mod world;

use std::time::Duration;

use tokio::time::Instant;

use self::world::World;
use crate::cluster::Next;

/// How many clusters are tried if nobody says otherwise: as many as a second or two allow.
const CLUSTERS: u64 = 100;
/// How much happens in each.
const ROUNDS: usize = 9;

/// A cluster with everything that random pods and nodes do to it; the fast scheduler is asked, the slow one checks.
fn check(seed: u64, has_priorities: bool) {
    let mut world = World::new(seed, has_priorities);
    let mut now = Instant::now();
    for round in 0..ROUNDS {
        for _ in 0..world.random.below(8) {
            world.happen();
        }
        // All pauses are over after each of these, and nobody has slept for so long in the end that time wakes him.
        for _ in 0..3 {
            now += Duration::from_secs(11);
            while let Some(next) = world.cluster.next(now) {
                world.check(next, &format!("seed {seed}, round {round}"));
            }
        }
        if !has_priorities {
            world.check_sleepers(&format!("seed {seed}, round {round}"));
        }
    }
}

fn clusters() -> std::ops::Range<u64> {
    let count = std::env::var("SETPOINT_CLUSTERS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(CLUSTERS)
}

#[test]
fn random_clusters_agree_with_the_slow_model() {
    clusters().for_each(|seed| check(seed, false));
}

/// Pods of a namespace whose labels change, so that others' anti-affinity is about it no more, are tried again at once.
#[test]
fn a_namespace_that_others_no_longer_keep_away_from_wakes_its_pods() {
    check(5836, false);
}

#[test]
fn the_lesser_make_room_for_the_more_important_and_no_more_than_they_must() {
    clusters().for_each(|seed| check(seed, true));
}

/// The kinds of decisions, to tell that random clusters lead to all of them.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Seen {
    bound: bool,
    told: bool,
    preempted: bool,
}

impl Seen {
    fn see(&mut self, next: &Next) {
        match next {
            Next::Bind(..) => self.bound = true,
            Next::Tell(..) => self.told = true,
            Next::Preempt(..) => self.preempted = true,
            Next::Prepare(..) => {}
        }
    }
}

#[test]
fn random_clusters_lead_to_every_kind_of_decision() {
    let mut seen = Seen::default();
    for seed in 0..20 {
        let mut world = World::new(seed, true);
        for _ in 0..60 {
            world.happen();
            while let Some(next) = world.cluster.next(Instant::now()) {
                seen.see(&next);
                world.follow(&next);
            }
        }
    }
    assert_eq!(seen, Seen { bound: true, told: true, preempted: true });
}
