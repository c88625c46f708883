//! A control plane of its own for one transcript of our own commands.

use std::path::Path;

use crate::server::Server;
use crate::transcript;

/// Runs a transcript against what a command such as `up` starts.
pub fn run(name: &str, command: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let desk = home.path().join("desk");
    std::fs::create_dir(&desk).unwrap();
    let server = Server::start_as(command, &home.path().join("data"));
    let own = Path::new(env!("CARGO_BIN_EXE_setpoint")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let environment = [
        ("PATH", format!("{}:{path}", own.display())),
        ("HOME", desk.display().to_string()),
        ("KUBECONFIG", server.kubeconfig.display().to_string()),
        ("DATA", home.path().join("data").display().to_string()),
    ];
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("txt");
    transcript::run(&file, &desk, &environment);
}
