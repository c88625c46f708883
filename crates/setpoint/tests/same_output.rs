//! `setpoint get`, `events`, `apply`, `delete` and `wait` beside the real kubectl: the same words give the same output and the
//! same exit code.

mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use server::Server;

/// Ages tick between two runs; so often a comparison is tried again.
const TRIES: usize = 5;

/// Fewer comparisons than this would be a mistake in the file, not a choice.
const COMPARED_MIN: usize = 100;

struct World {
    work: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl World {
    /// Runs a program with words as a shell reads them.
    fn run(&self, program: &Path, words: &str) -> Output {
        let line = format!("\"$0\" {words}");
        let mut command = Command::new("timeout");
        command.args(["60", "bash", "-c", &line]).arg(program).current_dir(&self.work);
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home).env("LC_ALL", "C");
        command.output().expect("there is a shell")
    }
}

fn kubectl() -> PathBuf {
    let fetched = server::tools().join("bin/kubectl");
    if fetched.exists() { fetched } else { PathBuf::from("kubectl") }
}

fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    format!("[{}]\n{text}--\n{}", output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr))
}

/// The lines of a file that are no comments.
fn lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() >= COMPARED_MIN, "only {} invocations", lines.len());
    lines
}

fn world(folder: &Path, home: &Path, server: &Server) -> World {
    let world = World { work: folder.to_owned(), home: home.to_owned(), kubeconfig: server.kubeconfig.clone() };
    for file in ["definition.yaml", "objects.yaml"] {
        let made = world.run(&kubectl(), &format!("create -f {file}"));
        assert!(made.status.success(), "{}", shown(&made));
    }
    world
}

#[test]
fn the_same_words_give_what_kubectl_gives() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/same_output");
    let world = world(&folder, home.path(), &server);
    let (kubectl, own) = (kubectl(), Path::new(env!("CARGO_BIN_EXE_setpoint")).to_owned());
    let text = std::fs::read_to_string(folder.join("invocations.txt")).unwrap();
    let mut report = String::new();
    for line in lines(&text) {
        let mut last = None;
        let same = (0..TRIES).any(|_| {
            let (expected, found) = (world.run(&kubectl, line), world.run(&own, line));
            let same = expected.stdout == found.stdout && expected.status.code() == found.status.code();
            last = Some((expected, found));
            same
        });
        if let (false, Some((expected, found))) = (same, last) {
            report += &format!("\n$ {line}\nkubectl {}setpoint {}", shown(&expected), shown(&found));
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// What a program wrote, without what each server gives out for itself.
fn comparable(output: &Output) -> String {
    let own = ["uid", "resourceVersion", "creationTimestamp", "time"];
    let is_own = |line: &str| {
        let name = line.trim_start().trim_start_matches("- ").split(':').next().unwrap_or_default();
        own.contains(&name.trim_matches('"'))
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| !is_own(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Writes can't be tried twice on one server: each program has its own, and both go the same way.
#[test]
fn the_same_words_do_what_kubectl_does() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = homes.each_ref().map(|home| Server::start(&home.path().join("data")));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/same_output");
    let worlds = [0, 1].map(|at| world(&folder, homes[at].path(), &servers[at]));
    let (kubectl, own) = (kubectl(), Path::new(env!("CARGO_BIN_EXE_setpoint")).to_owned());
    let text = std::fs::read_to_string(folder.join("writes.txt")).unwrap();
    let mut report = String::new();
    for line in lines(&text) {
        if let Some(line) = line.strip_prefix("+ ") {
            let codes = worlds.each_ref().map(|world| world.run(&kubectl, line).status.code());
            assert_eq!(codes[0], codes[1], "{line}");
            continue;
        }
        let (expected, found) = std::thread::scope(|scope| {
            let expected = scope.spawn(|| worlds[0].run(&kubectl, line));
            let found = worlds[1].run(&own, line);
            (expected.join().expect("it ends"), found)
        });
        if comparable(&expected) != comparable(&found) || expected.status.code() != found.status.code() {
            report += &format!("\n$ {line}\nkubectl {}setpoint {}", shown(&expected), shown(&found));
        }
    }
    assert!(report.is_empty(), "{report}");
}
