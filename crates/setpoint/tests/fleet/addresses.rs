//! Where hubs are: as they say themselves in the cluster, as somebody says who knows it, or nowhere.

use serde_json::Value;

use crate::server::Part;
use crate::world::World;

/// Enrols `v-1` with a kubeconfig beside which nothing says where a hub is; the hubs that its configuration names, or what was said.
fn enrol(world: &World, folder: &str, more: &[&str]) -> Result<Vec<String>, String> {
    let kubeconfig = world.text("elsewhere.kubeconfig");
    std::fs::copy(&world.server.kubeconfig, &kubeconfig).unwrap();
    let out = world.text(folder);
    let words = [&["fleet", "enrol", "v-1", "--unsigned", "--out", &out, "--kubeconfig", &kubeconfig], more].concat();
    let output = std::process::Command::new(crate::world::setpoint()).args(words).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let config: Value = serde_json::from_slice(&std::fs::read(world.path(folder).join("agent.json")).unwrap()).unwrap();
    Ok(config["hubs"].as_array().unwrap().iter().map(|hub| hub.as_str().unwrap().to_owned()).collect())
}

/// Waits until hubs have said that they are at so many places.
async fn until_published(world: &World, count: usize) -> Vec<String> {
    loop {
        let found = setpoint_fleet::hub::address::published(&world.client).await.unwrap();
        if found.len() == count {
            return found;
        }
    }
}

#[tokio::test]
async fn a_vehicle_is_enrolled_with_the_hubs_that_say_where_they_are() {
    let world = World::start(&["up", "--no-hub"]).await;
    world.make("v-1").await;
    let why = enrol(&world, "none", &[]).unwrap_err();
    assert!(why.contains("can't find a hub: none has said in the cluster where it is"), "{why}");
    assert!(why.contains("--hub https://HOST:PORT"), "{why}");
    assert!(!world.path("none").exists(), "something was written for a vehicle that can go nowhere");
    let why = enrol(&world, "none", &["--hub", "hub.example"]).unwrap_err();
    assert!(why.contains("it has to be https://HOST:PORT"), "{why}");
    let told = enrol(&world, "told", &["--hub", "https://hub.example:7443/", "--hub", "https://other.example"]);
    assert_eq!(told.unwrap(), ["https://hub.example:7443", "https://other.example"]);

    let hub = |name: &str, more: &[&str]| {
        let words = [&["hub", "--probes", "127.0.0.1:0", "--name", name], more].concat();
        Part::start(&words, &world.server.kubeconfig)
    };
    let one = hub("one", &[]);
    let other = hub("other", &["--hub-url", "https://fleet.example"]);
    let expected = [one.url.clone(), "https://fleet.example".to_owned()];
    assert_eq!(until_published(&world, 2).await, expected);
    assert_eq!(enrol(&world, "both", &[]).unwrap(), expected);
    // One that goes in order takes its place back, and the other's stays.
    assert_eq!(one.stop(), Some(0));
    assert_eq!(until_published(&world, 1).await, ["https://fleet.example"]);
    drop(other);
    // Everybody who is logged in may know it; nobody but hubs may say it.
    let who = |verb: &str| world.say(&["who-can", verb, "configmaps/fleet-hubs", "-n", "kube-public"]);
    assert!(who("get").contains("system:authenticated"), "{}", who("get"));
    assert!(who("patch").contains("kube-system/fleet-hub "), "{}", who("patch"));
}
