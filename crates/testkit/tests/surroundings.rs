//! What is around the process under test: an election, a world that acts, things outside of the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Fault, Kubelet, Limits, Process, Scenario, State, exhaust, exhaust_with};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn create_map(plane: &ControlPlane) {
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
}

/// Runs a reconciler of the ConfigMap `a`.
async fn run<F, R>(process: Process, election: Option<ElectionConfig>, reconcile: F)
where
    F: Fn(Process, Context, ConfigMap) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    let options = ManagerOptions { election, ..ManagerOptions::default() };
    let manager = Manager::new(process.client.clone(), process.clock, process.chance.clone(), options).unwrap();
    let maps = manager.informers().all::<ConfigMap>();
    let (cache, reconcile, given) = (maps.clone(), Arc::new(reconcile), process.clone());
    let work = move |context: Context, key: Key| {
        let (map, process, reconcile) = (context.read(&cache, &key), given.clone(), reconcile.clone());
        async move {
            match map.filter(|map| map.name_any() == "a") {
                Some(map) => reconcile(process, context, (*map).clone()).await,
                None => Ok(Action::done()),
            }
        }
    };
    let controller = Controller::builder("maps", manager.client().clone(), process.clock, &maps).build(work);
    manager.add_controller(&[], controller).unwrap();
    // A process that fails is started again by the kit.
    let _ = manager.run(process.stopped()).await;
}

async fn mark(context: &Context, key: &str) -> Result<Action, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client().clone(), "default");
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {key: "yes"}}))).await?;
    Ok(Action::done())
}

fn has(map: &ConfigMap, key: &str) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key(key))
}

/// Two writes of a process that has to be elected.
struct Elected;

impl Scenario for Elected {
    fn name(&self) -> &'static str {
        "a_process_that_loses_its_lease_is_tried_with_every_fault"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        // Each life is another candidate.
        let election = ElectionConfig::new("default", "maps", format!("life-{}", process.chance.bits()));
        Box::pin(run(process, Some(election), |_, context, map| async move {
            match (has(&map, "first"), has(&map, "second")) {
                (false, _) => mark(&context, "first").await,
                (true, false) => mark(&context, "second").await,
                (true, true) => Ok(Action::done()),
            }
        }))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(create_map(plane))
    }
}

#[test]
fn a_process_that_loses_its_lease_is_tried_with_every_fault() {
    // A leader says so every other second: an hour of that, at every point, shows no more than a few minutes.
    let limits = Limits { still: Duration::from_secs(300), ..Limits::default() };
    let report = exhaust_with(&Elected, 0, limits);
    report.assert();
    let has = |wanted: fn(&Fault) -> bool| report.tried.iter().any(wanted);
    assert!(has(|fault| matches!(fault, Fault::CrashAfterWrite(1))));
    assert!(has(|fault| matches!(fault, Fault::HideEvent(1))));
    assert!(has(|fault| matches!(fault, Fault::StaleAtEvent(1))));
    for code in [409, 429, 500] {
        assert!(report.tried.contains(&Fault::FailCall(1, code)));
    }
    assert!(has(|fault| matches!(fault, Fault::LoseAnswer(1))));
    assert!(has(|fault| matches!(fault, Fault::DelayCall(1))));
    assert!(has(|fault| matches!(fault, Fault::LoseLease(2))));
}

/// Things outside of the cluster, of which there should be one.
#[derive(Default)]
struct Things(AtomicUsize);

/// Makes something outside without a token, and notes it in the cluster.
struct WithoutToken;

impl Scenario for WithoutToken {
    fn name(&self) -> &'static str {
        "a_thing_outside_that_is_made_twice_is_caught"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(run(process, None, |process, context, map| async move {
            if has(&map, "made") {
                return Ok(Action::done());
            }
            let things = process.outside::<Things>();
            let made = process.write(async { things.0.fetch_add(1, Ordering::Relaxed) }).await;
            made.map_err(Error::transient)?;
            mark(&context, "made").await
        }))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(create_map(plane))
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        match state.outside::<Things>().0.load(Ordering::Relaxed) {
            1 => Ok(()),
            things => Err(format!("there are {things} things")),
        }
    }
}

#[test]
fn a_thing_outside_that_is_made_twice_is_caught() {
    let report = exhaust(&WithoutToken);
    let failed: Vec<Fault> = report.failures.iter().filter_map(|(fault, _)| fault.clone()).collect();
    assert!(failed.contains(&Fault::CrashAfterWrite(1)), "dead right after it was made: {report}");
    assert!(failed.iter().any(|fault| matches!(fault, Fault::LoseAnswer(_))), "the answer was lost: {report}");
    let told = report.to_string();
    for words in [
        "there are 2 things",
        "it struck a call outside that writes",
        "SETPOINT_SEED=0 SETPOINT_FAULT=crash-after-write:1 cargo test",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

/// Notes that a pod is ready, which only a kubelet can bring about.
struct NeedsKubelet;

impl Scenario for NeedsKubelet {
    fn name(&self) -> &'static str {
        "the_world_acts_beside_the_process_and_is_never_struck"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(run(process, None, |_, context, map| async move {
            let pods: Api<Pod> = Api::namespaced(context.client().clone(), "default");
            let pod = pods.get_opt("a").await?.and_then(|pod| pod.status).unwrap_or_default();
            match pod.phase.as_deref() {
                Some("Running") if !has(&map, "running") => mark(&context, "running").await,
                Some("Running") => Ok(Action::done()),
                _ => Ok(Action::requeue_after(Duration::from_secs(1))),
            }
        }))
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet::binding_to("node-1").run(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let pods: Api<Pod> = Api::default_namespaced(plane.client());
            let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
            create_map(plane).await;
            plane.settle().await.unwrap();
            pods.delete("a", &DeleteParams::default()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let map = state.object("", "configmaps", "default", "a").unwrap_or_default();
        match (map["data"]["running"].as_str(), state.objects("", "pods").len()) {
            (Some("yes"), 0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}

#[test]
fn the_world_acts_beside_the_process_and_is_never_struck() {
    exhaust(&NeedsKubelet).assert();
}

#[test]
fn a_run_with_too_many_writes_fails() {
    let report = exhaust_with(&NeedsKubelet, 0, Limits { writes: 4, ..Limits::default() });
    let (fault, why) = report.failures.first().expect("a failure");
    assert!(fault.is_none() && why.contains("more than 4 writes"), "{report}");
}
