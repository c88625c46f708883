//! What the pod failure policy of a Job says about a pod that failed.

use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};

use crate::pod::{Condition, ContainerStatus, Pod};

/// What follows from a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It counts towards the back-off limit.
    Count,
    /// It never happened.
    Ignore,
    /// Its index has failed, whatever is left of the index's limit.
    FailIndex,
    /// The whole Job has failed, with this message.
    FailJob(String),
}

impl Consequence {
    /// Whether the failure counts.
    pub fn counts(&self) -> bool {
        *self != Consequence::Ignore
    }
}

/// What the first rule that matches a failed pod says.
pub fn consequence(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Consequence {
    let rules = policy.map_or(&[][..], |policy| &policy.rules);
    rules.iter().enumerate().find_map(|(at, rule)| verdict(at, rule, pod)).unwrap_or(Consequence::Count)
}

/// A rule that matches but has an action that nobody knows is passed over.
fn verdict(at: usize, rule: &PodFailurePolicyRule, pod: &Pod) -> Option<Consequence> {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let because = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
        (Some(codes), _) => {
            let container = failed_container(pod, codes)?;
            let code = container.state.terminated.as_ref()?.exit_code;
            format!("Container {} for pod {namespace}/{name} failed with exit code {code}", container.name)
        }
        (None, Some(patterns)) => {
            let matches = |condition: &&Condition| {
                patterns.iter().any(|pattern| {
                    pattern.type_ == *condition.kind
                        && pattern.status.as_deref().unwrap_or("True") == &*condition.status
                })
            };
            let condition = pod.status.conditions.iter().find(matches)?;
            format!("Pod {namespace}/{name} has condition {}", condition.kind)
        }
        (None, None) => return None,
    };
    match rule.action.as_str() {
        "Ignore" => Some(Consequence::Ignore),
        "Count" => Some(Consequence::Count),
        "FailIndex" => Some(Consequence::FailIndex),
        "FailJob" => Some(Consequence::FailJob(format!("{because} matching FailJob rule at index {at}"))),
        _ => None,
    }
}

fn failed_container<'a>(pod: &'a Pod, codes: &PodFailurePolicyOnExitCodesRequirement) -> Option<&'a ContainerStatus> {
    let all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let named = all.filter(|status| codes.container_name.as_deref().is_none_or(|name| name == &*status.name));
    named.into_iter().find(|status| {
        let code = status.state.terminated.as_ref().map_or(0, |end| end.exit_code);
        let listed = codes.values.contains(&code);
        code != 0 && (codes.operator == "In" && listed || codes.operator == "NotIn" && !listed)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(rules: Value, expected: Consequence) {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        let status = json!({
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "containerStatuses": [
                {"name": "main", "state": {"terminated": {"exitCode": 42}}},
                {"name": "side", "state": {"terminated": {"exitCode": 0}}}],
            "initContainerStatuses": [{"name": "first", "state": {"terminated": {"exitCode": 3}}}],
        });
        let metadata = json!({"name": "a", "namespace": "shop"});
        let pod = serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap();
        assert_eq!(consequence(Some(&policy), &pod), expected, "{rules}");
    }

    fn on_codes(action: &str, operator: &str, values: &[i32]) -> Value {
        json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check(json!([]), Consequence::Count);
        check(json!([on_codes("Ignore", "In", &[1]), on_codes("FailIndex", "In", &[42])]), Consequence::FailIndex);
        check(json!([on_codes("Count", "In", &[42]), on_codes("Ignore", "In", &[42])]), Consequence::Count);
        check(json!([on_codes("Ignore", "NotIn", &[3, 42])]), Consequence::Count);
        check(json!([on_codes("Ignore", "NotIn", &[42])]), Consequence::Ignore);
        check(json!([on_codes("Melt", "In", &[42]), on_codes("Ignore", "In", &[42])]), Consequence::Ignore);
        let side = json!({"containerName": "side", "operator": "NotIn", "values": [1]});
        check(json!([{"action": "Ignore", "onExitCodes": side}]), Consequence::Count);
    }

    #[test]
    fn a_job_that_fails_says_why() {
        let said = "Container main for pod shop/a failed with exit code 42 matching FailJob rule at index 1";
        let rules = json!([on_codes("Ignore", "In", &[1]), on_codes("FailJob", "In", &[42])]);
        check(rules, Consequence::FailJob(said.to_owned()));
        let said = "Pod shop/a has condition DisruptionTarget matching FailJob rule at index 0";
        let condition = json!([{"type": "DisruptionTarget", "status": "True"}]);
        check(json!([{"action": "FailJob", "onPodConditions": condition}]), Consequence::FailJob(said.to_owned()));
    }
}
