//! Which vehicles are told next: those that the steps mean, in an order of their own for each rollout, within its budgets.
//!
//! Membership is computed, never stored. Vehicles of a step are those with the lowest digests of the rollout's and their own identity, after
//! those that were told already: a step that grows keeps whom it has, and whoever computes it anew gets the same.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};

use super::tally::Tally;
use super::terms::{Share, Terms};
use crate::view::VehicleView;

/// How many vehicles are told in one run: the next one begins with fresh counts. A second or two of writing, so that with the pause between
/// runs a rollout to all isn't slower than the vehicles.
pub const TOLD_MAX: usize = 2_000;

/// How many are without a confirmed firmware, as the API server knows it at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unconfirmed {
    /// All of them.
    pub total: usize,
    /// By their value of the label that the budget is by.
    pub groups: BTreeMap<String, usize>,
}

impl Unconfirmed {
    /// One more.
    pub fn count(&mut self, terms: &Terms, vehicle: &VehicleView) {
        self.total += 1;
        if let Some((label, _)) = &terms.group {
            let group = vehicle.metadata.labels.get(label).unwrap_or_default();
            *self.groups.entry(group.to_owned()).or_default() += 1;
        }
    }
}

/// What is left of the budgets.
pub struct Budget<'a> {
    free: usize,
    label: Option<&'a str>,
    groups: BTreeMap<String, usize>,
    limits: BTreeMap<String, usize>,
}

impl<'a> Budget<'a> {
    /// What is left when so many are without a confirmed firmware.
    #[must_use]
    pub fn new(terms: &'a Terms, tally: &Tally<'_>, unconfirmed: &Unconfirmed) -> Budget<'a> {
        let eligible = usize::try_from(tally.counts.eligible).unwrap_or_default();
        let limits = terms.group.as_ref().map(|(_, share)| {
            tally.groups.iter().map(|(group, size)| ((*group).to_owned(), share.of(*size))).collect()
        });
        Budget {
            free: terms.concurrent.of(eligible).saturating_sub(unconfirmed.total),
            label: terms.group.as_ref().map(|(label, _)| &**label),
            groups: unconfirmed.groups.clone(),
            limits: limits.unwrap_or_default(),
        }
    }

    /// Whether nobody has to be counted: all may be without a confirmed firmware at once. A number is none of all: a cache that is behind may
    /// not show how many they are.
    #[must_use]
    pub fn is_for_all(terms: &Terms) -> bool {
        terms.group.is_none() && matches!(terms.concurrent, Share::Percent(percent) if percent >= 100)
    }

    /// Whether there is nothing left for anybody.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.free == 0
    }

    /// Whether there is a place for a vehicle.
    #[must_use]
    pub fn has_place(&self, vehicle: &VehicleView) -> bool {
        let of = |counts: &BTreeMap<String, usize>, group: &str| counts.get(group).copied().unwrap_or_default();
        let group = |label: &str| vehicle.metadata.labels.get(label).unwrap_or_default();
        let is_free = |label: &str| of(&self.groups, group(label)) < of(&self.limits, group(label));
        self.free > 0 && self.label.is_none_or(is_free)
    }

    /// Takes a place for a vehicle, if there is one.
    pub fn take(&mut self, vehicle: &VehicleView) -> bool {
        if !self.has_place(vehicle) {
            return false;
        }
        if let Some(label) = self.label {
            let group = vehicle.metadata.labels.get(label).unwrap_or_default();
            *self.groups.entry(group.to_owned()).or_default() += 1;
        }
        self.free -= 1;
        true
    }
}

/// Whom to tell, of those that the steps up to one mean, which counts from 0.
#[must_use]
pub fn pick<'a>(
    uid: &str,
    terms: &Terms,
    tally: &Tally<'a>,
    upto: usize,
    mut budget: Budget<'_>,
) -> Vec<&'a VehicleView> {
    if budget.is_spent() {
        return Vec::new();
    }
    let members = members(uid, terms, tally, upto).into_iter().flatten();
    members.filter(|vehicle| budget.take(vehicle)).take(TOLD_MAX).collect()
}

/// Who comes to each step up to one, which counts from 0, beside those that were told already.
#[must_use]
pub fn members<'a>(uid: &str, terms: &Terms, tally: &Tally<'a>, upto: usize) -> Vec<Vec<&'a VehicleView>> {
    let mut is_member = vec![false; tally.candidates.len()];
    let steps = 0..terms.steps.len().min(upto + 1);
    let step = |at: usize| {
        let is_meant = |index: &usize| tally.candidates[*index].1 >> at & 1 == 1;
        let already = (0..is_member.len()).filter(|index| is_member[*index]).filter(is_meant).count();
        let quota = tally.quota(&terms.steps, at).saturating_sub(already);
        let mut group: Vec<usize> = match quota {
            0 => Vec::new(),
            _ => (0..is_member.len()).filter(|index| !is_member[*index]).filter(is_meant).collect(),
        };
        if group.len() > quota {
            let mut ranked: Vec<_> =
                group.iter().map(|index| (rank(uid, tally.candidates[*index].0), *index)).collect();
            ranked.select_nth_unstable(quota - 1);
            ranked.truncate(quota);
            ranked.sort_unstable();
            group = ranked.into_iter().map(|(_, index)| index).collect();
        }
        group.iter().for_each(|index| is_member[*index] = true);
        group.into_iter().map(|index| tally.candidates[index].0).collect()
    };
    steps.map(step).collect()
}

/// The place of a vehicle in a rollout.
fn rank(uid: &str, vehicle: &VehicleView) -> u64 {
    let digest = digest(&SHA256, format!("{uid}\0{}", vehicle.metadata.uid).as_bytes());
    let first: [u8; 8] = std::array::from_fn(|at| digest.as_ref()[at]);
    u64::from_be_bytes(first)
}
