//! The conditions of a deployment.

use k8s_openapi::api::apps::v1::{DeploymentCondition, ReplicaSetCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::conditions::State;

pub const AVAILABLE: &str = "Available";
pub const PROGRESSING: &str = "Progressing";
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of [`PROGRESSING`].
pub const CREATED: &str = "NewReplicaSetCreated";
pub const FOUND: &str = "FoundNewReplicaSet";
pub const UPDATED: &str = "ReplicaSetUpdated";
pub const COMPLETE: &str = "NewReplicaSetAvailable";
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub const CREATE_FAILED: &str = "ReplicaSetCreateError";
pub const PAUSED: &str = "DeploymentPaused";
pub const RESUMED: &str = "DeploymentResumed";

pub type Conditions = Vec<DeploymentCondition>;

/// The condition of a type.
pub fn find<'a>(conditions: &'a [DeploymentCondition], kind: &str) -> Option<&'a DeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of a type has a reason.
pub fn has_reason(conditions: &[DeploymentCondition], kind: &str, reason: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.reason.as_deref() == Some(reason))
}

/// A condition that holds from now on.
pub fn new(kind: &str, state: State, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    DeploymentCondition {
        type_: kind.to_owned(),
        status: state.as_str().to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    }
}

/// The failure of a set as one of its deployment.
pub fn of_set(condition: &ReplicaSetCondition) -> DeploymentCondition {
    DeploymentCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_update_time: condition.last_transition_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
    }
}

/// Puts a condition in its place. One with the same status and reason stays as it is.
pub fn set(conditions: &mut Conditions, new: DeploymentCondition) {
    if find(conditions, &new.type_).is_some_and(|old| old.status == new.status && old.reason == new.reason) {
        return;
    }
    replace(conditions, new);
}

/// Puts a condition in its place even if it says the same: it was updated now.
pub fn replace(conditions: &mut Conditions, mut new: DeploymentCondition) {
    if let Some(old) = find(conditions, &new.type_).filter(|old| old.status == new.status) {
        new.last_transition_time = old.last_transition_time.clone();
    }
    remove(conditions, &new.type_);
    conditions.push(new);
}

/// Takes a condition away.
pub fn remove(conditions: &mut Conditions, kind: &str) {
    conditions.retain(|condition| condition.type_ != kind);
}
