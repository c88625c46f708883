//! The controllers as a process of their own.

mod server;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use rustix::process::{Pid, Signal, kill_process};
use server::Server;

/// Killed if the test ends before it was stopped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn they_work_against_a_server_and_give_their_lease_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut controllers = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["controllers", "--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(&server.kubeconfig)
        .env_remove("SETPOINT_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .unwrap();
    let mut line = String::new();
    BufReader::new(controllers.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("running ").unwrap_or_else(|| panic!("it doesn't run: {line:?}"));

    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client().await);
    let mut events = accounts.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
    while !matches!(events.next().await.expect("an account is made").unwrap(), WatchEvent::Added(_)) {}
    let health = Command::new("curl").args(["-sS", &format!("{url}/healthz")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&health.stdout), "ok");

    kill_process(Pid::from_child(&controllers.0), Signal::TERM).unwrap();
    assert_eq!(controllers.0.wait().unwrap().code(), Some(0));
    let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-system");
    let spec = leases.get("setpoint-controllers").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.unwrap_or_default(), "");
}
