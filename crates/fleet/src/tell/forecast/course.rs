//! Vehicles on their way, one after the other, as places of the budgets and windows let them go. Moments are computed, nothing waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::Window;

use super::own_window;
use crate::phase::Phase;
use crate::rollout::tally::{Facts, Standing, Tally, later};
use crate::rollout::terms::Terms;
use crate::view::VehicleView;

/// What it takes to get one vehicle there.
pub struct Trip {
    /// How long an installation takes.
    pub span: SignedDuration,
    /// How many bytes have to be downloaded.
    pub size: i64,
    /// How many bytes a second all vehicles together may download.
    pub rate: Option<i64>,
}

/// What became of vehicles that were to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// When the first of them is told.
    pub first: Option<Timestamp>,
    /// When the last of them that gets there is there.
    pub last: Option<Timestamp>,
    /// How many are never told.
    pub untold: usize,
}

/// Places, windows and the link, over all steps.
pub struct Road<'a> {
    trip: Trip,
    window: Option<&'a Window>,
    label: Option<&'a str>,
    free: usize,
    /// Places that are left for each group.
    rooms: BTreeMap<String, usize>,
    /// When places are given back, and by which group.
    returns: BinaryHeap<Reverse<(Timestamp, String)>>,
    /// When the link is free for the next download, if there is a rate.
    link: Timestamp,
    windows: HashMap<Box<str>, Option<Window>>,
    /// When those that are on their way at present are there.
    pub present_ends: Option<Timestamp>,
    /// How many wait for a window of their own.
    pub in_own_windows: usize,
    /// Those with windows that can't be read: they never get there, and keep their places.
    pub unreadable: Vec<&'a VehicleView>,
}

impl<'a> Road<'a> {
    /// What is free now. Those on their way give their places back when they are there; those that are away, when they are not waited for
    /// any more; those that fail again and again never.
    pub fn new(terms: &'a Terms, tally: &Tally<'a>, trip: Trip, now: Timestamp) -> Road<'a> {
        let eligible = usize::try_from(tally.counts.eligible).unwrap_or_default();
        let held = &tally.unconfirmed;
        let share = terms.group.as_ref().map(|(_, share)| *share);
        let room = |(group, size): (&&str, &usize)| {
            let taken = held.groups.get(*group).copied().unwrap_or_default();
            let limit = share.map_or(usize::MAX, |share| share.of(*size));
            ((*group).to_owned(), limit.saturating_sub(taken))
        };
        Road {
            window: terms.window.as_ref(),
            label: terms.group.as_ref().map(|(label, _)| &**label),
            free: terms.concurrent.of(eligible).saturating_sub(held.total),
            rooms: tally.groups.iter().map(room).collect(),
            returns: BinaryHeap::new(),
            link: now,
            windows: HashMap::new(),
            present_ends: None,
            in_own_windows: 0,
            unreadable: Vec::new(),
            trip,
        }
    }

    /// A vehicle that has a place now.
    pub fn hold(&mut self, vehicle: &'a VehicleView, facts: &Facts<'_>) {
        let standing = facts.standing(vehicle);
        let ends = match standing {
            Standing::Lost(since) | Standing::Failing(Some(since)) if facts.is_patient(since) => {
                Some(facts.patience_ends(since))
            }
            Standing::Failing(None) => None,
            Standing::InProgress if vehicle.status.phase.is_some_and(is_installing) => {
                Some(later(facts.now, self.trip.span))
            }
            Standing::InProgress => self.ends(vehicle, facts.now),
            _ if facts.is_returning(vehicle) => Some(later(facts.now, self.trip.span)),
            _ => return,
        };
        let Some(ends) = ends else { return };
        if standing == Standing::InProgress {
            self.present_ends = self.present_ends.max(Some(ends));
        }
        self.returns.push(Reverse((ends, self.group_of(vehicle))));
    }

    /// Tells vehicles, as soon as they may be told from a moment on. With `beside`, their places don't hold up what comes next.
    pub fn tell(&mut self, begin: Timestamp, vehicles: &[&'a VehicleView], beside: bool) -> Told {
        let mut queues: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        for (at, vehicle) in vehicles.iter().enumerate() {
            queues.entry(self.group_of(vehicle)).or_default().push_back(at);
        }
        let mut heads: BTreeSet<(usize, String)> =
            queues.iter().filter_map(|(group, queue)| Some((*queue.front()?, group.clone()))).collect();
        heads.retain(|(_, group)| self.has_room(group));
        let (mut told, mut time, mut left) = (Told::default(), begin, vehicles.len());
        while left > 0 {
            let Some(open) = self.window.map_or(Some(time), |window| window.opens_at(time)) else { break };
            time = open;
            self.take_back(time, &queues, &mut heads);
            let Some((at, group)) = heads.first().cloned().filter(|_| self.free > 0) else {
                // Nobody has a place: the next that is given back is waited for.
                let Some(Reverse((back, _))) = self.returns.peek() else { break };
                time = time.max(*back);
                continue;
            };
            self.take(&group);
            heads.remove(&(at, group.clone()));
            let queue = queues.entry(group.clone()).or_default();
            queue.pop_front();
            if let Some(next) = queue.front().filter(|_| self.has_room(&group)) {
                heads.insert((*next, group.clone()));
            }
            left -= 1;
            told.first.get_or_insert(time);
            if let Some(ends) = self.ends(vehicles[at], time) {
                told.last = told.last.max(Some(ends));
                self.returns.push(Reverse((ends, group)));
            } else {
                self.unreadable.push(vehicles[at]);
            }
        }
        if beside && let Some(last) = told.last {
            self.present_ends = self.present_ends.max(Some(last));
        }
        Told { untold: left, ..told }
    }

    /// Places that are given back up to a moment. A group that has room again has its next vehicle considered.
    fn take_back(
        &mut self,
        time: Timestamp,
        queues: &BTreeMap<String, VecDeque<usize>>,
        heads: &mut BTreeSet<(usize, String)>,
    ) {
        while let Some(Reverse((back, _))) = self.returns.peek()
            && *back <= time
        {
            let Some(Reverse((_, group))) = self.returns.pop() else { return };
            self.free += 1;
            if let Some(room) = self.rooms.get_mut(&group) {
                *room = room.saturating_add(1);
            }
            if let Some(next) = queues.get(&group).and_then(VecDeque::front) {
                heads.insert((*next, group));
            }
        }
    }

    fn group_of(&self, vehicle: &VehicleView) -> String {
        self.label.and_then(|label| vehicle.metadata.labels.get(label)).unwrap_or_default().to_owned()
    }

    fn has_room(&self, group: &str) -> bool {
        self.label.is_none() || self.rooms.get(group).is_some_and(|room| *room > 0)
    }

    fn take(&mut self, group: &str) {
        self.free -= 1;
        if self.label.is_some()
            && let Some(room) = self.rooms.get_mut(group)
        {
            *room -= 1;
        }
    }

    /// When a vehicle that is told at a moment is there: it downloads and installs in windows of its own. None, if one can't be read.
    fn ends(&mut self, vehicle: &VehicleView, told: Timestamp) -> Option<Timestamp> {
        let policy = &vehicle.spec.update_policy;
        let starts = self.opens(policy.download_window.as_deref(), told)?;
        let loaded = match self.trip.rate {
            Some(rate) => {
                let begun = self.link.max(starts);
                self.link = later(begun, SignedDuration::from_secs(self.trip.size / rate));
                self.link
            }
            None => starts,
        };
        let installs = self.opens(policy.install_window.as_deref(), loaded)?;
        self.in_own_windows += usize::from(starts > told || installs > loaded);
        Some(later(installs, self.trip.span))
    }

    /// When a window of a vehicle opens next.
    fn opens(&mut self, text: Option<&str>, from: Timestamp) -> Option<Timestamp> {
        let Some(text) = text else { return Some(from) };
        if !self.windows.contains_key(text) {
            let read = own_window(Some(text)).ok().flatten();
            self.windows.insert(text.into(), read);
        }
        self.windows.get(text)?.as_ref()?.opens_at(from)
    }
}

/// Whether what is still to be done needs neither the network nor a window.
fn is_installing(phase: Phase) -> bool {
    (Phase::Installing..=Phase::RollingBack).contains(&phase)
}
