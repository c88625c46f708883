//! A vehicle whose boot loader is driven by scripts, as RAUC or SWUpdate would be: every stage is a hook.

use serde_json::{Value, json};
use setpoint_fleet::kinds::VehicleStatus;

use crate::world::{Running, World, runs};

/// A boot loader in a folder: `booted` and `next` name slots, `good` the one to go back to, `slot-a` and `slot-b` hold images. Each hook
/// leaves a line in `calls`.
fn loader(world: &World) -> Value {
    let folder = world.path("loader");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("booted", "a"), ("next", "a"), ("good", "a"), ("slot-a", "well")] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let script = |name: &str, text: &str| {
        let call = format!("echo {name} $SETPOINT_SLOT >> calls");
        json!(["sh", "-ec", format!("cd {}; {call}; {text}", folder.display())])
    };
    json!({
        "hooks": {
            "booted": ["cat", folder.join("booted")],
            "install": script("install", "cp $SETPOINT_ARTIFACT slot-$SETPOINT_SLOT"),
            "arm": script("arm", "printf $SETPOINT_SLOT > next"),
            "restart": script("restart", "cp next booted"),
            "commit": script("commit", "printf $SETPOINT_SLOT > good"),
            "disarm": script("disarm", "printf $SETPOINT_SLOT > next"),
        },
        // A firmware is well if its image says so.
        "checks": {"self": script("check", "grep -q well slot-$(cat booted)")},
    })
}

/// Runs the agent over its restarts until the vehicle is as it should be: what a supervisor and a boot do.
async fn supervise(world: &World, is_it: impl Fn(&VehicleStatus) -> bool) -> VehicleStatus {
    let mut agent: Running = world.start_agent();
    loop {
        if agent.has_ended() {
            agent = world.start_agent();
        }
        let status = world.vehicles().get("v-1").await.unwrap().status.unwrap_or_default();
        if is_it(&status) {
            return status;
        }
    }
}

async fn publish(world: &World, version: &str, image: &str) {
    let mut firmware = world.signed(version, image.as_bytes(), &[]);
    firmware["spec"]["healthChecks"] = json!([{"name": "self", "timeout": "1s"}]);
    firmware["spec"]["rxswin"] = format!("R156-{version}").into();
    world.publish(firmware).await;
}

#[tokio::test]
async fn an_upgrade_and_a_roll_back_go_through_the_hooks_of_a_boot_loader() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), loader(&world)).await;
    let read = |name: &str| std::fs::read_to_string(world.path("loader").join(name)).unwrap_or_default();
    publish(&world, "2.0.0", "well").await;
    publish(&world, "3.0.0", "sick").await;

    world.want("2.0.0").await;
    let status = supervise(&world, runs("2.0.0")).await;
    assert_eq!(status.slot.unwrap().active.as_deref(), Some("b"));
    assert_eq!(status.rxswin.as_deref(), Some("R156-2.0.0"));
    assert_eq!((read("booted"), read("good"), read("slot-b")), ("b".into(), "b".into(), "well".into()));
    assert_eq!(read("calls"), "install b\narm b\nrestart b\ncheck b\ncommit b\n");

    // The next one goes to the slot that was the first, is not well there, and is left for the one before.
    std::fs::remove_file(world.path("loader/calls")).unwrap();
    world.want("3.0.0").await;
    let status = supervise(&world, |status| status.retry.is_some()).await;
    let retry = status.retry.unwrap();
    assert_eq!(retry.last_reason, "HealthCheckFailed", "{}", retry.last_message);
    assert_eq!(status.firmware_version.as_deref(), Some("2.0.0"));
    assert_eq!((read("booted"), read("good"), read("slot-a")), ("b".into(), "b".into(), "sick".into()));
    let calls = read("calls");
    let calls: Vec<&str> = calls.lines().filter(|line| !line.starts_with("check")).collect();
    assert_eq!(calls, ["install a", "arm a", "restart a", "disarm b", "restart b"]);
}
