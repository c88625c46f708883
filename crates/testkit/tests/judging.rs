//! The kit tells right controllers from wrong ones.
//!
//! All of them work on ConfigMaps: `want` is what a user asked for, `got` what the controller made of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{
    ControlPlane, Fault, Limits, Plan, Process, Report, Scenario, State, exhaust, exhaust_with, storm,
};

type Maps = Informer<ConfigMap>;
type Reconcile = fn(Context, Arc<ConfigMap>) -> BoxFuture<'static, Result<Action, Error>>;

/// A controller of the ConfigMaps that have `want`, and a user who changes one.
struct Judged {
    name: &'static str,
    reconcile: Reconcile,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Judged {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        let reconcile = self.reconcile;
        Box::pin(async move {
            let stopped = process.stopped();
            let manager =
                Manager::new(process.client, process.clock, process.chance, ManagerOptions::default()).unwrap();
            let maps: Maps = manager.informers().all();
            let work = {
                let maps = maps.clone();
                move |context: Context, key: Key| {
                    let map = context.read(&maps, &key).filter(|map| text(map, "want").is_some());
                    async move {
                        match map {
                            Some(map) => reconcile(context, map).await,
                            None => Ok(Action::done()),
                        }
                    }
                }
            };
            let controller = Controller::builder("judged", manager.client().clone(), process.clock, &maps).build(work);
            manager.add_controller(&[], controller).unwrap();
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }
}

fn text<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a str> {
    map.data.as_ref()?.get(key).map(String::as_str)
}

fn api(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn config_map(name: &str, data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

async fn set(client: &Client, name: &str, data: Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "data": data }));
    api(client).patch(name, &PatchParams::default(), &patch).await.map(drop)
}

/// Creates a child; it may be there already.
async fn create(client: &Client, child: &ConfigMap) -> Result<(), Error> {
    match api(client).create(&PostParams::default(), child).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).map_err(Error::from),
    }
}

/// A user who asks for one thing, then for another.
fn ask_twice(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        let client = plane.client();
        api(&client).create(&PostParams::default(), &config_map("a", json!({"want": "1"}))).await.unwrap();
        plane.advance(Duration::from_secs(60)).await;
        set(&client, "a", json!({"want": "2"})).await.unwrap();
    })
}

fn got(wanted: &'static str) -> impl Fn(&State) -> Result<(), String> {
    move |state| {
        let map = state.object("", "configmaps", "default", "a").unwrap_or_default();
        match map["data"]["got"] == wanted {
            true => Ok(()),
            false => Err(format!("got is {}", map["data"]["got"])),
        }
    }
}

fn failures(report: &Report) -> Vec<Fault> {
    report.failures.iter().filter_map(|(fault, _)| fault.clone()).collect()
}

/// Right: what it does follows from what is there.
const SETS: Reconcile = |context, map| {
    Box::pin(async move {
        let want = text(&map, "want").unwrap_or_default();
        if text(&map, "got") != Some(want) {
            set(context.client(), "a", json!({ "got": want })).await?;
        }
        Ok(Action::done())
    })
};

/// Wrong: the count and the note that it was counted are two writes.
const COUNTS: Reconcile = |context, map| {
    Box::pin(async move {
        let want = text(&map, "want").unwrap_or_default();
        if text(&map, "seen") == Some(want) {
            return Ok(Action::done());
        }
        let count: u32 = text(&map, "got").unwrap_or("0").parse().unwrap_or(0);
        set(context.client(), "a", json!({"got": (count + 1).to_string()})).await?;
        set(context.client(), "a", json!({ "seen": want })).await?;
        Ok(Action::done())
    })
};

#[test]
fn a_controller_that_sets_what_was_asked_for_passes() {
    let scenario = Judged {
        name: "a_controller_that_sets_what_was_asked_for_passes",
        reconcile: SETS,
        drive: ask_twice,
        outcome: |state| got("2")(state),
    };
    let report = exhaust(&scenario);
    report.assert();
    assert!(report.points > 20, "{report}");
}

#[test]
fn a_controller_that_counts_up_instead_of_setting_is_caught() {
    let scenario = Judged {
        name: "a_controller_that_counts_up_instead_of_setting_is_caught",
        reconcile: COUNTS,
        drive: ask_twice,
        outcome: |_| Ok(()),
    };
    let report = exhaust(&scenario);
    assert!(failures(&report).contains(&Fault::CrashAfterWrite(1)), "{report}");
}

#[test]
fn a_controller_that_trusts_a_stale_cache_is_caught() {
    let scenario = Judged {
        name: "a_controller_that_trusts_a_stale_cache_is_caught",
        reconcile: |context, map| {
            Box::pin(async move {
                if text(&map, "want") == Some("none") {
                    // Wrong: by name, whatever has been stored since.
                    match api(context.client()).delete("child", &DeleteParams::default()).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        other => drop(other?),
                    }
                } else {
                    create(context.client(), &config_map("child", json!({}))).await?;
                }
                Ok(Action::done())
            })
        },
        drive: |plane| {
            Box::pin(async {
                let client = plane.client();
                let map = config_map("a", json!({"want": "none"}));
                api(&client).create(&PostParams::default(), &map).await.unwrap();
                plane.advance(Duration::from_secs(60)).await;
                set(&client, "a", json!({"want": "child"})).await.unwrap();
                plane.settle().await.unwrap();
                set(&client, "child", json!({"precious": "yes"})).await.unwrap();
            })
        },
        outcome: |_| Ok(()),
    };
    let report = exhaust(&scenario);
    assert!(failures(&report).iter().any(|fault| matches!(fault, Fault::StaleAtEvent(_))), "{report}");
}

#[test]
fn a_controller_that_forgets_to_finish_after_a_crash_is_caught() {
    let scenario = Judged {
        name: "a_controller_that_forgets_to_finish_after_a_crash_is_caught",
        reconcile: |context, _| {
            Box::pin(async move {
                // Wrong: the first child says that all is done.
                if api(context.client()).get_opt("first").await?.is_some() {
                    return Ok(Action::done());
                }
                create(context.client(), &config_map("first", json!({}))).await?;
                create(context.client(), &config_map("second", json!({}))).await?;
                Ok(Action::done())
            })
        },
        drive: ask_twice,
        outcome: |_| Ok(()),
    };
    let report = exhaust(&scenario);
    assert!(failures(&report).contains(&Fault::CrashAfterWrite(1)), "{report}");
}

#[test]
fn a_controller_that_never_rests_is_caught_without_any_fault() {
    let scenario = Judged {
        name: "a_controller_that_never_rests_is_caught_without_any_fault",
        reconcile: |context, map| {
            Box::pin(async move {
                let count: u32 = text(&map, "got").unwrap_or("0").parse().unwrap_or(0);
                set(context.client(), "a", json!({"got": (count + 1).to_string()})).await?;
                Ok(Action::requeue_after(Duration::from_secs(30)))
            })
        },
        drive: ask_twice,
        outcome: |_| Ok(()),
    };
    let report = exhaust_with(&scenario, 0, Limits { writes: 300, ..Limits::default() });
    assert!(report.failures.first().is_some_and(|(fault, _)| fault.is_none()), "{report}");
}

#[test]
fn a_controller_that_spins_is_caught_instead_of_hanging_the_test() {
    let scenario = |name, reconcile| Judged { name, reconcile, drive: ask_twice, outcome: |_| Ok(()) };
    let limits = Limits { steps: 2_000, ..Limits::default() };
    let check = |scenario: Judged, last: &str| {
        let report = exhaust_with(&scenario, 0, limits);
        let said =
            "something spins: there are more than 2000 runs, calls and turns within 1 s of virtual time, the last was ";
        assert_eq!(report.failures, [(None, format!("{said}{last}"))]);
    };
    let waits_for_nothing: Reconcile = |_, _| Box::pin(async { Ok(Action::requeue_after(Duration::ZERO)) });
    check(scenario("a_controller_that_waits_for_nothing", waits_for_nothing), "a run of judged for default/a");
    let asks_on: Reconcile = |context, _| {
        Box::pin(async move {
            loop {
                let _ = api(context.client()).get_opt("a").await;
            }
        })
    };
    check(scenario("a_controller_that_asks_on", asks_on), "the call GET /api/v1/namespaces/default/configmaps/a");
}

#[tokio::test(start_paused = true)]
async fn what_spins_beside_a_test_is_an_error_of_settling() {
    let plane = ControlPlane::start().await;
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    let maps: Maps = manager.informers().all();
    let controller = Controller::builder("spinning", manager.client().clone(), plane.clock(), &maps)
        .build(|_: Context, _: Key| async { Ok(Action::requeue_after(Duration::ZERO)) });
    manager.add_controller(&[], controller).unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    api(&plane.client()).create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    let why = plane.settle().await.unwrap_err();
    assert!(why.starts_with("something spins: ") && why.contains("a run of spinning for "), "{why}");
}

/// A process that is none of the above: what it runs, and what must hold on the way.
struct Alone {
    name: &'static str,
    process: fn(Process) -> BoxFuture<'static, ()>,
    invariant: fn(&State) -> Result<(), String>,
}

impl Scenario for Alone {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        (self.process)(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        ask_twice(plane)
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        (self.invariant)(state)
    }
}

fn process(name: &'static str, process: fn(Process) -> BoxFuture<'static, ()>) -> Alone {
    Alone { name, process, invariant: |_| Ok(()) }
}

/// Runs a reconciler until it is asked to stop.
async fn reconcile_with(process: Process, reconcile: Reconcile) {
    let stopped = process.stopped();
    tokio::select! {
        () = stopped => {}
        () = Judged { name: "", reconcile, drive: ask_twice, outcome: |_| Ok(()) }.process(process) => {}
    }
}

/// What is said of the run without faults.
fn said_of_clean(scenario: &dyn Scenario) -> String {
    let report = exhaust(scenario);
    match &report.failures[..] {
        [(None, why)] => why.clone(),
        _ => panic!("{report}"),
    }
}

#[test]
fn a_controller_that_writes_after_all_was_quiet_is_caught() {
    let scenario = Judged {
        name: "a_controller_that_writes_after_all_was_quiet_is_caught",
        reconcile: |context, _| {
            Box::pin(async move {
                // Wrong: nothing has changed, and yet it writes, only so seldom that it seems to rest.
                let now = context.clock().wall().to_string();
                set(context.client(), "log", json!({ "seen": now })).await?;
                Ok(Action::requeue_after(Duration::from_secs(1_500)))
            })
        },
        drive: |plane| {
            Box::pin(async {
                let maps = api(&plane.client());
                for map in [config_map("log", json!({})), config_map("a", json!({"want": "1"}))] {
                    maps.create(&PostParams::default(), &map).await.unwrap();
                }
            })
        },
        outcome: |_| Ok(()),
    };
    assert_eq!(said_of_clean(&scenario), "writes after all was quiet: 2");
}

#[test]
fn a_process_that_leaves_a_task_behind_is_caught() {
    let scenario = process("a_process_that_leaves_a_task_behind_is_caught", |process| {
        Box::pin(async move {
            // Wrong: nobody ends it.
            tokio::spawn(std::future::pending::<()>());
            process.stopped().await;
        })
    });
    assert_eq!(said_of_clean(&scenario), "tasks that are still running after the process has stopped: 1");
}

#[test]
fn a_process_that_leaves_a_task_behind_after_a_failure_is_caught() {
    let scenario = process("a_process_that_leaves_a_task_behind_after_a_failure_is_caught", |process| {
        Box::pin(reconcile_with(process, |context, map| {
            Box::pin(async move {
                let answer = SETS(context, map).await;
                if answer.is_err() {
                    // Wrong: what was to look after the failure is never ended.
                    tokio::spawn(std::future::pending::<()>());
                }
                answer
            })
        }))
    });
    let report = exhaust(&scenario);
    assert!(report.failures.iter().all(|(fault, _)| fault.is_some()), "all is well without faults: {report}");
    let refused = |(fault, why): &(Option<Fault>, String)| {
        matches!(fault, Some(Fault::FailCall(_, 500)))
            && why.starts_with("tasks that are still running after the process has stopped: 1\n")
    };
    assert!(report.failures.iter().any(refused), "{report}");
}

#[test]
fn a_process_that_does_not_stop_is_caught() {
    let scenario = process("a_process_that_does_not_stop_is_caught", |_| Box::pin(std::future::pending()));
    assert_eq!(said_of_clean(&scenario), "the process did not stop within 60 s");
}

#[test]
fn a_rule_that_is_broken_on_the_way_is_caught_though_the_end_is_right() {
    let scenario = Alone {
        name: "a_rule_that_is_broken_on_the_way_is_caught_though_the_end_is_right",
        process: |process| {
            Box::pin(reconcile_with(process, |context, map| {
                Box::pin(async move {
                    let want = text(&map, "want").unwrap_or_default();
                    if text(&map, "got") != Some(want) {
                        // Wrong: for a moment there is nothing.
                        set(context.client(), "a", json!({ "got": "" })).await?;
                        set(context.client(), "a", json!({ "got": want })).await?;
                    }
                    Ok(Action::done())
                })
            }))
        },
        invariant: |state| match state.object("", "configmaps", "default", "a") {
            Some(map) if map["data"]["got"] == "" => Err("nothing is there".to_owned()),
            _ => Ok(()),
        },
    };
    assert_eq!(said_of_clean(&scenario), "a rule was broken on the way: nothing is there");
}

#[test]
fn a_right_controller_survives_fifty_storms_and_a_wrong_one_does_not() {
    let right = Judged { name: "right", reconcile: SETS, drive: ask_twice, outcome: |state| got("2")(state) };
    let calm = storm(&right, 0..50);
    calm.assert();
    assert_eq!(calm.seeds, 50);
    let wrong = storm(&Judged { name: "wrong", reconcile: COUNTS, drive: ask_twice, outcome: |_| Ok(()) }, 0..50);
    let (seed, plan, why) = wrong.failures.first().expect("a failure");
    assert!(why.contains("it ends otherwise") && why.contains("it struck "), "{why}");
    let line = format!("run it again: SETPOINT_SEED={seed} SETPOINT_FAULT={plan} cargo test ");
    assert!(wrong.to_string().contains(&line), "{wrong}");
    assert!(wrong.failures.iter().any(|(_, plan, _)| plan.faults().len() > 1), "{wrong}");
}

/// Run again by the test below, as a user runs it by the line that a failure prints.
#[test]
fn counts_by_the_environment() {
    let counting =
        Judged { name: "counts_by_the_environment", reconcile: COUNTS, drive: ask_twice, outcome: |_| Ok(()) };
    let report = exhaust(&counting);
    match std::env::var_os("SETPOINT_FAULT") {
        Some(_) => report.assert(),
        None => assert!(!report.failures.is_empty(), "{report}"),
    }
}

fn run_again(seed: &str, fault: &str) -> (bool, String) {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["counts_by_the_environment", "--exact", "--nocapture"]);
    let output = again.env("SETPOINT_SEED", seed).env("SETPOINT_FAULT", fault).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn one_point_runs_again_with_the_line_that_a_failure_prints() {
    let (passed, said) = run_again("7", "crash-after-write:1");
    assert!(!passed && said.contains("1 of 2 points fail (seed 7)"), "{said}");
    let line = "run it again: SETPOINT_SEED=7 SETPOINT_FAULT=crash-after-write:1 cargo test ";
    assert!(said.contains(line), "{said}");
    assert!(run_again("7", "delay-call:1").0, "a point that passes passes again");
    let (passed, said) = run_again("seven", "crash-after-write:1");
    assert!(!passed && said.contains("SETPOINT_SEED: must be a whole number"), "{said}");
    let (passed, said) = run_again("7", "melt:1");
    assert!(!passed && said.contains("SETPOINT_FAULT: \"melt:1\" is no fault"), "{said}");
}

/// Two controllers in one process: one sets `got`, the other `seen`.
struct Two;

impl Scenario for Two {
    fn name(&self) -> &'static str {
        "writes_of_several_controllers_are_counted_each_by_itself"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let stopped = process.stopped();
            let manager =
                Manager::new(process.client, process.clock, process.chance, ManagerOptions::default()).unwrap();
            let maps: Maps = manager.informers().all();
            for (name, field) in [("getter", "got"), ("seer", "seen")] {
                let cache = maps.clone();
                let work = move |context: Context, key: Key| {
                    let map = context.read(&cache, &key);
                    async move {
                        if let Some(map) = map
                            && let Some(want) = text(&map, "want")
                            && text(&map, field) != Some(want)
                        {
                            set(context.client(), "a", json!({ field: want })).await?;
                        }
                        Ok(Action::done())
                    }
                };
                let controller = Controller::builder(name, manager.client().clone(), process.clock, &maps).build(work);
                manager.add_controller(&[], controller).unwrap();
            }
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        ask_twice(plane)
    }
}

#[test]
fn writes_of_several_controllers_are_counted_each_by_itself() {
    let report = exhaust(&Two);
    report.assert();
    let crashes = report.tried.iter().map(Fault::to_string).filter(|fault| fault.starts_with("crash"));
    let wanted = ["crash-after-write:1:getter", "crash-after-write:2:getter"];
    let crashes: Vec<String> = crashes.collect();
    assert_eq!(crashes[..2], wanted, "{crashes:?}");
    assert!(crashes[2..].iter().all(|crash| crash.ends_with(":seer")) && crashes.len() == 4, "{crashes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_strikes_a_process_in_a_test_of_any_form() {
    let plane = ControlPlane::start().await;
    let run = |process: Process| -> BoxFuture<'static, ()> { Box::pin(reconcile_with(process, COUNTS)) };
    let story = async {
        ask_twice(&plane).await;
        plane.settle().await.unwrap();
    };
    tokio::select! {
        () = plane.run_with(Plan::of([Fault::CrashAfterWrite(1)]), run) => {}
        () = story => {}
    }
    got("3")(&plane.state()).expect("counted twice, since it died in between");
}
