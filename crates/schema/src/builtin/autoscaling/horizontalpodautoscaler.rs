//! HorizontalPodAutoscaler: as many replicas as the load needs. This is version 2, in which objects are kept.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::GroupVersion;
use setpoint_api::name;

use super::super::cells;
use super::super::int_or_percent::validate_non_negative;
use super::metrics::validate_metrics;
use super::targets::targets;
use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::Column;
use crate::decode::{DecodeError, Decoded, decode};
use crate::edit::Edit;
use crate::emptied::Emptied;
use crate::errors::Errors;
use crate::json::Json;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;
use crate::types::TypeRef;

/// The share of CPU to aim for if nothing else is said.
pub(super) const CPU_PERCENT: i64 = 80;

const PERIOD_SECONDS_MAX: i64 = 1800;
const WINDOW_SECONDS_MAX: i64 = 3600;
const SELECT_POLICIES: [&str; 3] = ["Disabled", "Max", "Min"];
const POLICY_TYPES: [&str; 2] = ["Percent", "Pods"];
const DIRECTIONS: [&str; 2] = ["scaleUp", "scaleDown"];

const SPEC: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec";
const STATUS: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus";

pub(super) const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Reference", "string", |object, _| reference(object)).about_field(SPEC, "scaleTargetRef"),
    Column::new("Targets", "string", |object, _| json!(targets(object))).about_field(SPEC, "metrics"),
    Column::new("MinPods", "string", |object, _| min_pods(object)).about_field(SPEC, "minReplicas"),
    Column::new("MaxPods", "string", |object, _| cells::number(object, &["spec", "maxReplicas"]))
        .about_field(SPEC, "maxReplicas"),
    Column::new("Replicas", "string", |object, _| cells::number(object, &["status", "currentReplicas"]))
        .about_field(STATUS, "currentReplicas"),
    Column::AGE,
];

/// The decisions of HorizontalPodAutoscaler.
#[derive(Debug)]
pub struct HorizontalPodAutoscaler;

impl Behaviour for HorizontalPodAutoscaler {
    /// Rules without any policy are a mistake where those that say nothing of policies get the usual ones.
    fn decode(&self, document: Json<'_>, root: TypeRef<'_>) -> Result<Decoded, DecodeError> {
        let mut decoded = decode(document, root)?;
        let is_policies = |one: &Emptied| {
            DIRECTIONS.iter().any(|direction| *one.path() == *format!("spec.behavior.{direction}.policies"))
        };
        for one in decoded.emptied.iter().filter(|one| is_policies(one)) {
            one.restore(&mut decoded.value);
        }
        Ok(decoded)
    }

    fn default(&self, object: &mut Value) {
        super::conversion::drop_annotations(object.ensure("metadata"));
        let spec = object.ensure("spec");
        if !spec.has("minReplicas") {
            spec.set("minReplicas", 1);
        }
        if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.set("metrics", json!([cpu_metric(CPU_PERCENT)]));
        }
        if let Some(behaviour) = spec.child("behavior") {
            let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
            let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
            default_rules(behaviour.ensure("scaleUp"), Some(0), json!([pods, percent]));
            default_rules(behaviour.ensure("scaleDown"), None, json!([percent]));
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        for field in ["currentReplicas", "desiredReplicas"] {
            validate_non_negative(&new.get("status").get(field), errs);
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// What is asked of the `apiVersion` of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiVersionRule {
    /// A group and a version.
    WithGroup,
    /// A version; the group may be the core one.
    Any,
    /// Nothing, because the stored object has it already.
    Unchecked,
}

/// The rules for a kind, a name and a version that name another object.
pub(super) fn validate_reference(reference: &Node<'_>, rule: ApiVersionRule, errs: &mut Errors) {
    for field in ["kind", "name"] {
        match reference.str(field) {
            "" => errs.required(&reference.get(field), ""),
            text => errs.invalid_each(&reference.get(field), text, name::path_segment_name(text)),
        }
    }
    let version = reference.str("apiVersion");
    if let Some(complaint) = api_version_complaint(version, rule) {
        errs.invalid(&reference.get("apiVersion"), version, complaint);
    }
}

/// What is wrong with the `apiVersion` of a reference, if anything.
pub(super) fn api_version_complaint(version: &str, rule: ApiVersionRule) -> Option<String> {
    if rule == ApiVersionRule::Unchecked {
        return None;
    }
    // An empty text is the core group without a version, which only `Any` lets pass.
    let group = match version {
        "" | "/" => String::new(),
        _ => match version.parse::<GroupVersion>() {
            Ok(parsed) => parsed.group.to_string(),
            Err(error) => return Some(error.to_string()),
        },
    };
    (rule == ApiVersionRule::WithGroup && group.is_empty()).then(|| "apiVersion must specify API group".to_owned())
}

/// The metric that aims for a share of CPU.
pub(super) fn cpu_metric(percent: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    })
}

fn default_rules(rules: &mut Value, window_seconds: Option<i64>, policies: Value) {
    if let Some(seconds) = window_seconds
        && !rules.has("stabilizationWindowSeconds")
    {
        rules.set("stabilizationWindowSeconds", seconds);
    }
    if !rules.has("selectPolicy") {
        rules.set("selectPolicy", "Max");
    }
    if !rules.has("policies") {
        rules.set("policies", policies);
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let lowest = if old.is_some_and(|old| old.int("minReplicas") == Some(0)) { 0 } else { 1 };
    let (min, max) = (spec.int("minReplicas"), spec.int("maxReplicas").unwrap_or(0));
    let at_max = spec.get("maxReplicas");
    if let Some(min) = min.filter(|min| *min < lowest) {
        errs.invalid(&spec.get("minReplicas"), min, format!("must be greater than or equal to {lowest}"));
    }
    if max == 0 {
        errs.required(&at_max, "must be set and greater than 0");
    } else if max < 0 {
        errs.invalid(&at_max, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errs.invalid(&at_max, max, "must be greater than or equal to `minReplicas`");
    }
    validate_target(&spec.get("scaleTargetRef"), old, errs);
    validate_metrics(spec, old, errs);
    for direction in DIRECTIONS {
        let rules = spec.get("behavior").get(direction);
        if rules.is_set() {
            validate_rules(&rules, errs);
        }
    }
}

fn validate_target(target: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let same = |old: &Node<'_>| {
        let old = old.get("scaleTargetRef");
        old.str("apiVersion") == target.str("apiVersion") && old.str("kind") == target.str("kind")
    };
    let rule = match target.str("kind") {
        _ if old.is_some_and(same) => ApiVersionRule::Unchecked,
        "ReplicationController" => ApiVersionRule::Any,
        _ => ApiVersionRule::WithGroup,
    };
    validate_reference(target, rule, errs);
}

fn validate_rules(rules: &Node<'_>, errs: &mut Errors) {
    let window = rules.get("stabilizationWindowSeconds");
    let seconds = window.as_int().unwrap_or(0);
    if seconds < 0 {
        errs.invalid(&window, seconds, "must be greater than or equal to zero");
    }
    if seconds > WINDOW_SECONDS_MAX {
        errs.invalid(&window, seconds, format!("must be less than or equal to {WINDOW_SECONDS_MAX}"));
    }
    let select = rules.get("selectPolicy");
    if select.is_set() && !SELECT_POLICIES.contains(&select.as_str()) {
        errs.not_supported(&select, select.as_str(), &SELECT_POLICIES);
    }
    if rules.count("policies") == 0 {
        errs.required(&rules.get("policies"), "must specify at least one Policy");
    }
    for policy in rules.items("policies") {
        validate_policy(&policy, errs);
    }
    if let Some(tolerance) = rules.quantity("tolerance").filter(|tolerance| tolerance.is_negative()) {
        errs.invalid(&rules.get("tolerance"), tolerance.to_string(), "must be greater than or equal to 0");
    }
}

fn validate_policy(policy: &Node<'_>, errs: &mut Errors) {
    if !POLICY_TYPES.contains(&policy.str("type")) {
        errs.not_supported(&policy.get("type"), policy.str("type"), &POLICY_TYPES);
    }
    for field in ["value", "periodSeconds"] {
        let number = policy.int(field).unwrap_or(0);
        if number <= 0 {
            errs.invalid(&policy.get(field), number, "must be greater than zero");
        }
        if field == "periodSeconds" && number > PERIOD_SECONDS_MAX {
            errs.invalid(&policy.get(field), number, format!("must be less than or equal to {PERIOD_SECONDS_MAX}"));
        }
    }
}

fn reference(object: &Value) -> Value {
    let target = object.find(&["spec", "scaleTargetRef"]).unwrap_or(&Value::Null);
    json!(format!("{}/{}", target.text("kind"), target.text("name")))
}

fn min_pods(object: &Value) -> Value {
    json!(object.find(&["spec", "minReplicas"]).map_or_else(|| "<unset>".to_owned(), Value::to_string))
}

#[cfg(test)]
mod tests {
    /// Who gives no policies gets the usual ones; who gives none on purpose has made a mistake.
    #[test]
    fn rules_with_no_policy_at_all_differ_from_those_that_say_nothing_of_policies() {
        let kind = crate::builtin::by_plural("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
        let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        for (rules, expected) in [
            (
                json!({"policies": []}),
                vec!["spec.behavior.scaleDown.policies: Required value: must specify at least one Policy"],
            ),
            (json!({}), vec![]),
            (json!({"policies": null}), vec![]),
        ] {
            let spec = json!({"scaleTargetRef": target, "maxReplicas": 2, "behavior": {"scaleDown": rules}});
            let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "namespace": "n"}, "spec": spec});
            let mut decoded = kind.behaviour.decode(Json::from(object), kind.root_type()).unwrap().value;
            kind.behaviour.default(&mut decoded);
            let found: Vec<String> = kind.check_create(&decoded).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{rules}");
        }
    }

    use super::super::super::testing::{columns, create, create_fails, update};
    use super::*;

    const API: &str = "autoscaling/v2";
    const PLURAL: &str = "horizontalpodautoscalers";

    fn scaler(more: Value) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let mut spec = json!({"scaleTargetRef": target, "maxReplicas": 5});
        for (name, value) in more.as_object().unwrap() {
            spec.set(name, value.clone());
        }
        json!({"metadata": {"name": "h"}, "spec": spec})
    }

    #[test]
    fn without_metrics_cpu_is_aimed_for() {
        let object = create(API, PLURAL, scaler(json!({})));
        assert_eq!(object["spec"]["minReplicas"], 1);
        assert_eq!(object["spec"]["metrics"], json!([cpu_metric(80)]));
        let row = json!(["h", "Deployment/d", "cpu: <unknown>/80%", "1", 5, 0, "<unknown>"]);
        assert_eq!(columns(API, PLURAL, &object), row);
    }

    #[test]
    fn behaviour_is_filled_in_where_there_is_some() {
        let object = create(API, PLURAL, scaler(json!({"behavior": {"scaleDown": {"selectPolicy": "Min"}}})));
        let behaviour = &object["spec"]["behavior"];
        assert_eq!(behaviour["scaleUp"]["stabilizationWindowSeconds"], 0);
        assert_eq!(behaviour["scaleUp"]["policies"].as_array().unwrap().len(), 2);
        assert_eq!(
            behaviour["scaleDown"],
            json!({"selectPolicy": "Min", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
        );
    }

    #[test]
    fn numbers_are_in_order() {
        for (spec, expected) in [
            (
                json!({"maxReplicas": -1, "minReplicas": 1}),
                "[spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1, spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`]",
            ),
            (
                json!({"minReplicas": 6}),
                "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`",
            ),
            (
                json!({"behavior": {"scaleUp": {"policies": []}}}),
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ),
            (
                json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}}),
                "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            ),
        ] {
            create_fails(API, PLURAL, scaler(spec), expected);
        }
    }

    #[test]
    fn a_target_names_its_group_unless_it_did_not_before() {
        let bare = json!({"scaleTargetRef": {"kind": "Deployment", "name": "d"}});
        create_fails(
            API,
            PLURAL,
            scaler(bare),
            "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
        );
        create(API, PLURAL, scaler(json!({"scaleTargetRef": {"kind": "ReplicationController", "name": "d"}})));
    }

    #[test]
    fn annotations_of_other_versions_are_dropped() {
        let mut body = scaler(json!({}));
        body["metadata"]["annotations"] = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]", "a": "b"});
        let object = update(API, PLURAL, scaler(json!({})), body);
        assert_eq!(object["metadata"]["annotations"], json!({"a": "b"}));
    }
}
