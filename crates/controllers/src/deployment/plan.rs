//! How large each set of a deployment should be.

use super::annotations::{self, DESIRED_REPLICAS};
use super::bounds::Bounds;
use super::family::{Family, Member};
use super::proportion;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Only say how it is.
    Watch,
    /// Make all sets together as large as the deployment is meant to be, without rolling on.
    Scale,
    /// Go back to an earlier revision; zero is the last one.
    RollBack(i64),
    /// First take all old pods away, then make new ones.
    Recreate,
    /// Replace pods step by step.
    Roll,
}

/// What is known of the deployment itself.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    pub is_deleting: bool,
    pub is_paused: bool,
    pub roll_back_to: Option<i64>,
}

/// What a run is for.
pub fn way(wishes: Wishes, bounds: &Bounds, family: &Family) -> Way {
    match wishes {
        Wishes { is_deleting: true, .. } => Way::Watch,
        Wishes { is_paused: true, .. } => Way::Scale,
        Wishes { roll_back_to: Some(revision), .. } => Way::RollBack(revision),
        _ if is_scaled(bounds, family) => Way::Scale,
        _ if bounds.is_rolling => Way::Roll,
        _ => Way::Recreate,
    }
}

/// Whether the deployment was meant to have another size when one of its sets last got one. If pods are to be recreated and there
/// are several sets, they get their sizes by that.
fn is_scaled(bounds: &Bounds, family: &Family) -> bool {
    let mut active = family.all().filter(|member| member.is_active());
    let noted = |member: &Member| annotations::count(&member.annotations, DESIRED_REPLICAS);
    (bounds.is_rolling || active.clone().count() <= 1)
        && active.any(|member| noted(member).is_some_and(|desired| desired != bounds.replicas))
}

/// Makes all sets together as large as the deployment is meant to be.
pub fn scale(bounds: &Bounds, family: &mut Family) {
    if let Some(only) = only_active_or_latest(family) {
        if only.is_active() || only.replicas != bounds.replicas {
            only.resize(bounds.replicas, bounds);
        }
    } else if family.new.as_ref().is_some_and(|new| is_saturated(bounds, new)) {
        family.old.iter_mut().filter(|old| old.is_active()).for_each(|old| old.resize(0, bounds));
    } else if bounds.is_rolling {
        proportion::scale(bounds, family);
    }
}

/// The one set that should have pods, or if none should, the newest.
fn only_active_or_latest(family: &mut Family) -> Option<&mut Member> {
    let Family { new, old } = family;
    match old.iter().chain(&*new).filter(|member| member.is_active()).count() {
        0 => new.as_mut().or(old.last_mut()),
        1 => old.iter_mut().chain(new).find(|member| member.is_active()),
        _ => None,
    }
}

fn is_saturated(bounds: &Bounds, new: &Member) -> bool {
    let desired = annotations::count(&new.annotations, DESIRED_REPLICAS);
    new.replicas == bounds.replicas && desired == Some(bounds.replicas) && new.available() == bounds.replicas
}

/// How large the new set may be now, if it has so many pods and all together so many.
pub fn new_size(bounds: &Bounds, total: i64, new: i64) -> i64 {
    match bounds.is_rolling {
        _ if new > bounds.replicas => bounds.replicas,
        false => bounds.replicas,
        true => new + (bounds.most() - total).clamp(0, bounds.replicas - new),
    }
}

/// One step of replacing pods: new ones if there is room, else fewer old ones if enough are available. Whether there was one.
pub fn roll(bounds: &Bounds, family: &mut Family) -> bool {
    let total = family.total();
    let Some(new) = &mut family.new else { return false };
    let size = new_size(bounds, total, new.replicas);
    if size != new.replicas {
        new.resize(size, bounds);
        return true;
    }
    let (new_missing, new_available) = (new.replicas - new.available(), new.available());
    let room = total - bounds.fewest() - new_missing;
    if room <= 0 || total == new.replicas {
        return false;
    }
    let sick = |old: &Member| old.replicas - old.available();
    let gone = take(&mut family.old, room, bounds, sick);
    let available = new_available + family.old.iter().map(Member::available).sum::<i64>();
    gone + take(&mut family.old, available - bounds.fewest(), bounds, |old| old.replicas) > 0
}

/// Takes up to so many pods from sets, oldest first, and from each no more than it can spare; how many were taken.
fn take(old: &mut [Member], most: i64, bounds: &Bounds, can_spare: impl Fn(&Member) -> i64) -> i64 {
    let mut taken = 0;
    for member in old.iter_mut().filter(|member| member.is_active()) {
        let part = can_spare(member).min(most - taken).min(member.replicas);
        if part > 0 {
            member.resize(member.replicas - part, bounds);
            taken += part;
        }
    }
    taken
}

/// Takes all old pods away; whether there were any.
pub fn empty_old(bounds: &Bounds, family: &mut Family) -> bool {
    let active = family.old.iter_mut().filter(|old| old.is_active());
    active.map(|old| old.resize(0, bounds)).count() > 0
}

/// The old sets that are kept for their templates beyond the number that the deployment keeps: those of the lowest revisions.
pub fn surplus_history(limit: Option<i32>, family: &Family) -> Vec<&Member> {
    let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return Vec::new() };
    let mut kept: Vec<_> = family.old.iter().filter(|old| !old.is_going()).collect();
    // Sets whose revision can't be read count as the oldest.
    kept.sort_by_key(|old| (annotations::revision(&old.annotations).unwrap_or(0), old.age_order()));
    let surplus = kept.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    kept.truncate(surplus);
    kept.retain(|old| old.is_history());
    kept
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
