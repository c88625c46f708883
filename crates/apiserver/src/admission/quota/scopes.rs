//! Which objects a quota with scopes means.

use serde_json::Value;
use setpoint_schema::Edit;

use crate::admission::pod_resources::items;

/// Whether an object is one that all scopes of a quota mean. Kinds without scopes are meant by quotas without any.
pub(super) fn all_match(quota: &Value, object: &Value, is_in: fn(&Value, &Scope<'_>) -> bool) -> bool {
    let spec = &quota["spec"];
    let plain = items(spec, "scopes").filter_map(Value::as_str);
    let plain = plain.map(|name| Scope { name, operator: "Exists", values: &Value::Null });
    let selected = items(&spec["scopeSelector"], "matchExpressions").map(|expression| Scope {
        name: expression.text("scopeName"),
        operator: expression.text("operator"),
        values: &expression["values"],
    });
    plain.chain(selected).all(|scope| is_in(object, &scope))
}

/// One scope of a quota.
pub(super) struct Scope<'q> {
    name: &'q str,
    operator: &'q str,
    values: &'q Value,
}

impl Scope<'_> {
    /// Whether one of these names is selected; there may be none.
    fn selects(&self, names: &[&str]) -> bool {
        let listed = |name: &str| self.values.as_array().is_some_and(|values| values.iter().any(|value| value == name));
        match self.operator {
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            "In" => names.iter().any(|name| listed(name)),
            "NotIn" => names.is_empty() || names.iter().any(|name| !listed(name)),
            _ => false,
        }
    }
}

pub(super) fn of_nothing(_: &Value, _: &Scope<'_>) -> bool {
    false
}

pub(super) fn of_pod(pod: &Value, scope: &Scope<'_>) -> bool {
    let best_effort = || pod["status"].text("qosClass") == "BestEffort";
    match scope.name {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => scope.selects(&given(&[&pod["spec"]["priorityClassName"]])),
        "CrossNamespacePodAffinity" => crosses_namespaces(&pod["spec"]["affinity"]),
        _ => false,
    }
}

pub(super) fn of_claim(claim: &Value, scope: &Scope<'_>) -> bool {
    scope.name == "VolumeAttributesClass" && scope.selects(&attributes_classes(claim))
}

/// A pod with a deadline ends by itself.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["spec"].number("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

/// The classes that a claim has, or is about to have.
pub(super) fn attributes_classes(claim: &Value) -> Vec<&str> {
    let status = &claim["status"];
    let target = &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"];
    given(&[&claim["spec"]["volumeAttributesClassName"], &status["currentVolumeAttributesClassName"], target])
}

/// Texts that are not empty, each once.
fn given<'v>(values: &[&'v Value]) -> Vec<&'v str> {
    let mut texts: Vec<&str> = values.iter().filter_map(|v| v.as_str()).filter(|text| !text.is_empty()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let terms = ["podAffinity", "podAntiAffinity"].into_iter().flat_map(|side| {
        let required = items(&affinity[side], "requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = items(&affinity[side], "preferredDuringSchedulingIgnoredDuringExecution");
        required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"]))
    });
    let mut terms = terms;
    terms.any(|term| items(term, "namespaces").next().is_some() || term.has("namespaceSelector"))
}
