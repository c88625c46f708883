//! The cluster that `make cluster` starts.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::etcd_process::program;
use crate::parts::{PATIENCE, until};
use crate::server::tools;

/// As many ports one behind the other as the script takes, by what it says of itself.
const PORTS: u16 = 10;

#[tokio::test]
async fn a_whole_cluster_starts_works_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let first = free_ports();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/cluster/local.sh");
    let mut child = Command::new(script)
        .env("SETPOINT", env!("CARGO_BIN_EXE_setpoint"))
        .env("SETPOINT_ETCD", program())
        .env("SETPOINT_CLUSTER", folder.path())
        .env("SETPOINT_CLUSTER_PORT", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.next().unwrap().unwrap();
    assert!(ready.starts_with("ready https://127.0.0.1:"), "{ready}");
    let kubectl = |arguments: &[&str]| {
        let output = Command::new(tools().join("bin/kubectl"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(folder.path().join("server-1/admin.kubeconfig"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Nodes come by one process, and what namespaces need by another.
    until("three nodes", PATIENCE, async || {
        (kubectl(&["get", "nodes", "--output=name"]).lines().count() == 3).then_some(())
    })
    .await;
    until("a certificate to trust", PATIENCE, async || {
        kubectl(&["get", "configmap", "kube-root-ca.crt", "--output=name"]).contains("root-ca").then_some(())
    })
    .await;
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    child.wait().unwrap();
    assert!(said.last().is_some_and(|last| last.starts_with("stopped")), "{said:?}");
    // Nobody listens any more.
    for port in first..first + PORTS {
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}

/// The first of some ports in a row that nobody listens on.
fn free_ports() -> u16 {
    let is_free = |first: u16| {
        let held: Result<Vec<_>, _> =
            (first..first + PORTS).map(|port| TcpListener::bind(("127.0.0.1", port))).collect();
        held.is_ok()
    };
    // Below the ports that the kernel hands out, and elsewhere in each run.
    let begin = 20_000 + (std::process::id() % 800) as u16 * PORTS;
    (0..).map(|n| begin + n * PORTS).find(|first| is_free(*first)).unwrap()
}
