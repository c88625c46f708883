//! What a deployment says of itself, and whether it gets on.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_runtime::conditions::State;

use super::bounds::Bounds;
use super::conditions::{
    self, AVAILABLE, COMPLETE, CREATED, FOUND, PAUSED, PROGRESSING, REPLICA_FAILURE, RESUMED, TIMED_OUT, UPDATED,
};
use super::family::Family;

/// A status in the making.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    deployment: &'a Deployment,
    bounds: Bounds,
    now: Timestamp,
    /// What was said last, with what has happened since.
    said: DeploymentStatus,
}

impl<'a> Report<'a> {
    /// Begins with what was said last.
    pub fn new(deployment: &'a Deployment, bounds: Bounds, now: Timestamp) -> Report<'a> {
        Report { deployment, bounds, now, said: deployment.status.clone().unwrap_or_default() }
    }

    /// Notes that the deployment was paused or goes on, so that the time between doesn't count as lack of progress.
    pub fn note_pause(&mut self) {
        let is_paused = self.deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
        if self.deadline().is_none() || self.has_reason(TIMED_OUT) {
            return;
        }
        match (is_paused, self.has_reason(PAUSED)) {
            (true, false) => self.progress(State::Unknown, PAUSED, "Deployment is paused".to_owned()),
            (false, true) => self.progress(State::Unknown, RESUMED, "Deployment is resumed".to_owned()),
            _ => {}
        }
    }

    /// Notes that the set of the template was there, if nothing was said before.
    pub fn note_found(&mut self, set: &str) {
        if self.deadline().is_some() && conditions::find(self.conditions(), PROGRESSING).is_none() {
            self.progress(State::True, FOUND, format!("Found new replica set {set:?}"));
        }
    }

    /// Notes that the set of the template was made.
    pub fn note_created(&mut self, set: &str) {
        if self.deadline().is_some() {
            self.progress(State::True, CREATED, format!("Created new replica set {set:?}"));
        }
    }

    /// Notes that the set of the template could not be made.
    pub fn note_create_failed(&mut self, message: String) {
        if self.deadline().is_some() {
            self.progress(State::False, conditions::CREATE_FAILED, message);
        }
    }

    /// Notes that the name of a set was taken by another.
    pub fn note_collision(&mut self) {
        self.said.collision_count = Some(self.said.collision_count.unwrap_or(0).saturating_add(1));
    }

    /// What was said last and what happened since, without a look at the sets.
    pub fn as_said(&self) -> DeploymentStatus {
        self.said.clone()
    }

    /// Whether what was said last is that all pods are new and available.
    pub fn was_complete(&self) -> bool {
        self.is_complete(&self.said)
    }

    /// How the sets are, without a word about progress.
    pub fn counts(&self, family: &Family) -> DeploymentStatus {
        let sum = |count: &dyn Fn(&super::family::Member) -> i64| family.all().map(count).sum::<i64>();
        let ready = |member: &super::family::Member| {
            i64::from(member.set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0))
        };
        let available = sum(&|member| member.available());
        let mut conditions = self.conditions().to_vec();
        let (state, reason, message) = match available >= self.bounds.fewest() {
            true => (State::True, "MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => (State::False, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
        };
        conditions::set(&mut conditions, conditions::new(AVAILABLE, state, reason, message.to_owned(), self.now));
        DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(sum(&|member| member.actual())),
            updated_replicas: some(family.new.as_ref().map_or(0, |new| new.actual())),
            ready_replicas: some(sum(&ready)),
            available_replicas: some(available),
            unavailable_replicas: some(family.total() - available),
            terminating_replicas: terminating(family),
            collision_count: self.said.collision_count,
            conditions: Some(conditions),
        }
    }

    /// How the sets are and whether the rollout gets on.
    pub fn rollout(&self, family: &Family) -> DeploymentStatus {
        let mut status = self.counts(family);
        let mut all = status.conditions.take().unwrap_or_default();
        if self.deadline().is_none() {
            conditions::remove(&mut all, PROGRESSING);
        } else {
            self.judge_progress(&status, family, &mut all);
        }
        let newest_first = family.new.iter().chain(&family.old);
        let set_conditions =
            newest_first.flat_map(|member| member.set.status.iter()).flat_map(|status| &status.conditions);
        match set_conditions.flatten().find(|condition| condition.type_ == REPLICA_FAILURE) {
            Some(failure) => conditions::set(&mut all, conditions::of_set(failure)),
            None => conditions::remove(&mut all, REPLICA_FAILURE),
        }
        status.conditions = Some(all);
        status
    }

    fn judge_progress(&self, status: &DeploymentStatus, family: &Family, all: &mut Vec<DeploymentCondition>) {
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let who = match &family.new {
            Some(new) => format!("ReplicaSet {:?}", new.name()),
            None => format!("Deployment {name:?}"),
        };
        let say =
            |state, reason, what: &str| conditions::new(PROGRESSING, state, reason, format!("{who} {what}"), self.now);
        let done = say(State::True, COMPLETE, "has successfully progressed.");
        if self.is_complete(status) {
            // Who made the set may have died before it could say so: then the last word is about the set before.
            match conditions::find(all, PROGRESSING).is_some_and(|said| said.message != done.message) {
                true => conditions::replace(all, done),
                false => conditions::set(all, done),
            }
        } else if status.replicas == status.updated_replicas && self.has_reason(COMPLETE) {
            // No rollout is under way: pods come and go.
        } else if self.gets_on(status) {
            // The time of the last progress is what the deadline counts from.
            conditions::replace(all, say(State::True, UPDATED, "is progressing."));
        } else if self.is_timed_out() {
            conditions::set(all, say(State::False, TIMED_OUT, "has timed out progressing."));
        }
    }

    /// When to look whether the rollout still gets on, if this is what is said now.
    pub fn next_look(&self, status: &DeploymentStatus) -> Option<Timestamp> {
        let condition = conditions::find(status.conditions.as_deref().unwrap_or_default(), PROGRESSING)?;
        let is_over = [TIMED_OUT, COMPLETE].map(Some).contains(&condition.reason.as_deref());
        if is_over || self.is_complete(status) {
            return None;
        }
        // A second later, for times in conditions are whole seconds.
        self.due(condition.last_update_time.as_ref()?.0)?.checked_add(SignedDuration::from_secs(1)).ok()
    }

    fn is_complete(&self, status: &DeploymentStatus) -> bool {
        let counts = [status.updated_replicas, status.replicas, status.available_replicas];
        counts.iter().all(|count| i64::from(count.unwrap_or(0)) == self.bounds.replicas)
            && status.observed_generation.unwrap_or(0) >= self.deployment.metadata.generation.unwrap_or(0)
    }

    fn gets_on(&self, status: &DeploymentStatus) -> bool {
        let count = |count: Option<i32>| count.unwrap_or(0);
        let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
        let said = &self.said;
        count(status.updated_replicas) > count(said.updated_replicas)
            || old(status) < old(said)
            || count(status.ready_replicas) > count(said.ready_replicas)
            || count(status.available_replicas) > count(said.available_replicas)
    }

    fn is_timed_out(&self) -> bool {
        let Some(condition) = conditions::find(self.conditions(), PROGRESSING) else { return false };
        match condition.reason.as_deref() {
            // The last rollout is over, and nobody has noted the next one yet.
            Some(COMPLETE) => false,
            Some(TIMED_OUT) => true,
            _ => {
                let last = condition.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
                self.due(last).is_some_and(|due| due < self.now)
            }
        }
    }

    fn due(&self, last: Timestamp) -> Option<Timestamp> {
        last.checked_add(SignedDuration::from_secs(i64::from(self.deadline()?))).ok()
    }

    /// How long a rollout may take without progress, in seconds; none for ever.
    fn deadline(&self) -> Option<i32> {
        let spec = self.deployment.spec.as_ref()?;
        spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
    }

    fn conditions(&self) -> &[DeploymentCondition] {
        self.said.conditions.as_deref().unwrap_or_default()
    }

    fn has_reason(&self, reason: &str) -> bool {
        conditions::has_reason(self.conditions(), PROGRESSING, reason)
    }

    fn progress(&mut self, state: State, reason: &str, message: String) {
        let condition = conditions::new(PROGRESSING, state, reason, message, self.now);
        conditions::set(self.said.conditions.get_or_insert_default(), condition);
    }
}

/// Whether two statuses say the same: what is absent is zero or empty.
pub fn is_same(one: &DeploymentStatus, other: &DeploymentStatus) -> bool {
    let plain = |status: &DeploymentStatus| DeploymentStatus {
        observed_generation: Some(status.observed_generation.unwrap_or(0)),
        replicas: some(status.replicas.unwrap_or(0).into()),
        updated_replicas: some(status.updated_replicas.unwrap_or(0).into()),
        ready_replicas: some(status.ready_replicas.unwrap_or(0).into()),
        available_replicas: some(status.available_replicas.unwrap_or(0).into()),
        unavailable_replicas: some(status.unavailable_replicas.unwrap_or(0).into()),
        conditions: Some(status.conditions.clone().unwrap_or_default()),
        ..status.clone()
    };
    plain(one) == plain(other)
}

/// How many pods of all sets are about to go; none if a set doesn't say.
fn terminating(family: &Family) -> Option<i32> {
    let statuses = family.all().filter_map(|member| member.set.status.as_ref());
    let seen = statuses.filter(|status| {
        // A set that its controller has not seen yet has none.
        status.observed_generation.unwrap_or(0) != 0 || status.terminating_replicas.is_some()
    });
    seen.map(|status| status.terminating_replicas).try_fold(0_i32, |sum, count| Some(sum.saturating_add(count?)))
}

/// Zero and absent are the same on the wire; below zero there is nothing.
fn some(count: i64) -> Option<i32> {
    Some(i32::try_from(count.max(0)).unwrap_or(i32::MAX)).filter(|count| *count != 0)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
