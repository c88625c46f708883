//! What a vehicle refuses to install, and what its status says about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prost::Message;
use serde_json::{Value, json};
use setpoint_edge_agent::Journal;
use setpoint_fleet::kinds::VehicleStatus;

use crate::world::{World, flashes, hook, runs};

/// Where the bytes of a firmware are that the hub hands out.
fn image(world: &World, firmware: &Value) -> std::path::PathBuf {
    world.path("data/firmware").join(firmware["spec"]["artifacts"][0]["sha256"].as_str().unwrap())
}

fn has_failed(version: &str) -> impl Fn(&VehicleStatus) -> bool {
    let version = version.to_owned();
    move |status| {
        let is_about_it = status.task.as_ref().is_some_and(|task| task.firmware_version == version);
        status.phase.as_deref() == Some("Failed") && is_about_it
    }
}

/// One bad firmware after the other, all for the same vehicle, which runs what it had at the end.
#[tokio::test]
async fn what_was_tampered_with_cut_short_expired_downgraded_or_never_released_is_refused_with_its_reason() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), hook(&world, "true")).await;
    world.release("2.0.0", b"good").await;
    let _agent = world.start_agent();
    world.want("2.0.0").await;
    world.until(runs("2.0.0")).await;
    world.say(&["fleet", "keys", "--out", &world.text("strangers"), "--root-keys", "1", "--root-threshold", "1"]);
    let stranger = world.text("strangers/targets.key");

    let of = |version: &str, more: &[&str]| world.signed(version, format!("image of {version}").as_bytes(), more);
    let mut bad: Vec<(&str, Value, &str)> = Vec::new();
    // The bytes.
    let firmware = of("3.0.1", &[]);
    let mut bytes = std::fs::read(image(&world, &firmware)).unwrap();
    bytes[3] ^= 1;
    std::fs::write(image(&world, &firmware), bytes).unwrap();
    bad.push(("3.0.1", firmware, "DigestMismatch"));
    let firmware = of("3.0.2", &[]);
    std::fs::write(image(&world, &firmware), b"image").unwrap();
    bad.push(("3.0.2", firmware, "LengthMismatch"));
    let firmware = of("3.0.3", &[]);
    std::fs::write(image(&world, &firmware), vec![7; 1000]).unwrap();
    bad.push(("3.0.3", firmware, "LengthMismatch"));
    let firmware = of("3.0.4", &[]);
    std::fs::remove_file(image(&world, &firmware)).unwrap();
    bad.push(("3.0.4", firmware, "ArtifactNotFound"));
    // What is said about them.
    let mut firmware = of("3.0.5", &[]);
    let signed = firmware["spec"]["signed"].as_str().unwrap().replace("\"releaseCounter\":2", "\"releaseCounter\":9");
    firmware["spec"]["signed"] = signed.into();
    bad.push(("3.0.5", firmware, "SignatureInvalid"));
    let mut firmware = of("3.0.6", &[]);
    let signed = firmware["spec"]["signed"].as_str().unwrap();
    firmware["spec"]["signed"] = signed[..signed.len() / 2].into();
    bad.push(("3.0.6", firmware, "MetadataMalformed"));
    bad.push(("3.0.7", of("3.0.7", &["--days", "0"]), "MetadataExpired"));
    bad.push(("3.0.8", of("3.0.8", &["--counter", "1"]), "Downgrade"));
    bad.push(("3.0.9", of("3.0.9", &["--key", &stranger]), "ThresholdNotMet"));
    let mut firmware = of("3.0.10", &["--hardware", "tcu-2"]);
    firmware["spec"]["hardwareIds"] = json!(["tcu-1"]);
    bad.push(("3.0.10", firmware, "WrongHardware"));
    // What was released as something else: an older image under a new name, and one that nobody signed.
    let mut firmware = of("3.0.11", &[]);
    firmware["spec"]["artifacts"] = of("3.0.12", &[])["spec"]["artifacts"].clone();
    bad.push(("3.0.11", firmware, "NotReleased"));
    let mut firmware = of("3.0.13", &[]);
    firmware["spec"].as_object_mut().unwrap().remove("signed");
    bad.push(("3.0.13", firmware, "MetadataMalformed"));

    for (version, firmware, reason) in bad {
        world.publish(firmware).await;
        world.want(version).await;
        let status = world.until(has_failed(version)).await.pop().unwrap();
        let retry = status.retry.expect("why it failed");
        assert_eq!(retry.last_reason, reason, "{version}: {}", retry.last_message);
        assert_eq!(retry.next_time, None, "{version} is tried again");
        assert_eq!(status.firmware_version.as_deref(), Some("2.0.0"), "{version}");
        let says = |condition: &Condition| condition.type_ == "UpToDate" && condition.message.contains(reason);
        assert!(status.conditions.iter().any(says), "{version}: {:?}", status.conditions);
    }
    assert_eq!(flashes(&world), 1);
    // Nothing of it is in the way of the next good one.
    world.publish(of("4.0.0", &[])).await;
    world.want("4.0.0").await;
    world.until(runs("4.0.0")).await;
    assert_eq!(flashes(&world), 2);
}

/// What was released is not enough: it has to be assigned, by a director that the root names.
#[tokio::test]
async fn a_hub_with_another_director_assigns_nothing() {
    let world = World::start(&["up"]).await;
    world.say(&["fleet", "keys", "--out", &world.text("others"), "--root-keys", "1", "--root-threshold", "1"]);
    // The vehicle was made with a root that names the director of somebody else.
    world.enrol(&world.hub_url(), json!({"root": "others/root.json"})).await;
    world.publish(world.signed("2.0.0", b"new", &["--key", &world.text("others/targets.key")])).await;
    let _agent = world.start_agent();
    world.want("2.0.0").await;
    let retry = world.until(has_failed("2.0.0")).await.pop().unwrap().retry.unwrap();
    let expected = ("ThresholdNotMet", "director metadata has 0 of 1 signatures");
    assert_eq!((retry.last_reason.as_str(), retry.last_message.as_str()), expected);
}

/// A hub whose clock went back assigns what is older than what the vehicle has seen; so would one that plays an old assignment again.
#[tokio::test]
async fn an_assignment_that_is_older_than_one_before_is_refused_with_its_reason() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), hook(&world, "true")).await;
    world.release("2.0.0", b"good").await;
    world.release("3.0.0", b"better").await;
    let mut agent = world.start_agent();
    world.want("2.0.0").await;
    world.until(runs("2.0.0")).await;
    agent.kill();
    // The vehicle has seen an assignment of a time that is yet to come.
    let file = world.path("vehicle/journal");
    let mut journal = Journal::decode(&*std::fs::read(&file).unwrap()).unwrap();
    journal.assignment_version += 1_000_000_000;
    std::fs::write(&file, journal.encode_to_vec()).unwrap();
    let _agent = world.start_agent();
    world.want("3.0.0").await;
    let retry = world.until(has_failed("3.0.0")).await.pop().unwrap().retry.unwrap();
    assert_eq!((retry.last_reason.as_str(), retry.next_time), ("MetadataReplayed", None), "{}", retry.last_message);
    assert_eq!(flashes(&world), 1);
}

/// New keys for everything: those before sign for them, and vehicles that were made with the root before take it from the hub.
#[tokio::test]
async fn vehicles_follow_to_the_next_root_and_the_keys_before_lose_their_word() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), hook(&world, "true")).await;
    let _agent = world.start_agent();
    let (old, store, director) = (world.text("keys/root.json"), world.text("data/firmware"), world.director());
    let (one, two) = (world.text("keys/root-1.key"), world.text("keys/root-2.key"));
    let (next, few) = (world.text("next"), world.text("few"));
    let base = ["fleet", "keys", "--director", &director, "--after", &old, "--signed-by", &one];
    let why = world.refused(&[&base[..], &["--out", &few]].concat());
    assert!(why.contains("root metadata has 1 of 2 signatures"), "{why}");
    assert!(!world.path("few/root-1.key").exists(), "keys were made for nothing");
    world.say(&[&base[..], &["--signed-by", &two, "--out", &next, "--store", &store]].concat());
    world.publish(world.signed("2.0.0", b"new", &["--key", &world.text("next/targets.key")])).await;
    world.want("2.0.0").await;
    world.until(runs("2.0.0")).await;
    world.publish(world.signed("3.0.0", b"newer", &["--key", &world.text("keys/targets.key")])).await;
    world.want("3.0.0").await;
    let retry = world.until(has_failed("3.0.0")).await.pop().unwrap().retry.unwrap();
    assert_eq!(retry.last_reason, "ThresholdNotMet", "{}", retry.last_message);
}
