//! A plan as the part of a status that the vehicle controller owns.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::plan::Plan;
use crate::kinds::{GROUP, VERSION};
use crate::phase::{Phase, gate};
use crate::view::{Said, VehicleView};

/// Whether the status says what the plan says.
pub fn is_written(vehicle: &VehicleView, plan: &Plan) -> bool {
    let status = &vehicle.status;
    let conditions = &status.conditions;
    let same = |is: Option<&Said>, said: &Words| is.is_some_and(|is| said.is(is));
    let [up_to_date, updating, blocked] = words(plan);
    status.phase == Some(plan.phase)
        && status.observed_generation == vehicle.metadata.generation
        && status.task.as_deref() == plan.task.as_ref()
        && status.retry.as_deref() == plan.retry.as_ref()
        && same(conditions.up_to_date.as_ref(), &up_to_date)
        && same(conditions.updating.as_ref(), &updating)
        && same(conditions.blocked.as_ref(), &blocked)
}

/// What is applied: all that the controller owns, for the version of the object that the plan was made from.
pub fn body(vehicle: &VehicleView, plan: &Plan, now: Timestamp) -> Value {
    let conditions = &vehicle.status.conditions;
    let known = [&conditions.up_to_date, &conditions.updating, &conditions.blocked];
    let conditions: Vec<Condition> =
        words(plan).iter().zip(known).map(|(words, known)| words.condition(known.as_ref(), vehicle, now)).collect();
    let mut status = json!({
        "phase": plan.phase,
        "observedGeneration": vehicle.metadata.generation,
        "conditions": conditions,
    });
    // What isn't named is taken away.
    if let Some(task) = &plan.task {
        status["task"] = json!(task);
    }
    if let Some(retry) = &plan.retry {
        status["retry"] = json!(retry);
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Vehicle",
        "metadata": {
            "name": vehicle.metadata.key.name(),
            "uid": vehicle.metadata.uid,
            "resourceVersion": vehicle.metadata.resource_version,
        },
        "status": status,
    })
}

/// One condition, before it has a time.
struct Words {
    kind: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

impl Words {
    fn is(&self, said: &Said) -> bool {
        (self.holds, &*self.reason, &*self.message) == (said.holds, &*said.reason, &*said.message)
    }

    fn condition(&self, known: Option<&Said>, vehicle: &VehicleView, now: Timestamp) -> Condition {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let since = known.filter(|said| said.holds == self.holds).map_or(now, |said| said.since);
        Condition {
            type_: self.kind.to_owned(),
            status: if self.holds { "True" } else { "False" }.to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            last_transition_time: Time(since),
            observed_generation: Some(vehicle.metadata.generation),
        }
    }
}

fn words(plan: &Plan) -> [Words; 3] {
    let up_to_date = Words {
        kind: "UpToDate",
        holds: plan.phase == Phase::UpToDate,
        reason: plan.phase.word().to_owned(),
        message: plan.message.clone(),
    };
    let updating = match plan.updating {
        Some(stage) => Words {
            kind: "Updating",
            holds: true,
            reason: Phase::of(stage).word().to_owned(),
            message: plan.message.clone(),
        },
        None => Words {
            kind: "Updating",
            holds: false,
            reason: plan.phase.word().to_owned(),
            message: "nothing is being installed".to_owned(),
        },
    };
    let blocked = match &plan.blocked {
        Some((gate, why)) => Words { kind: "Blocked", holds: true, reason: gate.clone(), message: why.clone() },
        None => Words {
            kind: "Blocked",
            holds: false,
            reason: gate::NONE.to_owned(),
            message: "nothing holds it".to_owned(),
        },
    };
    [up_to_date, updating, blocked]
}
