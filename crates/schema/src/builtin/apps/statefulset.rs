//! StatefulSet: pods with a name and a disk of their own, made and replaced in order.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{BadValue, name};

use super::super::go_value;
use super::super::int_or_percent::{amount, validate_at_most_whole, validate_non_negative, validate_positive};
use super::claim_templates::{claim_warnings, default_claims, template_with_volumes, validate_claims};
use super::replicas::{validate_collisions, validate_counts, validate_parts};
use super::workload;
use crate::behaviour::{Behaviour, Context, Generation, ScalePaths, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

/// What may change after creation.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

const IMMUTABLE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
     'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

const NEGATIVE_HISTORY: &str =
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";

const COUNTS: [&str; 7] = [
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "observedGeneration",
    "collisionCount",
];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Ready", "string", |object, _| workload::share(object, "readyReplicas"))
        .about("Number of the pod with ready state"),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
];

/// The decisions of StatefulSet.
#[derive(Debug)]
pub struct StatefulSet;

impl Behaviour for StatefulSet {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        workload::default_template(spec);
        default_claims(spec);
        spec.default_to("podManagementPolicy", "OrderedReady");
        let strategy = spec.ensure("updateStrategy");
        if strategy.text("type").is_empty() {
            strategy.set("type", "RollingUpdate");
            strategy.ensure("rollingUpdate");
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.child("rollingUpdate")
        {
            rolling.fill("partition", 0);
        }
        let retention = spec.ensure("persistentVolumeClaimRetentionPolicy");
        retention.default_to("whenDeleted", "Retain");
        retention.default_to("whenScaled", "Retain");
        spec.fill("replicas", 1);
        spec.fill("revisionHistoryLimit", 10);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        drop_max_unavailable(object, None);
        workload::drop_disabled_fields(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        drop_max_unavailable(new, Some(old));
        workload::drop_disabled_fields(new, Some(old));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_spec(&spec, &Rules { old: None, new_object: true, template: true }, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        let (new, old) = (new.get("spec"), old.get("spec"));
        let mut before = Errors::new();
        validate_spec(&old, &Rules { old: Some(&old), new_object: false, template: true }, &mut before);
        let rules = Rules { old: Some(&old), new_object: false, template: before.is_empty() };
        validate_spec(&new, &rules, errs);
        let mut allowed = new.json().clone();
        for field in MUTABLE {
            allowed.set_or_remove(field, old.json().get(field).cloned());
        }
        if !new.with_value(&allowed).same(&old) {
            errs.forbidden(&new, IMMUTABLE);
        }
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let status = new.get("status");
        validate_counts(&status, &COUNTS, errs);
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        validate_parts(&status, &parts, "cannot be greater than status.readyReplicas", errs);
        metadata::validate_update(new, old, errs);
        validate_collisions(new, old, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let mut warnings = workload::template_warnings(new, old);
        warnings.extend(claim_warnings(&new.get("spec"), old.is_some()));
        if new.get("spec").int("revisionHistoryLimit").unwrap_or(0) < 0 {
            warnings.push(NEGATIVE_HISTORY.to_owned());
        }
        warnings
    }

    fn name_rule(&self) -> NameRule {
        NameRule::LABEL
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    fn scale(&self) -> Option<ScalePaths> {
        Some(workload::scale_paths())
    }
}

/// What is checked, and against what.
struct Rules<'a, 'b> {
    /// The spec that is stored.
    old: Option<&'a Node<'b>>,
    /// A new object; what can't change later is checked only then.
    new_object: bool,
    /// Whether the template of pods is checked: not if the stored object is bad already.
    template: bool,
}

/// The feature is switched off: the field goes, unless it is in use.
fn drop_max_unavailable(new: &mut Value, old: Option<&Value>) {
    let way = ["spec", "updateStrategy", "rollingUpdate"];
    let in_use = |old: &Value| old.find(&way).is_some_and(|rolling| rolling.has("maxUnavailable"));
    if !old.is_some_and(in_use)
        && let Some(rolling) = new.find_mut(&way)
    {
        rolling.remove("maxUnavailable");
    }
}

fn validate_spec(spec: &Node<'_>, rules: &Rules<'_, '_>, errs: &mut Errors) {
    let management = spec.get("podManagementPolicy");
    match management.as_str() {
        "" => errs.required(&management, ""),
        "OrderedReady" | "Parallel" => {}
        other => errs.invalid(&management, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    validate_strategy(&spec.get("updateStrategy"), errs);
    validate_retention(&spec.get("persistentVolumeClaimRetentionPolicy"), errs);
    if rules.new_object {
        validate_claims(spec, errs);
    }
    validate_non_negative(&spec.get("replicas"), errs);
    validate_non_negative(&spec.get("minReadySeconds"), errs);
    validate_non_negative(&spec.get("ordinals").get("start"), errs);
    let service = spec.str("serviceName");
    if rules.new_object && !service.is_empty() {
        errs.invalid_each(&spec.get("serviceName"), service, name::dns1123_label(service));
    }
    workload::validate_selector(spec, "statefulset", errs);
    if workload::selector_is_sound(spec, "", errs) {
        workload::validate_match(spec, errs);
        validate_template(spec, rules, errs);
    }
    workload::validate_endless(&spec.get("template"), "StatefulSet", errs);
}

fn validate_template(spec: &Node<'_>, rules: &Rules<'_, '_>, errs: &mut Errors) {
    let template = spec.get("template");
    if rules.template {
        let checked = template_with_volumes(spec.json());
        let old = rules.old.map(|old| old.get("template"));
        workload::validate_template(&template.with_value(&checked), old.as_ref(), errs);
    }
    // Upstream looks at both once more, under these paths.
    let metadata = template.get("metadata");
    let path = template.path();
    metadata::validate_labels(&metadata.get("labels").at(format!("{path}.labels")), errs);
    metadata::validate_annotations(&metadata.get("annotations").at(format!("{path}.annotations")), errs);
}

fn validate_strategy(strategy: &Node<'_>, errs: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str("type") {
        "" => errs.required(strategy, ""),
        "OnDelete" if rolling.is_set() => {
            let shown = BadValue::Json(rolling_shown(&rolling));
            errs.invalid(&rolling, shown, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "RollingUpdate" if rolling.is_set() => validate_rolling(&rolling, errs),
        "OnDelete" | "RollingUpdate" => {}
        other => {
            let shown = go_value::structure([
                ("Type", go_value::scalar(Some(&json!(other)))),
                ("RollingUpdate", if rolling.is_set() { rolling_shown(&rolling) } else { "null".to_owned() }),
            ]);
            errs.invalid(strategy, BadValue::Json(shown), "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn rolling_shown(rolling: &Node<'_>) -> String {
    go_value::structure([
        ("Partition", rolling.int("partition").unwrap_or(0).to_string()),
        ("MaxUnavailable", go_value::scalar(rolling.get("maxUnavailable").value())),
    ])
}

fn validate_rolling(rolling: &Node<'_>, errs: &mut Errors) {
    validate_non_negative(&rolling.get("partition"), errs);
    let unavailable = rolling.get("maxUnavailable");
    if unavailable.is_set() {
        validate_positive(&unavailable, errs);
        if amount(&unavailable) == 0 {
            errs.invalid(&unavailable, BadValue::json(unavailable.json()), "cannot be 0");
        }
        validate_at_most_whole(&unavailable, errs);
    }
}

fn validate_retention(policy: &Node<'_>, errs: &mut Errors) {
    for at in [policy.get("whenDeleted"), policy.get("whenScaled")] {
        if policy.is_set() && !matches!(at.as_str(), "Retain" | "Delete") {
            errs.not_supported(&at, at.as_str(), &["Retain", "Delete"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, update_fails, warnings};
    use super::*;

    const API: &str = "apps/v1";

    fn set(more: Value) -> Value {
        let template = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}], "restartPolicy": "Always"},
        });
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template, "serviceName": "s"});
        for (name, value) in more.as_object().unwrap() {
            spec.set(name, value.clone());
        }
        json!({"metadata": {"name": "s"}, "spec": spec})
    }

    #[test]
    fn a_set_goes_in_order_unless_said() {
        let object =
            create(API, "statefulsets", set(json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}})));
        let spec = &object["spec"];
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        assert_eq!(spec["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
        assert_eq!(
            spec["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
    }

    #[test]
    fn strategies_are_consistent() {
        for (spec, expected) in [
            (
                json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}),
                "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: \
                 only allowed for updateStrategy 'RollingUpdate'",
            ),
            (
                json!({"updateStrategy": {"type": "X"}}),
                "spec.updateStrategy: Invalid value: {\"Type\":\"X\",\"RollingUpdate\":null}: \
                 must be 'RollingUpdate' or 'OnDelete'",
            ),
            (
                json!({"podManagementPolicy": "Random"}),
                "spec.podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'",
            ),
        ] {
            create_fails(API, "statefulsets", set(spec), expected);
        }
    }

    #[test]
    fn most_of_the_spec_stays() {
        update_fails(
            API,
            "statefulsets",
            set(json!({})),
            set(json!({"serviceName": "t"})),
            &format!("spec: Forbidden: {IMMUTABLE}"),
        );
    }

    #[test]
    fn a_negative_history_is_for_ever() {
        assert_eq!(warnings(API, "statefulsets", set(json!({"revisionHistoryLimit": -1}))), [NEGATIVE_HISTORY]);
    }
}
