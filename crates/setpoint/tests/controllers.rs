//! The controllers, the scheduler and simulated nodes as processes of their own.

mod server;

use std::process::Command;

use futures_util::StreamExt;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use server::{Part, Server};

#[tokio::test]
async fn they_work_against_a_server_as_they_are_set_and_give_their_lease_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let settings = ["controllers", "--set", "client.qps=200", "--set", "leaderElection.name=ours"];
    let controllers = Part::start(&settings, &server.kubeconfig);

    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client().await);
    let mut events = accounts.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    while !matches!(events.next().await.expect("an account is made").unwrap(), WatchEvent::Added(_)) {}
    let health = Command::new("curl").args(["-sS", &format!("{}/healthz", controllers.url)]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&health.stdout), "ok");
    let figures = Command::new("curl").args(["-sS", &format!("{}/metrics", controllers.url)]).output().unwrap();
    let figures = String::from_utf8_lossy(&figures.stdout).into_owned();
    let host = server.url();
    let host = host.trim_start_matches("https://");
    for begin in [
        r#"leader_election_master_status{name="ours"} 1"#,
        &format!(r#"rest_client_requests_total{{code="201",host="{host}",method="POST"}} "#),
        &format!(r#"rest_client_rate_limiter_duration_seconds_count{{verb="GET",host="{host}"}} "#),
        "process_resident_memory_bytes ",
    ] {
        assert!(figures.lines().any(|line| line.starts_with(begin)), "{begin}\nin\n{figures}");
    }

    assert_eq!(controllers.stop(), Some(0));
    let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-system");
    let spec = leases.get("ours").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.unwrap_or_default(), "");
}

#[test]
fn what_they_are_to_sign_and_publish_with_is_read_before_they_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["controllers", "--listen", "127.0.0.1:0", "--kubeconfig", "/nowhere"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = file("ca.crt", &authority.self_signed(&key).unwrap().pem());
    let other = file("other.key", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let old = file("old.key", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n");
    let check = |arguments: &[&str], expected: &str| {
        let found = said(arguments);
        assert!(found.contains(expected), "{found}");
    };
    check(&["--cluster-signing-cert-file", "/nowhere/ca.pem"], "can't sign certificates: /nowhere/ca.pem: ");
    check(&["--cluster-signing-cert-file", &certificate], "there is no key in it");
    check(&["--cluster-signing-cert-file", &certificate, "--cluster-signing-key-file", &old], "not in PKCS #8");
    check(
        &["--cluster-signing-cert-file", &certificate, "--cluster-signing-key-file", &other],
        "the key is not that of the certificate",
    );
    check(&["--cluster-signing-key-file", &other], "--cluster-signing-cert-file");
    check(&["--root-ca-file", &other], "there is no certificate in it");
    check(&["--service-account-private-key-file", "/nowhere/sa.key"], "can't use /nowhere/sa.key: ");
    check(&["--service-account-private-key-file", &old], "the key for service account tokens can't be used: ");
    check(&["--service-account-private-key-file", &certificate], "the key for service account tokens can't be used: ");
    check(&["--leader-elect-lease-duration", "5s"], "leaderElection.leaseDuration: must be greater than renewDeadline");
    check(&["--leader-elect-retry-period", "soon"], "expected a time such as 15s");
}

/// The token of an account in a Secret: made by another process, with the server's key, and taken by the server.
#[tokio::test]
async fn a_secret_for_a_token_is_filled_with_the_key_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let key = folder.path().join("pki/service-account.pem").display().to_string();
    let controllers = Part::start(&["controllers", "--service-account-private-key-file", &key], &server.kubeconfig);
    let client = server.client().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = serde_json::from_value(serde_json::json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let annotations = serde_json::json!({"kubernetes.io/service-account.name": "robot"});
    let secret = serde_json::json!({"metadata": {"name": "robot-token", "annotations": annotations},
        "type": "kubernetes.io/service-account-token"});
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let mut events = secrets.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    let data = loop {
        if let WatchEvent::Added(secret) | WatchEvent::Modified(secret) =
            events.next().await.expect("it is filled").unwrap()
            && let Some(data) = secret.data
        {
            break data;
        }
    };
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    assert_eq!(data["namespace"].0, b"default");
    assert!(data["ca.crt"].0.starts_with(b"-----BEGIN CERTIFICATE-----"));
    let review = serde_json::json!({"metadata": {}, "spec": {"token": token}});
    let reviews: Api<TokenReview> = Api::all(client);
    let review = reviews.create(&PostParams::default(), &serde_json::from_value(review).unwrap()).await.unwrap();
    let user = review.status.and_then(|status| status.user).and_then(|user| user.username);
    assert_eq!(user.as_deref(), Some("system:serviceaccount:default:robot"));
    assert_eq!(controllers.stop(), Some(0));
}

/// An API server alone, and everything else beside it: a pod is let in, placed and run, each by another process.
#[tokio::test]
async fn a_pod_comes_to_run_by_the_work_of_four_processes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let parts = [&["controllers"][..], &["scheduler"], &["node", "--simulated", "2"]];
    let running: Vec<Part> = parts.iter().map(|arguments| Part::start(arguments, &server.kubeconfig)).collect();

    let client = server.client().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let mut events = accounts.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    while !matches!(events.next().await.expect("an account is made").unwrap(), WatchEvent::Added(_)) {}
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod =
        serde_json::json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let mut events = pods.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    let placed = loop {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = events.next().await.expect("it runs").unwrap()
        else {
            continue;
        };
        if pod.status.and_then(|status| status.phase).as_deref() == Some("Running") {
            break pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        }
    };
    let nodes: Api<Node> = Api::all(client);
    let names: Vec<_> = nodes.list(&ListParams::default()).await.unwrap().items.into_iter().collect();
    let names: Vec<_> = names.into_iter().filter_map(|node| node.metadata.name).collect();
    assert_eq!(names, ["simulated-0", "simulated-1"]);
    assert!(names.contains(&placed), "{placed}");

    for part in running {
        assert_eq!(part.stop(), Some(0));
    }
}
