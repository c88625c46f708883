//! The Python, JavaScript and Go clients, unchanged, each with a list of facts about a running server.

mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use server::Server;

#[test]
fn the_python_client_works() {
    let mut python = Command::new(server::tools().join("python/bin/python"));
    holds(python.arg(script("python.py")), &["server"], "xtask/tools/python.sh");
}

#[test]
fn the_go_clients_work() {
    let mut facts = Command::new(server::tools().join("bin/go-clients"));
    holds(&mut facts, &["up", "--nodes", "2"], "xtask/tools/go_clients.sh");
}

#[test]
fn the_javascript_client_works() {
    let modules = server::tools().join("node/node_modules");
    assert!(
        modules.join("@kubernetes/client-node").is_dir(),
        "the client is missing: `xtask/tools/node.sh` fetches it"
    );
    let mut node = Command::new("node");
    holds(node.arg(script("javascript.cjs")).env("NODE_PATH", modules), &["server"], "xtask/tools/node.sh");
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a program against a fresh control plane; `fetch` is what brings it to this machine.
fn holds(facts: &mut Command, plane: &[&str], fetch: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(plane, folder.path());
    let output = facts
        .env("KUBECONFIG", &server.kubeconfig)
        .output()
        .unwrap_or_else(|error| panic!("{facts:?}: {error}; `{fetch}` fetches it"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
