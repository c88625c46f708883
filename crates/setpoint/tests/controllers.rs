//! The controllers as a process of their own.

mod server;

use std::process::Command;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use server::{Part, Server};

#[tokio::test]
async fn they_work_against_a_server_and_give_their_lease_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let controllers = Part::start(&["controllers"], &server.kubeconfig);

    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client().await);
    let mut events = accounts.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    while !matches!(events.next().await.expect("an account is made").unwrap(), WatchEvent::Added(_)) {}
    let health = Command::new("curl").args(["-sS", &format!("{}/healthz", controllers.url)]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&health.stdout), "ok");

    assert_eq!(controllers.stop(), Some(0));
    let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-system");
    let spec = leases.get("setpoint-controllers").await.unwrap().spec.unwrap();
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
    check(&["--leader-elect-lease-duration", "5s"], "leaderElection.leaseDuration: must be greater than renewDeadline");
    check(&["--leader-elect-retry-period", "soon"], "expected a time such as 15s");
}
