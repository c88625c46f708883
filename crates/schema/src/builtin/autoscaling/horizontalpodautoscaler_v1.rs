//! HorizontalPodAutoscaler in version 1: the same objects as version 2, whose rules they follow, in an older dress.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::conversion::{drop_annotations, to_v1, to_v2};
use super::horizontalpodautoscaler::{COLUMNS as V2, HorizontalPodAutoscaler};
use super::targets::targets;
use crate::behaviour::{Behaviour, Context};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::facts::kind_type;
use crate::kind::Kind;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    V2[0],
    V2[1],
    Column::new("Targets", "string", |object, _| json!(targets(&to_v2(object))))
        .about_field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics"),
    V2[3],
    V2[4],
    V2[5],
    V2[6],
];

/// The decisions of HorizontalPodAutoscaler in version 1.
#[derive(Debug)]
pub struct HorizontalPodAutoscalerV1;

impl Behaviour for HorizontalPodAutoscalerV1 {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        if !spec.has("minReplicas") {
            spec.set("minReplicas", 1);
        }
        *object = to_v1(&to_v2(object));
    }

    fn prepare_create(&self, object: &mut Value, context: &Context) {
        let mut v2 = to_v2(object);
        HorizontalPodAutoscaler.prepare_create(&mut v2, context);
        *object = to_v1(&v2);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, context: &Context) {
        let (mut v2, old) = (to_v2(new), to_v2(old));
        HorizontalPodAutoscaler.prepare_update(&mut v2, &old, context);
        *new = to_v1(&v2);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, context: &Context) {
        let (mut v2, old) = (to_v2(new), to_v2(old));
        HorizontalPodAutoscaler.prepare_status_update(&mut v2, &old, context);
        *new = to_v1(&v2);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        let v2 = to_v2(object.json());
        HorizontalPodAutoscaler.check_create(kind, &node(&v2, object), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let (new_v2, old_v2) = (to_v2(new.json()), to_v2(old.json()));
        HorizontalPodAutoscaler.check_update(kind, &node(&new_v2, new), &node(&old_v2, old), errs);
    }

    fn check_status_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let (new_v2, old_v2) = (to_v2(new.json()), to_v2(old.json()));
        HorizontalPodAutoscaler.check_status_update(kind, &node(&new_v2, new), &node(&old_v2, old), errs);
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        HorizontalPodAutoscaler.reset_fields(subresource)
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    /// Tables show the metadata of version 2, which needs no annotations.
    fn row_metadata(&self, metadata: &mut Value) {
        drop_annotations(metadata);
    }

    fn stored_version(&self) -> Option<&'static str> {
        Some("v2")
    }

    fn to_stored(&self, object: &mut Value) {
        *object = to_v2(object);
    }

    fn read_stored(&self, object: &mut Value) {
        *object = to_v1(object);
    }
}

/// A cursor over the object in version 2; `fallback` is never needed, since the type is built in.
fn node<'a>(v2: &'a Value, fallback: &Node<'a>) -> Node<'a> {
    kind_type("autoscaling/v2", "HorizontalPodAutoscaler").map_or_else(|| fallback.clone(), |ty| Node::root(v2, ty))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, try_update};
    use super::*;

    const API: &str = "autoscaling/v1";
    const PLURAL: &str = "horizontalpodautoscalers";

    fn scaler(percent: Value) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let spec = json!({"scaleTargetRef": target, "maxReplicas": 5, "targetCPUUtilizationPercentage": percent});
        json!({"metadata": {"name": "h"}, "spec": spec})
    }

    #[test]
    fn cpu_is_aimed_for_unless_said() {
        let object = create(API, PLURAL, scaler(Value::Null));
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        let row = json!(["h", "Deployment/d", "cpu: <unknown>/80%", "1", 5, 0, "<unknown>"]);
        assert_eq!(columns(API, PLURAL, &object), row);
    }

    #[test]
    fn complaints_name_the_fields_of_version_2() {
        create_fails(
            API,
            PLURAL,
            scaler(json!(-1)),
            "spec.metrics[0].resource.target.averageUtilization: Invalid value: -1: must be greater than 0",
        );
    }

    #[test]
    fn what_was_measured_belongs_to_the_status() {
        let mut new = scaler(json!(50));
        new["status"] = json!({"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 33});
        let (object, errors) = try_update(API, PLURAL, "status", scaler(json!(80)), new.clone());
        assert_eq!(errors, None);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        assert_eq!(
            object["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/current-metrics"],
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":33,"currentAverageValue":"0"}}]"#
        );
        let (object, _) = try_update(API, PLURAL, "", scaler(json!(80)), new);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(object["metadata"].get("annotations"), None);
    }
}
