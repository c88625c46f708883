//! What the API takes of each kind, and what it says to the rest.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{self, Firmware, Rollout, Vehicle};
use setpoint_testkit::ControlPlane;

pub fn firmware(version: &str) -> Value {
    let image = json!({"url": format!("https://firmware.example/{version}"), "size": 1000, "sha256": "a".repeat(64)});
    let spec = json!({"version": version, "hardwareIds": ["ecu-1"], "artifacts": [image]});
    json!({"metadata": {"name": kinds::firmware_name(version)}, "spec": spec})
}

async fn plane() -> ControlPlane {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    plane
}

fn api<K: Resource<DynamicType = ()>>(client: Client) -> Api<DynamicObject> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    Api::default_namespaced_with(client, &resource)
}

async fn create<K: Resource<DynamicType = ()>>(plane: &ControlPlane, object: Value) -> Result<Value, String> {
    make::<K>(plane, object, &PostParams::default()).await
}

async fn make<K: Resource<DynamicType = ()>>(
    plane: &ControlPlane,
    mut object: Value,
    params: &PostParams,
) -> Result<Value, String> {
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    let object = serde_json::from_value(object).unwrap();
    let made = api::<K>(plane.client()).create(params, &object).await;
    made.map(|made| serde_json::to_value(made).unwrap()).map_err(|error| error.to_string())
}

/// Creates an object without keeping it, and compares what the API answers: the end of it.
async fn check<K: Resource<DynamicType = ()>>(plane: &ControlPlane, object: Value, expected: &str) {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let answer = make::<K>(plane, object.clone(), &params).await.map_or_else(|error| error, |_| "created".to_owned());
    assert!(answer.contains(expected), "{object}\n  says {answer}\n  instead of {expected}");
}

fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

#[tokio::test(start_paused = true)]
async fn firmware_says_what_is_wrong_with_it() {
    let plane = plane().await;
    let good = firmware("2.1.0+HW_b");
    check::<Firmware>(&plane, good.clone(), "created").await;
    check::<Firmware>(&plane, changed(good.clone(), "/metadata/name", json!("other")), "the name must be the version")
        .await;
    check::<Firmware>(&plane, changed(good.clone(), "/spec/version", json!("-1")), "should match").await;
    check::<Firmware>(&plane, changed(good.clone(), "/spec/artifacts", json!([])), "should have at least 1 items")
        .await;
    check::<Firmware>(&plane, changed(good.clone(), "/spec/artifacts/0/sha256", json!("abc")), "should match").await;
    let twice = json!([good["spec"]["artifacts"][0], good["spec"]["artifacts"][0]]);
    check::<Firmware>(&plane, changed(good, "/spec/artifacts", twice), "at most 1 item").await;
}

#[tokio::test(start_paused = true)]
async fn a_firmware_never_changes() {
    let plane = plane().await;
    create::<Firmware>(&plane, firmware("1.0")).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"releaseCounter": 7}}));
    let answer = api::<Firmware>(plane.client()).patch("1.0", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(answer.to_string().contains("a firmware never changes: make another one"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn windows_versions_and_shares_have_a_form() {
    let plane = plane().await;
    let vehicle = |field: &str, value: Value| {
        let vehicle = json!({"metadata": {"name": "v"}, "spec": {"hardwareId": "ecu-1", "updatePolicy": {}}});
        changed(vehicle, field, value)
    };
    for good in ["02:00-04:00", "Sat,Sun 22:00-05:00 Europe/Berlin", "Mon-Fri 00:00-24:00 UTC", "01:00-02:00 Etc/GMT+5"]
    {
        check::<Vehicle>(&plane, vehicle("/spec/updatePolicy/installWindow", json!(good)), "created").await;
    }
    for bad in ["2:00-04:00", "25:00-26:00", "night", "Monday 02:00-04:00", "02:00-04:00 "] {
        check::<Vehicle>(&plane, vehicle("/spec/updatePolicy/installWindow", json!(bad)), "should match").await;
    }
    check::<Vehicle>(&plane, vehicle("/spec/firmwareVersion", json!("1.0 beta")), "should match").await;
    check::<Vehicle>(&plane, vehicle("/spec/hardwareId", json!("")), "at least 1 chars").await;
    check::<Vehicle>(&plane, vehicle("/spec/updatePolicy/minBattery", json!(101)), "less than or equal to 100").await;
    let rollout = |limit: Value| json!({"metadata": {"name": "r"}, "spec": {"firmwareRef": {"name": "1.0"}, "steps": [{"limit": limit}]}});
    for good in [json!(3), json!("10%"), json!("100%")] {
        check::<Rollout>(&plane, rollout(good), "created").await;
    }
    for (bad, why) in
        [(json!("10"), "should match"), (json!("101%"), "should match"), (json!(-1), "greater than or equal to 0")]
    {
        check::<Rollout>(&plane, rollout(bad), why).await;
    }
}

#[tokio::test(start_paused = true)]
async fn defaults_are_filled_in_and_status_is_not_the_users() {
    let plane = plane().await;
    let vehicle = json!({"metadata": {"name": "v"}, "spec": {"hardwareId": "ecu-1"}, "status": {"phase": "UpToDate"}});
    let made = create::<Vehicle>(&plane, vehicle).await.unwrap();
    assert_eq!(made["spec"]["updatePolicy"]["requireConsent"], false);
    assert_eq!(made.get("status"), None);
    let made =
        create::<Rollout>(&plane, json!({"metadata": {"name": "r"}, "spec": {"firmwareRef": {"name": "1.0"}}})).await;
    let spec = &made.unwrap()["spec"];
    let found = [
        &spec["maxConcurrent"],
        &spec["maxFailures"],
        &spec["successThreshold"],
        &spec["onFailure"],
        &spec["offlineTTL"],
    ];
    assert_eq!(found, [&json!(100), &json!("5%"), &json!(95), &json!("Pause"), &json!("168h")]);
}

#[tokio::test(start_paused = true)]
async fn installing_again_changes_nothing() {
    let plane = plane().await;
    let versions = || {
        let definitions = plane.state().objects("apiextensions.k8s.io", "customresourcedefinitions");
        let roles = plane.state().objects("rbac.authorization.k8s.io", "clusterroles");
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        definitions.iter().chain(&roles).map(version).collect::<Vec<_>>()
    };
    let before = versions();
    kinds::install(&plane.client()).await.unwrap();
    assert_eq!(versions(), before);
}
