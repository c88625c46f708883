//! The Python and JavaScript clients, unchanged, each with a list of facts about a running server.

mod server;

use std::path::Path;
use std::process::Command;

use server::Server;

#[test]
fn the_python_client_works() {
    run(&server::tools().join("python/bin/python"), "python.py", "xtask/tools/python.sh");
}

#[test]
fn the_javascript_client_works() {
    let modules = server::tools().join("node/node_modules");
    assert!(
        modules.join("@kubernetes/client-node").is_dir(),
        "the client is missing: `xtask/tools/node.sh` fetches it"
    );
    run(Path::new("node"), "javascript.cjs", "xtask/tools/node.sh");
}

/// Runs a script on a fresh server; `fetch` is what brings its interpreter and libraries to this machine.
fn run(interpreter: &Path, script: &str, fetch: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let output = Command::new(interpreter)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script))
        .env("KUBECONFIG", &server.kubeconfig)
        .env("NODE_PATH", server::tools().join("node/node_modules"))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `{fetch}` fetches it", interpreter.display()));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
