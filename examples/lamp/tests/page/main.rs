//! What the page `docs/guide/first-operator.md` says of this package is so: what its test prints, and what becomes of the mistake that
//! the page makes. That its files are those of the page is a test of all pages.

mod hasty;

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use lamp::{Lamp, LampSpec};
use serde_json::json;
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};
use setpoint_testkit::{ControlPlane, Process, Scenario, State, exhaust};

const PAGE: &str = include_str!("../../../../docs/guide/first-operator.md");

/// The scenario of the page, with one of its two controllers.
struct TurnedDown(fn(&Manager) -> Result<(), ManagerError>);

impl Scenario for TurnedDown {
    fn name(&self) -> &'static str {
        "every_fault_ends_with_a_dim_lamp"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &Lamp::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        let add_to = self.0;
        Box::pin(async move {
            let stopped = process.stopped();
            let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
            let manager = manager.unwrap();
            add_to(&manager).unwrap();
            // One that fails is started again.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let lamps: Api<Lamp> = Api::default_namespaced(plane.client());
            lamps.create(&PostParams::default(), &Lamp::new("desk", LampSpec { brightness: 80 })).await.unwrap();
            plane.settle().await.unwrap();
            let dim = Patch::Merge(json!({"spec": {"brightness": 10}}));
            lamps.patch("desk", &PatchParams::default(), &dim).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let lamp = state.object("example.com", "lamps", "default", "desk").unwrap_or_default();
        match lamp["status"]["brightness"].as_i64() {
            Some(10) => Ok(()),
            other => Err(format!("it burns at {other:?}")),
        }
    }
}

/// What the page shows after a command, up to `...` or the end of its block.
fn shown(first: &str) -> String {
    let start = PAGE.find(&format!("\n{first}\n")).unwrap_or_else(|| panic!("the page doesn't show {first:?}")) + 1;
    let lines = PAGE[start..].lines().take_while(|line| *line != "..." && !line.starts_with("```"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_test_of_the_page_prints_what_the_page_shows() {
    let report = exhaust(&TurnedDown(lamp::add_to));
    report.assert();
    assert_eq!(shown(&report.to_string()).lines().next(), Some(report.to_string().as_str()));
}

#[test]
fn the_mistake_of_the_page_is_found_as_the_page_shows() {
    let report = exhaust(&TurnedDown(hasty::add_to)).to_string();
    let first = report.lines().next().unwrap_or_default();
    let shown = shown(first);
    assert!(shown.lines().count() > 6, "{shown}");
    assert!(report.starts_with(&shown), "{report}\n\nthe page shows\n{shown}");
}

#[test]
fn the_mistake_is_the_change_that_the_page_tells_of() {
    let (right, wrong) = (include_str!("../../src/lib.rs"), include_str!("hasty.rs"));
    let (before, _) = right.split_once("    // Compare.\n").expect("the page names this line");
    let (same, replaced) = wrong.split_once("    // Compare: ").expect("the page begins so");
    assert_eq!(same, before.replace("CustomResource}", "CustomResource, ResourceExt}"));
    assert!(PAGE.contains(replaced), "the page shows something else");
}
