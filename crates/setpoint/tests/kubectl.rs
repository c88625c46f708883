//! Sessions with the real kubectl, each on a fresh server: what users type, and what they know to come back.

mod server;
mod transcript;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use server::Server;

/// One test for each transcript, so that they run side by side and fail by name.
macro_rules! sessions {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            session(stringify!($name));
        })*

        #[test]
        fn every_transcript_is_run() {
            let run: BTreeSet<_> = [$(concat!(stringify!($name), ".txt").to_owned()),*].into();
            let files = std::fs::read_dir(transcripts()).unwrap();
            let there: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            assert_eq!(run, there);
        }
    };
}

sessions! {
    access
    apply
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

fn session(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let server = Server::start(&folder.path().join("data"));
    let search = format!("{}:{}", kubectl_folder().display(), std::env::var("PATH").unwrap_or_default());
    let environment = [
        ("PATH", search),
        ("HOME", work.display().to_string()),
        ("KUBECONFIG", server.kubeconfig.display().to_string()),
    ];
    transcript::run(&transcripts().join(name).with_extension("txt"), &work, &environment);
}

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

/// The kubectl that was fetched for tests, or else the one of this machine.
fn kubectl_folder() -> PathBuf {
    let fetched = server::tools().join("bin");
    let there = |program: &Path| Command::new(program).args(["version", "--client"]).output().is_ok();
    let found = there(&fetched.join("kubectl")) || there(Path::new("kubectl"));
    assert!(found, "there is no kubectl on this machine: `xtask/tools/kubectl.sh` fetches one");
    fetched
}
