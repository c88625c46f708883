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
use setpoint_testkit::{ControlPlane, Fault, Limits, Process, Report, Scenario, State, exhaust, exhaust_with};

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
    report.failures.iter().filter_map(|(fault, _)| *fault).collect()
}

#[test]
fn a_controller_that_sets_what_was_asked_for_passes() {
    let scenario = Judged {
        name: "a_controller_that_sets_what_was_asked_for_passes",
        reconcile: |context, map| {
            Box::pin(async move {
                let want = text(&map, "want").unwrap_or_default();
                if text(&map, "got") != Some(want) {
                    set(context.client(), "a", json!({ "got": want })).await?;
                }
                Ok(Action::done())
            })
        },
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
        reconcile: |context, map| {
            Box::pin(async move {
                let want = text(&map, "want").unwrap_or_default();
                if text(&map, "seen") == Some(want) {
                    return Ok(Action::done());
                }
                // Wrong: the count and the note that it was counted are two writes.
                let count: u32 = text(&map, "got").unwrap_or("0").parse().unwrap_or(0);
                set(context.client(), "a", json!({"got": (count + 1).to_string()})).await?;
                set(context.client(), "a", json!({ "seen": want })).await?;
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
    let report = exhaust(&scenario);
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
