//! `setpoint get -w` and `events -w`: what is there, then every change as it comes, over a restart of the server.

mod server;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use server::Server;

/// Longest wait for a line: far more than a watch takes to come back.
const LINE_MAX: Duration = Duration::from_secs(60);

fn setpoint(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).arg("--kubeconfig").arg(&server.kubeconfig).env("NO_PROXY", "*");
    command
}

fn run(server: &Server, arguments: &[&str]) {
    let output = setpoint(server, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A command that goes on, and its lines as they come.
struct Watching {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Watching {
    fn start(server: &Server, arguments: &[&str]) -> Watching {
        let mut command = setpoint(server, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Watching { child, out, err }
    }

    /// Compares the next line, in which what stands apart is parted by one space.
    fn expect(&self, expected: &str) {
        let line = self.out.recv_timeout(LINE_MAX).unwrap_or_else(|_| panic!("no line like {expected:?} came"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.join(" ").starts_with(expected), "{line:?}, expected {expected:?}");
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_again(server: Server, data: &Path) -> Server {
    let address = server.address();
    server.stop();
    Server::start_at(&address, &["server"], data, Stdio::null())
}

fn apply(server: &Server, folder: &Path, object: &str) {
    let file = folder.join("object.yaml");
    std::fs::write(&file, object).unwrap();
    run(server, &["apply", "-f", file.to_str().unwrap()]);
}

fn map(name: &str, keys: usize) -> String {
    let data: Vec<String> = (0..keys).map(|key| format!("k{key}: v")).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{}}}\n", data.join(", "))
}

fn event(name: &str, reason: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: {name}}}\nreason: {reason}\nmessage: it happened\ntype: Normal\n\
         involvedObject: {{kind: ConfigMap, name: first, namespace: default}}\n"
    )
}

#[test]
fn a_watch_shows_changes_and_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    apply(&server, folder.path(), &map("first", 1));
    apply(&server, folder.path(), &event("a", "Before"));
    let table = Watching::start(&server, &["get", "cm", "-w"]);
    let only = Watching::start(&server, &["get", "cm", "--watch-only", "--no-headers", "-l", "!nothing"]);
    let events = Watching::start(&server, &["events", "-w"]);
    table.expect("NAME DATA AGE");
    table.expect("first 1");
    events.expect("LAST SEEN TYPE REASON OBJECT MESSAGE");
    events.expect("<unknown> Normal Before ConfigMap/first it happened");
    // A watch that only shows what comes has to be there before it comes; it says nothing, so it is asked on and on.
    let mut keys = 1;
    let seen = loop {
        keys += 1;
        assert!(keys < 200, "the watch never began");
        apply(&server, folder.path(), &map("first", keys));
        if let Ok(line) = only.out.recv_timeout(Duration::from_millis(300)) {
            break line;
        }
    };
    assert!(seen.starts_with("first "), "{seen}");
    for count in 2..=keys {
        table.expect(&format!("first {count} "));
    }
    apply(&server, folder.path(), &event("b", "During"));
    events.expect("<unknown> Normal During ConfigMap/first it happened");

    let server = start_again(server, &data);
    apply(&server, folder.path(), &map("second", 3));
    apply(&server, folder.path(), &event("c", "After"));
    table.expect("second 3 ");
    events.expect("<unknown> Normal After ConfigMap/first it happened");
    run(&server, &["delete", "cm", "second"]);
    table.expect("second 3 ");
    apply(&server, folder.path(), &map("third", 0));
    table.expect("third 0 ");
    let warnings: Vec<String> = table.err.try_iter().collect();
    assert!(warnings.len() <= 1 && warnings.iter().all(|line| line.contains("it goes on when it can")), "{warnings:?}");
}

#[test]
fn a_watch_that_is_refused_ends() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    for arguments in [["get", "cm", "-w", "--as=nobody"].as_slice(), &["events", "-w", "--as=nobody"]] {
        let output = setpoint(&server, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("Forbidden") && said.contains("hint: "), "{arguments:?}: {said}");
    }
}
