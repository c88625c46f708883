//! What a person at a terminal sees and a pipe doesn't: colours, signs of life, the live view. The terminal is `script`'s.

mod server;

use std::io::Read;
use std::process::{Command, Stdio};

use server::Server;

/// A command with a terminal for all its streams. What it prints, both streams together, comes out of the pipe of `script`.
fn at_terminal(line: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "script", "-qec", line, "/dev/null"]);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn seen(line: &str, environment: &[(&str, &str)]) -> String {
    String::from_utf8_lossy(&at_terminal(line, environment).output().expect("`script` is there").stdout).into_owned()
}

fn piped(line: &str) -> String {
    let output = Command::new("bash").args(["-c", &format!("{line} 2>&1")]).env("TERM", "xterm-256color").output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

fn setpoint(server: &Server) -> String {
    format!("KUBECONFIG={} {}", server.kubeconfig.display(), env!("CARGO_BIN_EXE_setpoint"))
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let line = format!("{} doctor --data-dir {}", setpoint(&server), data.display());
    assert!(seen(&line, &[]).contains("\x1b[32m✓\x1b[0m data directory"), "{}", seen(&line, &[]));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = seen(&line, &[(name, value)]);
        assert!(plain.contains("✓ data directory") && !plain.contains("\x1b["), "{name}: {plain:?}");
    }
    let plain = piped(&line);
    assert!(plain.contains("✓ data directory") && !plain.contains('\x1b'), "{plain:?}");
}

#[test]
fn work_that_takes_long_shows_that_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    // Somebody who lets others connect and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let backup = format!(
        "timeout 2 {} backup --store etcd://{} --data-dir {} {}",
        env!("CARGO_BIN_EXE_setpoint"),
        silent.local_addr().unwrap(),
        folder.path().join("other").display(),
        folder.path().join("backup").display(),
    );
    let wait = format!("{} wait cm/none --for=create --timeout=1s", setpoint(&server));
    for (line, said) in [(&wait, "waiting for configmaps/none ("), (&backup, "opening etcd (")] {
        let shown = seen(line, &[]);
        assert!(shown.contains(&format!("\r\x1b[K- {said}")), "{line}: {shown:?}");
        assert!(!piped(line).contains(said), "{line}");
    }
    // Its line is wiped before what comes after it.
    let shown = seen(&wait, &[]);
    assert!(shown.contains("\r\x1b[Kerror: timed out waiting for the condition on configmaps/none"), "{shown:?}");
}

/// Reads what a command shows until `enough`, then ends it.
fn watched(line: &str, enough: impl Fn(&str) -> bool) -> String {
    let mut child = at_terminal(line, &[]).spawn().expect("`script` is there");
    let mut out = child.stdout.take().unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !enough(&text) {
        match out.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let _ = child.wait();
    text
}

#[test]
fn the_live_view_is_drawn_again_and_again_in_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up", "--nodes", "1"], &folder.path().join("data"));
    let line = format!("{} top --interval=200ms", setpoint(&server));
    let views = |text: &str| text.matches("(Ctrl-C ends)").count();
    let shown = watched(&line, |text| views(text) >= 2);
    assert!(views(&shown) >= 2, "{shown:?}");
    assert!(shown.matches("\x1b[H").count() >= 2 && shown.matches("\x1b[2J").count() == 1, "{shown:?}");
    for word in ["requests ", "CONTROLLER", "QUEUE", "RUNS/S"] {
        assert!(shown.contains(word), "{word}: {shown:?}");
    }
    let once = piped(&format!("{line} --once"));
    assert!(once.contains("CONTROLLER") && !once.contains('\x1b'), "{once}");
}
