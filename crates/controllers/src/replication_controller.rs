//! ReplicationControllers, the older twins of ReplicaSets: the same controller under other names.

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use setpoint_api::labels::{Selector, SelectorError};
use setpoint_runtime::manager::ManagerError;

use crate::replica_set::{self, Replicated};
use crate::{Wiring, selector};

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    replica_set::add_for::<ReplicationController>(wiring, "replicationcontroller-controller")
}

impl Replicated for ReplicationController {
    const COUNTS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    /// Labels that must be equal; without any it selects nothing, for everything would be too much.
    fn selector(&self) -> Result<Selector, SelectorError> {
        let labels = self.spec.as_ref().and_then(|spec| spec.selector.clone()).filter(|labels| !labels.is_empty());
        selector::read(
            labels.map(|labels| LabelSelector { match_labels: Some(labels), match_expressions: None }).as_ref(),
        )
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let conditions = status.conditions.map(|conditions| conditions.into_iter().map(set_condition).collect());
        ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions,
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let conditions = status.conditions.map(|conditions| conditions.into_iter().map(own_condition).collect());
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions,
        };
        Self { status: Some(status), ..self.clone() }
    }
}

fn set_condition(condition: ReplicationControllerCondition) -> ReplicaSetCondition {
    let ReplicationControllerCondition { last_transition_time, message, reason, status, type_ } = condition;
    ReplicaSetCondition { last_transition_time, message, reason, status, type_ }
}

fn own_condition(condition: ReplicaSetCondition) -> ReplicationControllerCondition {
    let ReplicaSetCondition { last_transition_time, message, reason, status, type_ } = condition;
    ReplicationControllerCondition { last_transition_time, message, reason, status, type_ }
}
