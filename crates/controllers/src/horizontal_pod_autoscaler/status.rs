//! What an autoscaler says about itself.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition as Condition};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerStatus, MetricStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub const ABLE: &str = "AbleToScale";
pub const ACTIVE: &str = "ScalingActive";
pub const LIMITED: &str = "ScalingLimited";

/// The status of an autoscaler while it is put together.
pub struct Report {
    old: Option<HorizontalPodAutoscalerStatus>,
    new: HorizontalPodAutoscalerStatus,
    now: Time,
}

impl Report {
    pub fn new(autoscaler: &HorizontalPodAutoscaler, now: Time) -> Report {
        let old = autoscaler.status.clone();
        Report { new: old.clone().unwrap_or_default(), old, now }
    }

    /// Says something about one side of it.
    pub fn say(&mut self, kind: &str, is_so: bool, reason: &str, message: impl Into<String>) {
        let conditions = self.new.conditions.get_or_insert_default();
        let place = conditions.iter().position(|condition| condition.type_ == kind).unwrap_or_else(|| {
            conditions.push(Condition { type_: kind.to_owned(), ..Condition::default() });
            conditions.len() - 1
        });
        let condition = &mut conditions[place];
        let status = if is_so { "True" } else { "False" };
        if condition.status != status {
            condition.last_transition_time = Some(self.now.clone());
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
    }

    /// How many pods there are and should be, and what was measured. Without a wish the last one stays.
    pub fn count(&mut self, current: i32, desired: Option<i32>, metrics: Vec<MetricStatus>) {
        self.new.current_replicas = Some(current);
        self.new.desired_replicas = desired.unwrap_or(self.new.desired_replicas);
        self.new.current_metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
        self.new.observed_generation = None;
    }

    /// The number of pods was changed just now.
    pub fn scaled(&mut self) {
        self.new.last_scale_time = Some(self.now.clone());
    }

    /// What has to be written, if anything has.
    pub fn change(self) -> Option<HorizontalPodAutoscalerStatus> {
        let has = self.old.as_ref().map(plain);
        (has != Some(plain(&self.new))).then_some(self.new)
    }
}

/// A status in which nothing, none and zero are the same.
fn plain(status: &HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus {
    let mut status = status.clone();
    status.conditions.get_or_insert_default();
    status.current_metrics = status.current_metrics.filter(|metrics| !metrics.is_empty());
    status.current_replicas.get_or_insert(0);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let mut autoscaler = HorizontalPodAutoscaler::default();
        let report = |autoscaler: &HorizontalPodAutoscaler, is_able| {
            let mut report = Report::new(autoscaler, now.clone());
            report.say(ABLE, is_able, "Any", "said");
            report.count(1, Some(1), Vec::new());
            report.change()
        };
        autoscaler.status = report(&autoscaler, true);
        assert!(autoscaler.status.is_some());
        assert_eq!(report(&autoscaler, true), None);
        let other = report(&autoscaler, false).unwrap();
        assert_eq!(other.conditions.unwrap()[0].last_transition_time, Some(now));
    }
}
