//! References that are wrong: each ends as Kubernetes ends it.

use futures_util::future::BoxFuture;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use super::{COLLECTOR, collector, expect, names};
use crate::owned::{MAPS, Objects, ROLES, SECRETS, owner, with};
use crate::process::{exhaust, spawn};

const OTHER_SECRETS: &str = "/api/v1/namespaces/kube-public/secrets";

/// Wrong references of every sort, beside right ones.
struct Strange;

async fn make(plane: &ControlPlane) {
    let objects = Objects::on(plane);
    let real = objects.make(MAPS, "real", &[]).await;
    let role = objects.make(ROLES, "role", &[]).await;
    // Without an owner that is there: these go.
    objects.make(OTHER_SECRETS, "elsewhere", &[owner(&real)]).await;
    objects
        .make(SECRETS, "fake-uid", &[with(owner(&real), "uid", json!("00000000-0000-4000-8000-000000000000"))])
        .await;
    objects.make(SECRETS, "no-uuid", &[with(owner(&real), "uid", json!("fake"))]).await;
    objects.make(SECRETS, "wrong-kind", &[with(owner(&real), "kind", json!("Secret"))]).await;
    objects.make(SECRETS, "wrong-name", &[with(owner(&real), "name", json!("unreal"))]).await;
    // Nobody can say whether these have an owner: they stay.
    objects.make(SECRETS, "unknown-kind", &[with(owner(&real), "kind", json!("Unheard"))]).await;
    objects.make(SECRETS, "unknown-version", &[with(owner(&real), "apiVersion", json!("v9"))]).await;
    objects.make(SECRETS, "odd-name", &[with(owner(&real), "name", json!("../real?"))]).await;
    objects.make(ROLES, "cluster-wide", &[owner(&real)]).await;
    // These are right, or right in part.
    objects.make(OTHER_SECRETS, "of-role", &[owner(&role)]).await;
    let fake = with(owner(&role), "uid", json!("11111111-0000-4000-8000-000000000000"));
    objects.make(SECRETS, "of-real", &[owner(&real), with(fake, "name", json!("fake"))]).await;
}

fn check(state: &State) -> Result<(), String> {
    let left = [
        "odd-name of ../real?",
        "of-real of real",
        "unknown-kind of real",
        "unknown-version of real",
        "of-role of role",
    ];
    let mut found = names(state, "", "secrets");
    let mut left = left.to_vec();
    found.sort();
    left.sort_unstable();
    expect(found, &left)?;
    expect(names(state, "rbac.authorization.k8s.io", "clusterroles"), &["cluster-wide of real", "role"])
}

impl Scenario for Strange {
    fn name(&self) -> &'static str {
        "garbage_collector::strange::wrong_references_end_as_in_kubernetes"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(make(plane))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, _: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        check(state)
    }
}

/// The same while the collector runs, which then sees owners and dependents in another order.
struct StrangeLater;

impl Scenario for StrangeLater {
    fn name(&self) -> &'static str {
        "garbage_collector::strange::wrong_references_that_come_later"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let real = objects.make(MAPS, "real", &[]).await;
            plane.settle().await.unwrap();
            objects.make(OTHER_SECRETS, "elsewhere", &[owner(&real)]).await;
            objects.make(SECRETS, "wrong-kind", &[with(owner(&real), "kind", json!("Secret"))]).await;
            objects.make(SECRETS, "right", &[owner(&real)]).await;
            plane.settle().await.unwrap();
            objects.make(ROLES, "cluster-wide", &[owner(&real)]).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "real", &DeleteParams::background()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "secrets"), &[])?;
        expect(names(state, "rbac.authorization.k8s.io", "clusterroles"), &["cluster-wide of real"])
    }
}

#[test]
fn wrong_references_end_as_in_kubernetes() {
    exhaust(&Strange).assert();
}

#[test]
fn wrong_references_that_come_later() {
    exhaust(&StrangeLater).assert();
}

#[tokio::test(start_paused = true)]
async fn it_says_that_an_owner_is_in_another_namespace() {
    let plane = ControlPlane::start().await;
    let objects = Objects::on(&plane);
    let running = spawn(&plane, COLLECTOR);
    let real = objects.make(MAPS, "real", &[]).await;
    objects.make(OTHER_SECRETS, "elsewhere", &[owner(&real)]).await;
    plane.settle().await.unwrap();
    let state = plane.state();
    let events = state.objects("", "events").into_iter().chain(state.objects("events.k8s.io", "events"));
    let said: Vec<Value> = events.filter(|event| event["reason"] == "OwnerRefInvalidNamespace").collect();
    let uid = real["metadata"]["uid"].as_str().unwrap();
    let note = format!(
        "ownerRef [v1/ConfigMap, namespace: kube-public, name: real, uid: {uid}] does not exist in namespace \"kube-public\""
    );
    assert_eq!(said.len(), 1);
    assert!([&said[0]["note"], &said[0]["message"]].contains(&&json!(note)), "{}", said[0]);
    running.abort();
}
