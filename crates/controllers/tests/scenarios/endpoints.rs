//! Services and the pods that answer for them, as Endpoints and as slices.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, exhaust, spawn};
use crate::story::stand_in;

/// What users do with a Service and pods, and which addresses are published at the end.
struct Story {
    name: &'static str,
    controllers: &'static str,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    /// Names of pods, or addresses of things that are no pods.
    published: &'static [&'static str],
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            let nodes: Api<Node> = Api::all(plane.client());
            let labels = json!({"topology.kubernetes.io/zone": "z1"});
            let node = serde_json::from_value(json!({"metadata": {"name": "node-1", "labels": labels}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, self.controllers)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet::binding_to("node-1").run(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let expected: BTreeSet<String> = self.published.iter().map(|name| (*name).to_owned()).collect();
        let of_service =
            |object: &&Value| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web"));
        let slices = state.objects("discovery.k8s.io", "endpointslices");
        let slices: Vec<_> = slices.iter().filter(of_service).collect();
        let mut found = Vec::new();
        for endpoint in slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten()) {
            let name = endpoint["targetRef"]["name"].as_str().or(endpoint["addresses"][0].as_str());
            let is_ready = endpoint["conditions"]["ready"] == json!(true);
            found.extend(name.filter(|_| is_ready).map(str::to_owned));
        }
        if self.controllers != "endpoints-controller" {
            let distinct: BTreeSet<String> = found.iter().cloned().collect();
            if distinct != expected || distinct.len() != found.len() || slices.len() > 1 {
                return Err(format!("{} slices have {found:?}", slices.len()));
            }
        }
        Ok(())
    }

    /// Names of slices and of volumes of pods are drawn by chance: what they stand for is compared. The time of the last change is that
    /// of the write.
    fn view(&self, mut object: Value) -> Option<Value> {
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
        }
        if object["metadata"]["annotations"] == json!({}) {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
        let is_drawn = object["kind"] == "EndpointSlice" || object["kind"] == "Pod";
        Some(if is_drawn { stand_in(object) } else { object })
    }
}

async fn make_service(plane: &ControlPlane, selector: Value) {
    let services: Api<Service> = Api::default_namespaced(plane.client());
    let spec = json!({"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]});
    let service = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    services.create(&PostParams::default(), &service).await.unwrap();
}

async fn make_pod(plane: &ControlPlane, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let spec = json!({"containers": [{"name": "web", "image": "web"}]});
    let metadata = json!({"name": name, "labels": {"app": "web"}});
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Two pods come, one goes.
fn pods_come_and_go(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        make_service(plane, json!({"app": "web"})).await;
        make_pod(plane, "one").await;
        make_pod(plane, "two").await;
        plane.settle().await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(plane.client());
        pods.delete("one", &DeleteParams::default()).await.unwrap();
        plane.settle().await.unwrap();
    })
}

#[test]
fn slices_follow_pods() {
    let (name, controllers) = ("endpoints::slices_follow_pods", "endpointslice-controller");
    exhaust(&Story { name, controllers, drive: pods_come_and_go, published: &["two"] }).assert();
}

#[test]
fn one_object_follows_pods() {
    let (name, controllers) = ("endpoints::one_object_follows_pods", "endpoints-controller");
    exhaust(&Story { name, controllers, drive: pods_come_and_go, published: &["two"] }).assert();
}

/// The selector moves from one pod's labels to another's.
fn the_selector_changes(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        make_service(plane, json!({"app": "web"})).await;
        make_pod(plane, "one").await;
        plane.settle().await.unwrap();
        let services: Api<Service> = Api::default_namespaced(plane.client());
        let patch = Patch::Merge(json!({"spec": {"selector": {"app": "other"}}}));
        services.patch("web", &PatchParams::default(), &patch).await.unwrap();
        plane.settle().await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(plane.client());
        make_pod(plane, "two").await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
        pods.patch("two", &PatchParams::default(), &patch).await.unwrap();
        plane.settle().await.unwrap();
    })
}

#[test]
fn slices_follow_the_selector() {
    let (name, controllers) = ("endpoints::slices_follow_the_selector", "endpointslice-controller");
    exhaust(&Story { name, controllers, drive: the_selector_changes, published: &["two"] }).assert();
}

#[test]
fn one_object_follows_the_selector() {
    let (name, controllers) = ("endpoints::one_object_follows_the_selector", "endpoints-controller");
    exhaust(&Story { name, controllers, drive: the_selector_changes, published: &["two"] }).assert();
}

/// Somebody deletes the slice, then spoils the one that was made instead.
fn slices_are_spoilt(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        make_service(plane, json!({"app": "web"})).await;
        make_pod(plane, "one").await;
        let slices: Api<EndpointSlice> = Api::default_namespaced(plane.client());
        for is_deleted in [true, false] {
            plane.settle().await.unwrap();
            let found = slices.list(&ListParams::default()).await.unwrap().items.into_iter();
            let names = found.filter_map(|slice| slice.metadata.name).filter(|name| name.starts_with("web-"));
            for name in names {
                let spoilt = Patch::Merge(json!({"endpoints": [{"addresses": ["192.0.2.9"]}]}));
                match is_deleted {
                    true => drop(slices.delete(&name, &DeleteParams::default()).await.unwrap()),
                    false => drop(slices.patch(&name, &PatchParams::default(), &spoilt).await.unwrap()),
                }
            }
        }
        plane.settle().await.unwrap();
    })
}

#[test]
fn slices_that_somebody_spoils_are_mended() {
    let (name, controllers) = ("endpoints::slices_that_somebody_spoils_are_mended", "endpointslice-controller");
    exhaust(&Story { name, controllers, drive: slices_are_spoilt, published: &["one"] }).assert();
}

/// A Service goes.
fn the_service_goes(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        make_service(plane, json!({"app": "web"})).await;
        make_pod(plane, "one").await;
        plane.settle().await.unwrap();
        let services: Api<Service> = Api::default_namespaced(plane.client());
        services.delete("web", &DeleteParams::default()).await.unwrap();
        plane.settle().await.unwrap();
    })
}

#[test]
fn one_object_goes_with_its_service() {
    let (name, controllers) = ("endpoints::one_object_goes_with_its_service", "endpoints-controller");
    exhaust(&Story { name, controllers, drive: the_service_goes, published: &[] }).assert();
}

async fn make_endpoints(plane: &ControlPlane, addresses: &[&str]) {
    let api: Api<Endpoints> = Api::default_namespaced(plane.client());
    let addresses: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let patch = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"},
        "subsets": [{"addresses": addresses, "ports": [{"port": 5432}]}]});
    api.patch("web", &PatchParams::apply("user").force(), &Patch::Apply(patch)).await.unwrap();
}

#[test]
fn hand_made_endpoints_are_mirrored() {
    let story = Story {
        name: "endpoints::hand_made_endpoints_are_mirrored",
        controllers: "endpointslice-mirroring-controller",
        drive: |plane| {
            Box::pin(async {
                make_service(plane, json!(null)).await;
                make_endpoints(plane, &["192.0.2.1", "192.0.2.2"]).await;
                plane.settle().await.unwrap();
                make_endpoints(plane, &["192.0.2.2", "192.0.2.3"]).await;
                plane.settle().await.unwrap();
            })
        },
        published: &["192.0.2.2", "192.0.2.3"],
    };
    exhaust(&story).assert();
}

#[test]
fn a_service_that_selects_pods_has_no_mirror() {
    let story = Story {
        name: "endpoints::a_service_that_selects_pods_has_no_mirror",
        controllers: "endpointslice-mirroring-controller",
        drive: |plane| {
            Box::pin(async {
                make_service(plane, json!(null)).await;
                make_endpoints(plane, &["192.0.2.1"]).await;
                plane.settle().await.unwrap();
                let services: Api<Service> = Api::default_namespaced(plane.client());
                let patch = Patch::Merge(json!({"spec": {"selector": {"app": "web"}}}));
                services.patch("web", &PatchParams::default(), &patch).await.unwrap();
                plane.settle().await.unwrap();
            })
        },
        published: &[],
    };
    exhaust(&story).assert();
}

#[test]
fn a_mirror_goes_with_its_endpoints() {
    let story = Story {
        name: "endpoints::a_mirror_goes_with_its_endpoints",
        controllers: "endpointslice-mirroring-controller",
        drive: |plane| {
            Box::pin(async {
                make_endpoints(plane, &["192.0.2.1"]).await;
                make_service(plane, json!(null)).await;
                plane.settle().await.unwrap();
                let api: Api<Endpoints> = Api::default_namespaced(plane.client());
                api.delete("web", &DeleteParams::default()).await.unwrap();
                plane.settle().await.unwrap();
            })
        },
        published: &[],
    };
    exhaust(&story).assert();
}

/// Four pods in one zone of two that have as many processors: two of them serve the other one, until its node is gone.
#[tokio::test(start_paused = true)]
async fn traffic_stays_in_its_zone_as_far_as_that_is_fair() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let _controllers = spawn(&plane, "endpointslice-controller");
    let nodes: Api<Node> = Api::all(plane.client());
    for (name, zone) in [("node-1", "z1"), ("node-2", "z2")] {
        nodes::make(&plane, name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})).await;
        let room = Patch::Merge(json!({"status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}}));
        nodes.patch_status(name, &PatchParams::default(), &room).await.unwrap();
    }
    make_service(&plane, json!({"app": "web"})).await;
    let services: Api<Service> = Api::default_namespaced(plane.client());
    let auto = Patch::Merge(json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}}));
    services.patch("web", &PatchParams::default(), &auto).await.unwrap();
    tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
    for name in ["one", "two", "three", "four"] {
        make_pod(&plane, name).await;
    }
    plane.settle().await.unwrap();
    let served = |plane: &ControlPlane| {
        let slices = plane.state().objects("discovery.k8s.io", "endpointslices");
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        let mut zones: Vec<String> = endpoints
            .filter(|endpoint| endpoint["targetRef"]["kind"] == "Pod")
            .map(|endpoint| endpoint["hints"]["forZones"][0]["name"].as_str().unwrap_or("any").to_owned())
            .collect();
        zones.sort();
        zones
    };
    assert_eq!(served(&plane), ["z1", "z1", "z2", "z2"]);
    nodes.delete("node-2", &DeleteParams::default()).await.unwrap();
    plane.settle().await.unwrap();
    assert_eq!(served(&plane), ["any"; 4], "one zone is no choice");
    let events = plane.state().objects("", "events");
    for reason in ["TopologyAwareHintsEnabled", "TopologyAwareHintsDisabled"] {
        assert!(events.iter().any(|event| event["reason"] == reason), "{reason}: {events:?}");
    }
}
