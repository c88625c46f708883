//! Facts about claims and volumes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn claim_with(annotations: Value, spec: Value) -> PersistentVolumeClaim {
    let metadata = json!({"namespace": "a", "name": "c", "uid": "u", "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn volume_with(annotations: Value, spec: Value, phase: &str) -> Arc<PersistentVolume> {
    let mut full = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
    full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "v", "annotations": annotations});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": full, "status": {"phase": phase}})).unwrap())
}

fn reference(name: &str, uid: &str) -> Value {
    json!({"namespace": "a", "name": name, "uid": uid})
}

fn check_claim(given: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>], class: Option<Value>, expected: &str) {
    let class: Option<StorageClass> = class.map(|class| serde_json::from_value(class).unwrap());
    let around = Surroundings { volumes, class: class.as_ref(), default_class: None, consumers: Vec::new() };
    let step = match claim(given, &around) {
        ClaimStep::Wait(say) => format!("wait {}", say.map_or("", |say| say.reason)),
        ClaimStep::Lose(say) => format!("lose {}", say.reason),
        ClaimStep::Refuse(say) => format!("refuse {}", say.message),
        other => format!("{other:?}"),
    };
    assert_eq!(step, expected, "{given:?}");
}

#[test]
fn an_unbound_claim_takes_what_fits_or_waits() {
    let asks = |more: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim_with(json!({}), spec)
    };
    let free = volume_with(json!({}), json!({}), "Available");
    let taken = volume_with(json!({}), json!({"claimRef": reference("other", "o")}), "Bound");
    let class = |provisioner: &str, mode: &str| {
        Some(json!({"metadata": {"name": "k"}, "provisioner": provisioner, "volumeBindingMode": mode}))
    };
    check_claim(&asks(json!({})), std::slice::from_ref(&free), None, "Bind(\"v\")");
    check_claim(&asks(json!({})), std::slice::from_ref(&taken), None, "wait FailedBinding");
    check_claim(&asks(json!({"volumeName": "v"})), std::slice::from_ref(&free), None, "Bind(\"v\")");
    check_claim(&asks(json!({"volumeName": "v"})), std::slice::from_ref(&taken), None, "wait FailedBinding");
    check_claim(
        &asks(json!({"volumeName": "v", "resources": {"requests": {"storage": "2Gi"}}})),
        &[free],
        None,
        "wait VolumeMismatch",
    );
    check_claim(&asks(json!({"volumeName": "gone"})), &[], None, "wait ");
    let classy = asks(json!({"storageClassName": "k"}));
    check_claim(&classy, &[], None, "refuse storageclass.storage.k8s.io \"k\" not found");
    check_claim(&classy, &[], class("example.com/x", "Immediate"), "Provision(\"example.com/x\")");
    check_claim(&classy, &[], class("example.com/x", "WaitForFirstConsumer"), "wait WaitForFirstConsumer");
    check_claim(
        &classy,
        &[],
        class("kubernetes.io/no-provisioner", "Immediate"),
        "refuse no volume plugin matched name: kubernetes.io/no-provisioner",
    );
    let mut placed = classy;
    placed.metadata.annotations = Some([(SELECTED_NODE.to_owned(), "n".to_owned())].into());
    check_claim(&placed, &[], class("example.com/x", "WaitForFirstConsumer"), "Provision(\"example.com/x\")");
}

#[test]
fn a_claim_without_a_class_gets_the_default_one() {
    let given = claim_with(json!({}), json!({}));
    let around = Surroundings {
        volumes: &[] as &[Arc<PersistentVolume>],
        class: None,
        default_class: Some("k"),
        consumers: Vec::new(),
    };
    assert_eq!(claim(&given, &around), ClaimStep::Classify("k".to_owned()));
    let none = claim_with(json!({}), json!({"storageClassName": ""}));
    assert!(matches!(claim(&none, &around), ClaimStep::Wait(_)), "the empty class is one");
}

#[test]
fn a_bound_claim_that_lost_its_volume_is_lost() {
    let bound = |spec: Value| claim_with(json!({BIND_COMPLETED: "yes"}), spec);
    let by = |uid: &str| volume_with(json!({}), json!({"claimRef": reference("c", uid)}), "Bound");
    check_claim(&bound(json!({})), &[], None, "lose ClaimLost");
    check_claim(&bound(json!({"volumeName": "v"})), &[], None, "lose ClaimLost");
    check_claim(&bound(json!({"volumeName": "v"})), &[by("u")], None, "Bind(\"v\")");
    check_claim(&bound(json!({"volumeName": "v"})), &[by("other")], None, "lose ClaimMisbound");
    check_claim(
        &bound(json!({"volumeName": "v"})),
        &[volume_with(json!({}), json!({}), "Available")],
        None,
        "Bind(\"v\")",
    );
}

#[test]
fn a_volume_follows_its_claim() {
    let made = json!({PROVISIONED_BY: SIMULATED});
    let spec = |policy: &str| json!({"claimRef": reference("c", "u"), "persistentVolumeReclaimPolicy": policy});
    let here = claim_with(json!({}), json!({"volumeName": "v"}));
    let elsewhere = claim_with(json!({}), json!({"volumeName": "w"}));
    let none = json!({});
    let failed =
        |reason, message: &str| VolumeStep::Fail(Say { is_warning: true, reason, message: message.to_owned() });
    let unknown = "error getting deleter volume plugin for volume \"v\": no volume plugin matched";
    for (annotations, spec, phase, claim, step) in [
        (&none, json!({}), "Pending", None, VolumeStep::Phase("Available")),
        (&none, json!({}), "Available", None, VolumeStep::Nothing),
        (&none, json!({"claimRef": {"namespace": "a", "name": "c"}}), "Pending", None, VolumeStep::Phase("Available")),
        (&none, spec("Retain"), "Available", Some(&here), VolumeStep::Phase("Bound")),
        (&none, spec("Retain"), "Bound", Some(&here), VolumeStep::Nothing),
        (&none, spec("Retain"), "Bound", None, VolumeStep::Release),
        (&none, spec("Retain"), "Released", None, VolumeStep::Nothing),
        (&none, spec("Delete"), "Released", None, failed("VolumeFailedDelete", unknown)),
        (&none, spec("Delete"), "Failed", None, VolumeStep::Nothing),
        (
            &none,
            spec("Recycle"),
            "Released",
            None,
            failed("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        ),
        (&made, spec("Delete"), "Released", None, VolumeStep::Delete),
        (&json!({PROVISIONED_BY: "example.com"}), spec("Delete"), "Released", None, VolumeStep::Nothing),
        (&none, spec("Retain"), "Bound", Some(&elsewhere), VolumeStep::Unbind),
        (&made, spec("Delete"), "Bound", Some(&elsewhere), VolumeStep::Release),
    ] {
        let given = volume_with(annotations.clone(), spec.clone(), phase);
        assert_eq!(volume(&given, claim), step, "{spec} {phase}");
    }
}
