//! Sessions with the real kubectl, each on a fresh server: what users type, and what they know to come back.

mod server;
mod transcript;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use server::Server;

/// One test for each transcript in a folder, so that they run side by side and fail by name. Each has a server of its own,
/// started by this command.
macro_rules! sessions {
    ($folder:ident $command:expr; $($name:ident)*) => {
        mod $folder {
            $(#[test]
            fn $name() {
                super::session(stringify!($folder), stringify!($name), &$command);
            })*

            #[test]
            fn every_transcript_is_run() {
                super::compare(stringify!($folder), &[$(concat!(stringify!($name), ".txt")),*]);
            }
        }
    };
}

// The API server alone: nothing changes what a session made.
sessions! { kubectl ["server"];
    access
    apply
    approval
    bounds
    change
    create
    custom_apply
    custom_deletion
    custom_kinds
    custom_versions
    delete
    describe
    discovery
    get
    kinds
    mistakes
    namespaces
    nodes
    server_side_apply
    services
    waiting
    watch
}

// The whole control plane with three simulated nodes: what is written comes true.
sessions! { kubectl_up ["up", "--nodes", "3"];
    cascade
    certificates
    crashes
    daemonset
    deployment
    devices
    disruption
    endpoints
    fleet
    jobs
    logs
    missing
    namespace
    node_faults
    nodes
    resize
    statefulset
    textbook
    tokens
    volumes
}

// The same with settings, so that a node that dies is given up soon.
sessions! { kubectl_dying ["up", "--nodes", "3", "--config", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl_dying/config.yaml")];
    node_dies
}

fn session(folder: &str, name: &str, command: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let desk = home.path().join("desk");
    std::fs::create_dir(&desk).unwrap();
    let server = Server::start_as(command, &home.path().join("data"));
    let own = Path::new(env!("CARGO_BIN_EXE_setpoint")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let search = format!("{}:{}:{path}", kubectl_folder().display(), own.display());
    let environment = [
        ("PATH", search),
        ("HOME", desk.display().to_string()),
        ("KUBECONFIG", server.kubeconfig.display().to_string()),
    ];
    transcript::run(&transcripts(folder).join(name).with_extension("txt"), &desk, &environment);
}

fn compare(folder: &str, run: &[&str]) {
    let run: BTreeSet<_> = run.iter().map(|name| (*name).to_owned()).collect();
    let files = std::fs::read_dir(transcripts(folder)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<_> = names.filter(|name| name.ends_with(".txt")).collect();
    assert_eq!(run, there);
}

fn transcripts(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)
}

/// The kubectl that was fetched for tests, or else the one of this machine.
fn kubectl_folder() -> PathBuf {
    let fetched = server::tools().join("bin");
    let there = |program: &Path| Command::new(program).args(["version", "--client"]).output().is_ok();
    let found = there(&fetched.join("kubectl")) || there(Path::new("kubectl"));
    assert!(found, "there is no kubectl on this machine: `xtask/tools/kubectl.sh` fetches one");
    fetched
}
