//! What happens when a vehicle's agent, a hub or the controllers fail or are killed. Everything is signed.

use serde_json::json;

use crate::world::{Running, World, flashes, free_port, hook, runs, setpoint};

#[tokio::test]
async fn an_upgrade_that_fails_is_told_and_tried_again_after_a_while() {
    let world = World::start(&["up"]).await;
    let mark = world.path("mark");
    let fails_once = format!("test -e {0} || {{ touch {0}; exit 7; }}", mark.display());
    world.enrol(&world.hub_url(), hook(&world, &fails_once)).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.want("2.0.0").await;
    let seen = world.until(runs("2.0.0")).await;
    let failed = seen.iter().find(|status| status.retry.is_some()).expect("the failure is told");
    assert_eq!(failed.retry.as_ref().unwrap().last_reason, "InstallFailed");
    let last = seen.last().unwrap();
    assert_eq!((last.progress.as_ref().unwrap().attempt, flashes(&world)), (2, 2));
    assert_eq!(last.slot.as_ref().unwrap().active.as_deref(), Some("b"));
}

#[tokio::test]
async fn a_controller_that_dies_after_it_gave_a_task_has_a_successor_and_the_vehicle_flashes_once() {
    let world = World::start(&["up", "--controllers", "*,-vehicle-controller"]).await;
    let kubeconfig = world.server.kubeconfig.to_str().unwrap();
    let arguments = ["controllers", "--controllers", "vehicle-controller", "--no-leader-election"];
    let arguments = [&arguments[..], &["--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]].concat();
    // The installation goes on until the successor has been there: it meets a task that is under way.
    let done = world.path("done");
    let waits = format!("while ! test -e {}; do sleep 0.05; done", done.display());
    world.enrol(&world.hub_url(), hook(&world, &waits)).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.until(|status| status.session.is_some()).await;
    let mut first = Running::start(setpoint(), &arguments);
    world.want("2.0.0").await;
    let issued = world.until(|status| status.task.is_some()).await.pop().unwrap().task;
    first.kill();
    world.until(|status| status.progress.as_ref().is_some_and(|progress| progress.stage == "Installing")).await;
    let before = world.vehicles().get("v-1").await.unwrap().status.unwrap();
    assert_eq!((before.phase.as_deref(), &before.task), (Some("Downloading"), &issued));
    let _second = Running::start(setpoint(), &arguments);
    // It says where the task is, and leaves it as it is.
    let met = world.until(|status| status.phase.as_deref() == Some("Installing")).await.pop().unwrap();
    assert_eq!(met.task, issued);
    std::fs::write(&done, "").unwrap();
    let seen = world.until(runs("2.0.0")).await;
    assert_eq!(seen.last().unwrap().task.as_ref().unwrap().attempt, 1);
    assert_eq!(flashes(&world), 1);
}

#[tokio::test]
async fn a_hub_and_an_agent_that_are_killed_during_a_download_go_on_where_they_were() {
    let world = World::start(&["up", "--no-hub"]).await;
    let (port, kubeconfig) = (free_port(), world.server.kubeconfig.to_str().unwrap().to_owned());
    let (listen, firmware) = (format!("127.0.0.1:{port}"), world.path("data/firmware"));
    let director = world.director();
    let arguments = ["hub", "--name", "hub-1", "--probes", "127.0.0.1:0", "--bytes-per-second", "400000"];
    let place = ["--listen", &listen, "--kubeconfig", &kubeconfig, "--firmware", firmware.to_str().unwrap()];
    let place = [&place[..], &["--director-key", &director]].concat();
    let arguments = [&arguments[..], &place].concat();
    world.enrol(&format!("https://{listen}"), hook(&world, "true")).await;
    world.release("2.0.0", &vec![7; 2_000_000]).await;
    let mut hub = Running::start(setpoint(), &arguments);
    let mut agent = world.start_agent();
    world.want("2.0.0").await;
    let part = world.path("vehicle/slot-b/firmware.bin");
    while std::fs::metadata(&part).map_or(0, |file| file.len()) < 600_000 {
        world.client.apiserver_version().await.unwrap();
    }
    hub.kill();
    agent.kill();
    let _agent = world.start_agent_logged("second.log");
    let _hub = Running::start(setpoint(), &arguments);
    let seen = world.until(runs("2.0.0")).await;
    // What was there was not fetched again: the first that the second agent says of bytes is at least as much.
    let log = std::fs::read_to_string(world.path("second.log")).unwrap();
    let mut percents =
        log.lines().filter_map(|line| line.split_once(": Downloading ")?.1.split_once('%')?.0.parse().ok());
    let first: u32 = percents.find(|percent| *percent > 0).expect("it goes on downloading");
    assert!(first >= 30, "{log}");
    assert_eq!(seen.last().unwrap().progress.as_ref().unwrap().attempt, 1);
    assert_eq!(flashes(&world), 1);
}

#[tokio::test]
async fn a_vehicle_that_can_only_poll_gets_there_all_the_same() {
    let world = World::start(&["up"]).await;
    let mut more = hook(&world, "true");
    more["transport"] = json!("long-poll");
    world.enrol(&world.hub_url(), more).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.until(|status| status.session.is_some()).await;
    world.want("2.0.0").await;
    let seen = world.until(runs("2.0.0")).await;
    assert_eq!(seen.last().unwrap().task.as_ref().unwrap().attempt, 1);
    assert_eq!(flashes(&world), 1);
}
