//! A rollout of ten replicas keeps its bounds at every moment.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use setpoint_runtime::cache::{Event, Informer, InformerOptions, Target};
use setpoint_testkit::{ControlPlane, Kubelet};

use crate::process::spawn;
use crate::story::{create, expect, patch, template};

/// What is seen of all pods after every single change of one.
#[derive(Default)]
struct Seen {
    pods: std::collections::BTreeMap<String, bool>,
    /// Fewest available and most pods since the last look.
    fewest: Option<usize>,
    most: usize,
}

impl Seen {
    fn note(&mut self, event: &Event<Pod>) {
        let pod = event.object();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        match event {
            Event::Deleted { .. } => self.pods.remove(&name),
            // A pod that is going counts for nothing: neither as available nor as too many.
            _ if pod.metadata.deletion_timestamp.is_some() => self.pods.remove(&name),
            _ => self.pods.insert(name, is_ready),
        };
        let available = self.pods.values().filter(|is_ready| **is_ready).count();
        self.fewest = Some(self.fewest.unwrap_or(available).min(available));
        self.most = self.most.max(self.pods.len());
    }

    /// Fewest available and most pods since the last look.
    fn look(&mut self) -> (usize, usize) {
        let available = self.pods.values().filter(|is_ready| **is_ready).count();
        let seen = (self.fewest.unwrap_or(available), self.most);
        self.fewest = Some(available);
        self.most = self.pods.len();
        seen
    }
}

#[tokio::test(start_paused = true)]
async fn ten_replicas_are_never_fewer_than_eight_nor_more_than_thirteen() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let _kubelet = tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
    let _controllers = spawn(&plane, "replicaset,deployment");
    let target = Target::of::<Pod>(&(), None);
    let pods = Informer::<Pod>::new(plane.client(), target, InformerOptions::default(), &plane.chance());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noted = seen.clone();
    let _told = pods.add_handler(Box::new(move |event| noted.lock().unwrap().note(event)), None);
    let watching = pods.clone();
    tokio::spawn(async move { watching.run_until(std::future::pending()).await });

    let spec = json!({"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template("web:1")});
    create::<Deployment>(
        &plane,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}),
    )
    .await;
    plane.settle().await.unwrap();
    assert_eq!(seen.lock().unwrap().look(), (0, 10));

    for image in ["web:2", "web:3"] {
        patch::<Deployment>(&plane, "web", json!({"spec": {"template": template(image)}})).await;
        plane.settle().await.unwrap();
        let (fewest, most) = seen.lock().unwrap().look();
        assert!(fewest >= 8, "{fewest} were available");
        assert!(most <= 13, "{most} were there");
        let status = plane.state().object("apps", "deployments", "default", "web").unwrap()["status"].clone();
        expect("updated", status["updatedReplicas"].clone(), 10).unwrap();
        expect("available", status["availableReplicas"].clone(), 10).unwrap();
    }

    // In the middle of a rollout it becomes larger, then its template changes again.
    patch::<Deployment>(&plane, "web", json!({"spec": {"template": template("web:4")}})).await;
    plane.advance(std::time::Duration::from_millis(2500)).await;
    patch::<Deployment>(&plane, "web", json!({"spec": {"replicas": 20}})).await;
    plane.advance(std::time::Duration::from_millis(500)).await;
    patch::<Deployment>(&plane, "web", json!({"spec": {"template": template("web:5")}})).await;
    plane.settle().await.unwrap();
    let (fewest, most) = seen.lock().unwrap().look();
    assert!(fewest >= 8, "{fewest} were available");
    assert!(most <= 25, "{most} were there");
    let status = plane.state().object("apps", "deployments", "default", "web").unwrap()["status"].clone();
    expect("updated", status["updatedReplicas"].clone(), 20).unwrap();
}

/// Of a controller whose caches are up to date. One that was started on old caches may act on what is no longer so.
#[tokio::test(start_paused = true)]
async fn recreation_never_has_old_and_new_pods_at_once() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let _kubelet = tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
    let _controllers = spawn(&plane, "replicaset,deployment");
    let target = Target::of::<Pod>(&(), None);
    let pods = Informer::<Pod>::new(plane.client(), target, InformerOptions::default(), &plane.chance());
    let mixed = Arc::new(Mutex::new(0));
    let (counted, lister) = (mixed.clone(), pods.lister());
    let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
    let handler = move |_: &Event<Pod>| {
        let images: std::collections::BTreeSet<_> = lister.snapshot().iter().map(|pod| image(pod)).collect();
        *counted.lock().unwrap() += usize::from(images.len() > 1);
    };
    let _told = pods.add_handler(Box::new(handler), None);
    let watching = pods.clone();
    tokio::spawn(async move { watching.run_until(std::future::pending()).await });
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("web:1"),
        "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0});
    create::<Deployment>(
        &plane,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}),
    )
    .await;
    plane.settle().await.unwrap();
    patch::<Deployment>(&plane, "web", json!({"spec": {"template": template("web:2")}})).await;
    plane.settle().await.unwrap();
    let images: Vec<_> = pods.lister().snapshot().iter().map(|pod| image(pod)).collect();
    assert_eq!(images, vec![Some("web:2".to_owned()); 3]);
    assert_eq!(plane.state().objects("apps", "replicasets").len(), 1, "no history is kept");
    assert_eq!(*mixed.lock().unwrap(), 0, "moments with pods of both templates");
}
