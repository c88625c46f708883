//! Every namespace has the certificate by which the API server is known.

use futures_util::future::BoxFuture;
use kube::api::DeleteParams;
use serde_json::json;
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::owned::Objects;
use crate::process::{ROOT_CA, controllers, exhaust};

const NAME: &str = "kube-root-ca.crt";

fn outcome(state: &State, namespaces: &[&str]) -> Result<(), String> {
    for namespace in namespaces {
        let map = state.object("", "configmaps", namespace, NAME).ok_or_else(|| format!("{namespace} has none"))?;
        if map["data"] != json!({"ca.crt": ROOT_CA}) {
            return Err(format!("in {namespace} it is {map}"));
        }
    }
    Ok(())
}

/// One is deleted, another spoiled.
struct MapsComeBack;

impl Scenario for MapsComeBack {
    fn name(&self) -> &'static str {
        "root_ca::maps_come_back"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "root-ca-certificate-publisher-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            plane.settle().await.unwrap();
            objects.delete("/api/v1/namespaces/default/configmaps", NAME, &DeleteParams::default()).await;
            let spoiled = json!({"data": {"ca.crt": "mine", "more": "1"}});
            objects.patch("/api/v1/namespaces/kube-system/configmaps", NAME, spoiled).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        outcome(state, &["default", "kube-system", "kube-public", "kube-node-lease"])
    }
}

/// A namespace comes, and one is there already that has the map of somebody else.
struct NewNamespaces;

impl Scenario for NewNamespaces {
    fn name(&self) -> &'static str {
        "root_ca::new_namespaces"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make("/api/v1/namespaces", "old", &[]).await;
            objects.make("/api/v1/namespaces/old/configmaps", NAME, &[]).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "root-ca-certificate-publisher-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            Objects::on(plane).make("/api/v1/namespaces", "new", &[]).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        outcome(state, &["default", "old", "new"])
    }
}

/// A namespace that is going gets none.
struct GoingNamespace;

impl Scenario for GoingNamespace {
    fn name(&self) -> &'static str {
        "root_ca::a_namespace_that_goes_gets_none"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make("/api/v1/namespaces", "going", &[]).await;
            objects.delete("/api/v1/namespaces", "going", &DeleteParams::default()).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "root-ca-certificate-publisher-controller")
    }

    fn drive<'a>(&'a self, _: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        match state.object("", "configmaps", "going", NAME) {
            Some(map) => Err(format!("it got {map}")),
            None => outcome(state, &["default"]),
        }
    }
}

#[test]
fn maps_come_back() {
    exhaust(&MapsComeBack).assert();
}

#[test]
fn new_namespaces() {
    exhaust(&NewNamespaces).assert();
}

#[test]
fn a_namespace_that_goes_gets_none() {
    exhaust(&GoingNamespace).assert();
}
