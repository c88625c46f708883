//! What people decide while an upgrade is under way: to let a rollout go on, and to agree to an installation in the vehicle.

use futures_util::StreamExt;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{Rollout, VehicleStatus};

use crate::world::{Running, World, flashes, hook, runs, setpoint};

/// Waits until a rollout has come to a phase.
async fn until_phase(world: &World, name: &str, phase: &str) {
    let api: Api<Rollout> = Api::default_namespaced(world.client.clone());
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
    let mut events = api.watch(&params, "0").await.unwrap().boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(rollout) | WatchEvent::Modified(rollout)) = event.unwrap() else { continue };
        if rollout.status.unwrap_or_default().phase.as_deref() == Some(phase) {
            return;
        }
    }
    panic!("{name} never is {phase}");
}

#[tokio::test]
async fn a_rollout_goes_on_when_somebody_says_so_and_says_what_it_waits_for() {
    let world = World::start(&["up"]).await;
    let kubeconfig = world.server.kubeconfig.to_str().unwrap().to_owned();
    let words = ["fleet", "simulate", "--vehicles", "4", "--speed", "100", "--seed", "7", "--kubeconfig", &kubeconfig];
    let _simulator = Running::start(setpoint(), &words);
    let spec = json!({
        "version": "2.0.0", "hardwareIds": ["sim-1"],
        "artifacts": [{"url": "/v1/firmware/0", "size": 5, "sha256": "0".repeat(64)}],
    });
    let firmware = json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2.0.0"}, "spec": spec});
    world.publish(firmware).await;
    let vehicles = world.vehicles();
    while vehicles.list(&kube::api::ListParams::default()).await.unwrap().items.len() < 4 {}
    // One has to be well for a day, then somebody has to agree.
    let rollout = json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "spring"},
        "spec": {"firmwareRef": {"name": "2.0.0"}, "steps": [{"limit": 1, "soak": "24h"}, {"limit": 2, "approve": true}]},
    });
    let rollouts: Api<Rollout> = Api::default_namespaced(world.client.clone());
    rollouts.create(&PostParams::default(), &serde_json::from_value(rollout).unwrap()).await.unwrap();
    until_phase(&world, "spring", "Soaking").await;
    let said = world.say(&["fleet", "promote", "spring"]);
    assert_eq!(said, "spring goes on from step 1 without the rest of its soak\n");
    until_phase(&world, "spring", "AwaitingApproval").await;
    assert_eq!(world.say(&["fleet", "promote", "spring"]), "spring goes on to step 2\n");
    until_phase(&world, "spring", "Completed").await;
    let why = world.refused(&["fleet", "promote", "spring"]);
    assert!(why.contains("can't promote default/spring: it waits for nobody: it is Completed"), "{why}");
    let spec = rollouts.get("spring").await.unwrap().spec;
    assert_eq!((spec.promoted_step, spec.approved_step), (1, 2));
}

#[tokio::test]
async fn a_vehicle_that_asks_first_says_what_it_is_about_and_installs_once_somebody_agrees() {
    let world = World::start(&["up"]).await;
    let mut more = hook(&world, "true");
    more["factsFile"] = "facts.json".into();
    std::fs::write(world.path("facts.json"), r#"{"parked": true}"#).unwrap();
    world.enrol(&world.hub_url(), more).await;
    let policy = json!({"spec": {"updatePolicy": {"requireConsent": true}}});
    let patch = kube::api::Patch::Merge(policy);
    world.vehicles().patch("v-1", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let mut firmware = world.signed("2.0.0", b"new", &[]);
    firmware["spec"]["notes"] = json!({"purpose": "brakes sooner", "minutes": 12, "lostFunctions": "radio"});
    world.publish(firmware).await;
    let _agent = world.start_agent();
    world.want("2.0.0").await;
    let asks = |status: &VehicleStatus| {
        status
            .conditions
            .iter()
            .any(|said| said.type_ == "Blocked" && said.status == "True" && said.reason == "Consent")
    };
    world.until(asks).await;
    let notice: Value = serde_json::from_slice(&std::fs::read(world.path("vehicle/consent.json")).unwrap()).unwrap();
    let expected = json!({"version": "2.0.0", "purpose": "brakes sooner", "minutes": 12, "lostFunctions": "radio"});
    assert_eq!((notice, flashes(&world)), (expected, 0));
    let why = world.say(&["fleet", "why", "v-1"]);
    assert!(why.contains("Consent"), "{why}");

    std::fs::write(world.path("facts.next"), r#"{"parked": true, "consent": "2.0.0"}"#).unwrap();
    std::fs::rename(world.path("facts.next"), world.path("facts.json")).unwrap();
    world.until(runs("2.0.0")).await;
    assert_eq!(flashes(&world), 1);
    assert!(!world.path("vehicle/consent.json").exists(), "it still asks");
}
