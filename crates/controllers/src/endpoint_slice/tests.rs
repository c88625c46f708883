//! Facts of how pods are put into slices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde_json::{Value, json};

use super::endpoint::Backend;
use super::plan::{Owner, Plan, plan, wanted};
use crate::backend;
use crate::claim::reference_to;
use crate::pod::Pod;

fn service(extra: Value) -> Service {
    let mut spec = json!({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
        "ports": [{"name": "web", "port": 80, "targetPort": "http"}], "selector": {"app": "web"}});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "s", "creationTimestamp": "2026-01-01T00:00:00Z"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// The n-th pod: `ready`, `unready` or `going`.
fn pod(n: usize, how: &str) -> Pod {
    let ready = if how == "unready" { "False" } else { "True" };
    let deleted = (how == "going").then_some("2026-01-01T00:00:30Z");
    let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:09Z"}]);
    serde_json::from_value(json!({
        "metadata": {"name": format!("p{n:04}"), "namespace": "shop", "uid": format!("u{n}"), "deletionTimestamp": deleted},
        "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "conditions": conditions,
            "podIPs": [{"ip": format!("10.0.{}.{}", n / 250, n % 250)}, {"ip": format!("fd00::{n:x}")}]},
    }))
    .unwrap()
}

fn many(numbers: std::ops::Range<usize>) -> Vec<Pod> {
    numbers.map(|n| pod(n, "ready")).collect()
}

fn planned(service: &Service, pods: &[Pod], slices: &[Arc<EndpointSlice>]) -> Plan {
    let backends: Vec<_> = pods.iter().map(|pod| Backend { pod, zone: Some("z1".to_owned()) }).collect();
    let owner = Owner { service, reference: &reference_to(service).unwrap(), manager: super::MANAGER };
    plan(&owner, wanted(service, &backends), &backend::families(service), slices)
}

/// The slices that are there once a plan is carried out.
fn after(plan: Plan, before: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
    let name = |slice: &EndpointSlice| slice.metadata.name.clone();
    let touched: Vec<_> = plan.update.iter().map(name).chain(plan.delete.iter().map(|slice| name(slice))).collect();
    let mut slices: Vec<_> = before.iter().filter(|slice| !touched.contains(&name(slice))).cloned().collect();
    slices.extend(plan.update.into_iter().map(Arc::new));
    for (n, mut slice) in plan.create.into_iter().enumerate() {
        slice.metadata.name = Some(format!("web-{}-{n}", before.len()));
        slices.push(Arc::new(slice));
    }
    slices
}

fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

fn writes(plan: &Plan) -> (usize, usize, usize) {
    (plan.create.len(), plan.update.len(), plan.delete.len())
}

#[test]
fn slices_hold_a_hundred_and_change_seldom() {
    let service = service(json!({}));
    let first = planned(&service, &many(0..250), &[]);
    assert_eq!(writes(&first), (3, 0, 0));
    let slices = after(first, &[]);
    assert_eq!(writes(&planned(&service, &many(0..250), &slices)), (0, 0, 0));
    // One goes: one slice changes. One comes: the fullest with room takes it.
    let fewer = planned(&service, &many(1..250), &slices);
    assert_eq!(writes(&fewer), (0, 1, 0));
    let slices = after(fewer, &slices);
    let more = planned(&service, &many(1..251), &slices);
    assert_eq!((writes(&more), endpoints(&more.update[0]).len()), ((0, 1, 0), 100));
    // All go: one empty slice is left.
    let none = planned(&service, &[], &slices);
    assert_eq!(writes(&none), (0, 1, 2));
    assert!(endpoints(&none.update[0]).is_empty());
    let slices = after(none, &slices);
    assert_eq!(writes(&planned(&service, &[], &slices)), (0, 0, 0));
}

#[test]
fn slices_tell_which_change_of_a_pod_led_to_them() {
    let made = |plan: &Plan| {
        let slices = plan.create.iter().chain(&plan.update).cloned();
        let annotations = slices.map(|slice| slice.metadata.annotations.unwrap_or_default());
        annotations.map(|all| all.get(backend::TRIGGER_TIME).cloned()).collect::<Vec<_>>()
    };
    let web = service(json!({}));
    let empty = planned(&web, &[], &[]);
    assert_eq!(made(&empty), [Some("2026-01-01T00:00:00Z".to_owned())], "the first is there because the Service is");
    let slices = after(empty, &[]);
    let one = planned(&web, &[pod(1, "ready")], &slices);
    assert_eq!(made(&one), [Some("2026-01-01T00:00:09Z".to_owned())]);
    let slices = after(one, &slices);
    let renamed = service(json!({"ports": [{"name": "other", "port": 80, "targetPort": "http"}]}));
    let ports = planned(&renamed, &[pod(1, "ready")], &slices);
    assert_eq!(made(&ports), [None], "no pod has changed");
    let unready = planned(&web, &[pod(1, "unready")], &slices);
    assert_eq!(made(&unready), [Some("2026-01-01T00:00:09Z".to_owned())]);
}

#[test]
fn conditions_tell_ready_serving_and_terminating() {
    for (how, extra, expected) in [
        ("ready", json!({}), [true, true, false]),
        ("unready", json!({}), [false, false, false]),
        ("going", json!({}), [false, true, true]),
        ("unready", json!({"publishNotReadyAddresses": true}), [true, false, false]),
        ("going", json!({"publishNotReadyAddresses": true}), [true, true, true]),
    ] {
        let plan = planned(&service(extra), &[pod(1, how)], &[]);
        let endpoint = &endpoints(&plan.create[0])[0];
        let said = endpoint.conditions.clone().unwrap();
        assert_eq!([said.ready, said.serving, said.terminating], expected.map(Some), "{how}");
        assert_eq!((endpoint.zone.as_deref(), endpoint.node_name.as_deref()), (Some("z1"), Some("n")));
    }
}

#[test]
fn each_family_has_its_slices() {
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let made = planned(&both, &[pod(1, "ready")], &[]);
    let kinds: Vec<_> =
        made.create.iter().map(|slice| (&*slice.address_type, &*endpoints(slice)[0].addresses[0])).collect();
    assert_eq!(kinds, [("IPv4", "10.0.0.1"), ("IPv6", "fd00::1")]);
    let slices = after(made, &[]);
    assert_eq!(writes(&planned(&service(json!({})), &[pod(1, "ready")], &slices)), (0, 0, 1));
}

#[test]
fn labels_follow_the_service_and_older_services_are_forgotten() {
    let mut service = service(json!({"clusterIP": "None"}));
    let made = planned(&service, &[], &[]);
    let labels = made.create[0].metadata.labels.clone().unwrap();
    assert_eq!(labels[backend::HEADLESS], "");
    assert_eq!(labels[super::SERVICE_NAME], "web");
    let slices = after(made, &[]);
    service.metadata.labels = Some([("tier".to_owned(), "front".to_owned())].into());
    let relabelled = planned(&service, &[], &slices);
    assert_eq!(
        (writes(&relabelled), &*relabelled.update[0].metadata.labels.as_ref().unwrap()["tier"]),
        ((0, 1, 0), "front")
    );
    service.metadata.uid = Some("other".to_owned());
    assert_eq!(writes(&planned(&service, &[], &slices)), (1, 0, 1));
}

#[test]
fn hints_keep_traffic_close() {
    let hints = |how: &str, distribution: &str| {
        let plan = planned(&service(json!({ "trafficDistribution": distribution })), &[pod(1, how)], &[]);
        serde_json::to_value(&endpoints(&plan.create[0])[0].hints).unwrap()
    };
    assert_eq!(hints("ready", "PreferClose"), json!({"forZones": [{"name": "z1"}]}));
    assert_eq!(hints("ready", "PreferSameNode"), json!({"forZones": [{"name": "z1"}], "forNodes": [{"name": "n"}]}));
    assert_eq!(hints("unready", "PreferClose"), json!(null));
    assert_eq!(hints("ready", "Anywhere"), json!(null));
}

#[test]
fn a_pod_that_is_over_or_has_no_address_is_in_no_slice() {
    let mut over = pod(1, "ready");
    over.status.phase = "Succeeded".into();
    let mut early = pod(2, "ready");
    early.status.addresses = Box::default();
    let plan = planned(&service(json!({})), &[over, early], &[]);
    assert_eq!((writes(&plan), endpoints(&plan.create[0]).len()), ((1, 0, 0), 0));
}
