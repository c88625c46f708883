//! Every process is restarted in order, one by one: clients go on, and so does what the control plane does.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use setpoint_runtime::cache::{Informer, InformerOptions, Target};
use setpoint_runtime::clock::Chance;

use crate::door::Door;
use crate::etcd_process::Cluster;
use crate::parts::{PATIENCE, run_pod, until};
use crate::server::{Part, Server, tools};
use crate::start;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_and_informers_go_on_while_every_process_is_restarted() {
    let (mut cluster, folder) = (Cluster::start(3), tempfile::tempdir().unwrap());
    let data = ["one", "other"].map(|name| folder.path().join(name));
    let mut servers: Vec<Server> = data.iter().map(|data| start(&cluster, &["server"], data)).collect();
    let door = Door::before(&servers).await;
    let kubeconfig = door.kubeconfig(&servers[0], folder.path());
    let client = client(&kubeconfig).await;
    let part = |kind: &str| Part::start(&[kind], &kubeconfig);
    let mut parts = ["controllers", "controllers", "scheduler", "scheduler"].map(|kind| (kind, Some(part(kind))));
    let _nodes = Part::start(&["node", "--simulated", "1"], &kubeconfig);

    let target = Target::of::<ConfigMap>(&(), None).labels("by=kubectl");
    let informer: Informer<ConfigMap> =
        Informer::new(client.clone(), target, InformerOptions::default(), &Chance::seeded(1));
    let following = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run_until(std::future::pending()).await }
    });
    let over = Arc::new(AtomicBool::new(false));
    let calling = tokio::task::spawn_blocking({
        let (kubeconfig, over) = (kubeconfig.clone(), Arc::clone(&over));
        move || call_until(&kubeconfig, &over)
    });

    run_pod(&client, "before").await;
    for at in 0..cluster.len() {
        cluster.stop(at);
        cluster.start_again(at);
        // The next one goes when this one is back: there is a majority at any time.
        until("a member that is back", PATIENCE, async || cluster.is_healthy(at).then_some(())).await;
    }
    run_pod(&client, "members").await;
    for (at, folder) in data.iter().enumerate() {
        servers.remove(0).stop();
        let new = start(&cluster, &["server"], folder);
        door.moved(at, &new);
        servers.push(new);
    }
    run_pod(&client, "servers").await;
    for (kind, running) in &mut parts {
        assert_eq!(running.take().map(Part::stop), Some(Some(0)), "{kind} ends in order");
        *running = Some(part(kind));
    }
    run_pod(&client, "parts").await;

    over.store(true, Ordering::Relaxed);
    let calls = calling.await.unwrap();
    assert!(calls > 3, "only {calls} calls");
    until("everything in the cache", PATIENCE, async || (informer.lister().len() == calls).then_some(())).await;
    following.abort();
}

/// A client of a kubeconfig.
async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Makes objects with kubectl and looks for them, one after another. Every call has to succeed; tells how many were made.
fn call_until(kubeconfig: &Path, over: &AtomicBool) -> usize {
    let kubectl = |arguments: &[&str]| {
        let output = Command::new(tools().join("bin/kubectl"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .output()
            .unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let mut made = 0;
    while !over.load(Ordering::Relaxed) {
        let name = format!("map-{made}");
        let map = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"by":"kubectl"}}}}}}"#
        );
        let file = kubeconfig.with_file_name("map.json");
        std::fs::write(&file, map).unwrap();
        kubectl(&["create", "--filename", file.to_str().unwrap()]);
        assert_eq!(kubectl(&["get", "configmap", &name, "--output=name"]), format!("configmap/{name}"));
        made += 1;
    }
    made
}
