//! What a person at a terminal sees and a pipe doesn't: colours, signs of life, the live view. The terminal is `script`'s.

mod server;

use std::io::{Read, Write};
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
    let asked = piped(&format!("{line} --color=always"));
    assert!(asked.contains("\x1b[32m✓\x1b[0m data directory"), "{asked:?}");
    let refused = seen(&format!("{line} --color=never"), &[]);
    assert!(refused.contains("✓ data directory") && !refused.contains("\x1b["), "{refused:?}");
}

#[test]
fn tables_are_cut_to_the_width_of_a_terminal_and_whole_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let line = format!("{} get clusterroles", setpoint(&server));
    let cut = seen(&format!("stty cols 40; {line}"), &[]);
    let lines: Vec<&str> = cut.lines().map(str::trim_end).collect();
    assert!(lines.len() > 10 && lines.iter().all(|line| line.chars().count() <= 40), "{cut}");
    assert!(lines.iter().any(|line| line.ends_with('…')), "{cut}");
    let whole = piped(&line);
    assert!(whole.lines().any(|line| line.chars().count() > 40) && !whole.contains('…'), "{whole}");
}

/// Types at a terminal once something is seen on it, and returns all that was seen, and how it ended.
fn typed(line: &str, once: &str, keys: &str) -> (String, Option<i32>) {
    let mut child = at_terminal(line, &[]).stdin(Stdio::piped()).spawn().expect("`script` is there");
    let (mut keyboard, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut text = until(&mut out, |text| text.contains(once));
    assert!(text.contains(once), "{line}: {text:?}");
    keyboard.write_all(keys.as_bytes()).unwrap();
    text += &until(&mut out, |_| false);
    drop(keyboard);
    (text, child.wait().unwrap().code())
}

#[test]
fn what_is_interrupted_leaves_a_clean_terminal_and_says_what_is_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let wait = format!("{} wait cm/none --for=create --timeout=50s", setpoint(&server));
    let (text, code) = typed(&wait, "waiting for configmaps/none (", "\x03");
    assert!(text.contains("\r\x1b[Kinterrupted: nothing was changed"), "{text:?}");
    assert_eq!(code, Some(130), "{text:?}");
    let watch = format!("{} get ns -w", setpoint(&server));
    let (text, code) = typed(&watch, "kube-system", "\x03");
    assert!(!text.contains("interrupted") && code == Some(130), "{code:?} {text:?}");
}

#[test]
fn whole_namespaces_and_everything_of_a_kind_go_only_after_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let make = |name: &str| {
        let map = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
        piped(&format!("echo '{map}' | {} apply -f -", setpoint(&server)))
    };
    let left = || piped(&format!("{} get cm -o name", setpoint(&server)));
    assert_eq!(make("a") + &make("b"), "configmap/a created\nconfigmap/b created\n");
    let all = format!("{} delete cm --all", setpoint(&server));
    let (text, code) = typed(&all, "(y/N): ", "n\n");
    assert!(text.contains("You are about to delete the following 2 resource(s):"), "{text:?}");
    assert!(text.contains("configmap/b") && text.contains("deletion is cancelled"), "{text:?}");
    assert_eq!((code, left().as_str()), (Some(0), "configmap/a\nconfigmap/b\n"));
    let (text, _) = typed(&format!("{} delete ns default", setpoint(&server)), "(y/N): ", "\n");
    assert!(text.contains("A namespace goes with everything that is in it."), "{text:?}");
    let (text, code) = typed(&all, "(y/N): ", "y\n");
    assert!(text.contains("configmap \"a\" deleted") && code == Some(0), "{text:?}");
    // One object is not much, `--yes` is an answer, and a script has nobody to ask.
    for (kept, line) in [("c", "delete cm c"), ("d", "delete cm --all --yes")] {
        make(kept);
        let text = seen(&format!("{} {line}", setpoint(&server)), &[]);
        assert!(text.contains("deleted") && !text.contains("(y/N)"), "{line}: {text:?}");
    }
    make("e");
    let text = piped(&format!("{all} < /dev/null"));
    assert!(text.contains("deleted") && !text.contains("(y/N)"), "{text:?}");
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
    let silent = silent.local_addr().unwrap();
    for words in
        ["get pods", "status", "tree deploy/web", "why deploy/web", "who-can get pods", "events", "fleet status"]
    {
        let line = format!("{} {words}", silenced(&server, &silent.to_string()));
        let shown = seen(&line, &[]);
        assert!(shown.contains(&format!("\r\x1b[K- waiting for {silent} (")), "{line}: {shown:?}");
    }
    let up = format!(
        "timeout 1 {} up --store etcd://{silent} --data-dir {}",
        env!("CARGO_BIN_EXE_setpoint"),
        folder.path().join("up").display()
    );
    let shown = seen(&up, &[]);
    assert!(shown.contains("\r\x1b[K- waiting for ") && shown.contains(&silent.to_string()), "{shown:?}");
    // Its line is wiped before what comes after it.
    let shown = seen(&wait, &[]);
    assert!(shown.contains("\r\x1b[Kerror: timed out waiting for the condition on configmaps/none"), "{shown:?}");
}

/// A command whose kubeconfig leads to somebody who never answers. It is ended after a second.
fn silenced(server: &Server, silent: &str) -> String {
    let read = std::fs::read_to_string(&server.kubeconfig).unwrap();
    let lines = read.lines().map(|line| match line.split_once("server: ") {
        Some((before, _)) => format!("{before}server: https://{silent}\n"),
        None => format!("{line}\n"),
    });
    let file = server.kubeconfig.with_file_name("silent.kubeconfig");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    format!("KUBECONFIG={} timeout 1 {}", file.display(), env!("CARGO_BIN_EXE_setpoint"))
}

/// Reads what is shown until `enough`, or to the end.
fn until(out: &mut impl Read, enough: impl Fn(&str) -> bool) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !enough(&text) {
        match out.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
    text
}

/// Reads what a command shows until `enough`, then ends it.
fn watched(line: &str, enough: impl Fn(&str) -> bool) -> String {
    let mut child = at_terminal(line, &[]).spawn().expect("`script` is there");
    let text = until(&mut child.stdout.take().unwrap(), enough);
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
