//! A namespace goes with all that is in it, pods first.

use std::time::Duration;

use futures_util::future::BoxFuture;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Process, Scenario, State};

use crate::owned::{DEFINITIONS, Objects, widgets, with};
use crate::process::{controllers_of, exhaust};

const NAMESPACES: &str = "/api/v1/namespaces";
const MAPS: &str = "/api/v1/namespaces/doomed/configmaps";
const SECRETS: &str = "/api/v1/namespaces/doomed/secrets";
const PODS: &str = "/api/v1/namespaces/doomed/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/doomed/widgets";
const RESOURCES: &[&str] = &["pods", "configmaps", "secrets", "customresourcedefinitions", "widgets"];

/// The controller looks again and again while a finalizer holds; each look is one more point for faults.
const LATER: Duration = Duration::from_secs(10);

fn controller(process: Process) -> BoxFuture<'static, ()> {
    controllers_of(process, "namespace-controller", RESOURCES)
}

/// What a namespace says about its end, by type of condition.
fn said(state: &State, kind: &str) -> String {
    let namespace = state.object("", "namespaces", "", "doomed").unwrap_or_default();
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

fn expect_gone(state: &State) -> Result<(), String> {
    for (group, plural) in [("", "pods"), ("", "configmaps"), ("", "secrets"), ("example.com", "widgets")] {
        let left = state.objects(group, plural).into_iter().find(|object| object["metadata"]["namespace"] == "doomed");
        if let Some(left) = left {
            return Err(format!("{left} is left"));
        }
    }
    match state.object("", "namespaces", "", "doomed") {
        Some(namespace) => Err(format!("the namespace is there: {namespace}")),
        None => Ok(()),
    }
}

fn held(object: Value) -> Value {
    with(object, "metadata", json!({"name": "held", "finalizers": ["example.com/hold"]}))
}

async fn until_phase(plane: &ControlPlane, is_it: impl Fn(&State) -> bool) {
    while !is_it(&plane.state()) {
        plane.advance(Duration::from_secs(1)).await;
    }
}

/// Pods that end with their grace time are awaited before anything else goes.
struct PodsFirst;

impl Scenario for PodsFirst {
    fn name(&self) -> &'static str {
        "namespace::pods_go_first"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make(NAMESPACES, "doomed", &[]).await;
            plane.let_pods_into("doomed").await;
            objects.make(MAPS, "map", &[]).await;
            let spec = json!({
                "nodeName": "node-1", "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "web", "image": "web"}],
            });
            objects.make_with(PODS, json!({"metadata": {"name": "web"}, "spec": spec})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controller(process)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet::default().run(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            Objects::on(plane).delete(NAMESPACES, "doomed", &DeleteParams::default()).await;
        })
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        let has = |plural: &str, name: &str| state.object("", plural, "doomed", name).is_some();
        match has("pods", "web") && !has("configmaps", "map") {
            true => Err("the map went before the pod".to_owned()),
            false => Ok(()),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect_gone(state)
    }
}

/// A finalizer holds the namespace, which says so; when it goes the namespace does.
struct Finalizer;

impl Scenario for Finalizer {
    fn name(&self) -> &'static str {
        "namespace::a_finalizer_holds_it_and_it_says_so"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make(NAMESPACES, "doomed", &[]).await;
            objects.make_with(MAPS, held(json!({}))).await;
            objects.make(SECRETS, "free", &[]).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controller(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.delete(NAMESPACES, "doomed", &DeleteParams::default()).await;
            until_phase(plane, |state| said(state, "NamespaceFinalizersRemaining").starts_with("True")).await;
            let state = plane.state();
            assert_eq!(
                said(&state, "NamespaceFinalizersRemaining"),
                "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
            );
            assert_eq!(
                said(&state, "NamespaceContentRemaining"),
                "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"
            );
            plane.advance(LATER).await;
            objects.patch(MAPS, "held", json!({"metadata": {"finalizers": null}})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect_gone(state)
    }
}

/// The definition of what is in the namespace goes at the same time.
struct DefinitionGoes;

impl Scenario for DefinitionGoes {
    fn name(&self) -> &'static str {
        "namespace::the_definition_of_its_content_goes_too"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make(NAMESPACES, "doomed", &[]).await;
            objects.make_with(DEFINITIONS, widgets()).await;
            plane.settle().await.unwrap();
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
            objects.make_with(WIDGETS, held(widget)).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controller(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.delete(DEFINITIONS, "widgets.example.com", &DeleteParams::default()).await;
            objects.delete(NAMESPACES, "doomed", &DeleteParams::default()).await;
            until_phase(plane, |state| said(state, "NamespaceContentRemaining").starts_with("True")).await;
            assert_eq!(
                said(&plane.state(), "NamespaceContentRemaining"),
                "True SomeResourcesRemain: Some resources are remaining: widgets.example.com has 1 resource instances"
            );
            plane.advance(LATER).await;
            objects.patch(WIDGETS, "held", json!({"metadata": {"finalizers": null}})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        match state.objects("apiextensions.k8s.io", "customresourcedefinitions").is_empty() {
            true => expect_gone(state),
            false => Err("the definition is there".to_owned()),
        }
    }
}

#[test]
fn pods_go_first() {
    exhaust(&PodsFirst).assert();
}

#[test]
fn a_finalizer_holds_it_and_it_says_so() {
    exhaust(&Finalizer).assert();
}

#[test]
fn the_definition_of_its_content_goes_too() {
    exhaust(&DefinitionGoes).assert();
}
