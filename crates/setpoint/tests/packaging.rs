//! What `make dist` and `make install` hand out, made from a binary that is there already.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn completion(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(["completion", shell]).output().unwrap();
    assert!(output.status.success(), "{shell}");
    String::from_utf8(output.stdout).unwrap()
}

/// Gives a text to a program, unless it isn't installed.
fn given(program: &str, arguments: &[&str], text: &str) -> Option<Output> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.ok()?;
    child.stdin.take()?.write_all(text.as_bytes()).ok()?;
    child.wait_with_output().ok()
}

#[test]
fn completions_are_right_for_their_shells() {
    let commands = ["up", "get", "apply", "why", "timeline", "backup", "fleet", "completion"];
    for (shell, check) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let text = completion(shell);
        for command in commands {
            assert!(text.contains(command), "{shell} doesn't know {command}");
        }
        // Where a shell is not installed, there is nobody to ask; bash always is.
        if let Some(output) = given(check, &["-n"], &text) {
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        } else {
            assert_ne!(shell, "bash");
        }
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = completion("bash");
    let check = |words: &str, count: usize, expected: &str| {
        let asked = format!(
            "{script}\nCOMP_WORDS=(setpoint {words}); COMP_CWORD={count}\n\
             _setpoint setpoint \"${{COMP_WORDS[{count}]}}\" \"${{COMP_WORDS[{count}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        );
        let output = given("bash", &[], &asked).expect("there is a shell");
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            words.lines().any(|word| word.trim() == expected),
            "{words:?} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    check("tim", 1, "timeline");
    check("get --show-l", 2, "--show-labels");
    check("fleet st", 2, "status");
}

#[test]
fn make_run_is_what_the_mistakes_are_told_of() {
    // A second one beside it ends as `setpoint up` on a data directory in use does: see `mistakes`.
    let output = Command::new("make")
        .args(["--no-print-directory", "-n", "run", "ARGS=--nodes 3"])
        .current_dir(root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.trim_end().ends_with("-- up --nodes 3"), "{text}");
}

#[test]
fn what_is_installed_is_where_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let binary = path("built");
    fs::write(&binary, format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_setpoint"))).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    let output = Command::new("make")
        .args(["pack", "put", "PREFIX=/opt/plane", &set("BUILT", &binary)])
        .args([set("DIST", &path("dist")), set("DESTDIR", &path("root"))])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let installed = path("root/opt/plane");
    for file in [
        "bin/setpoint",
        "share/bash-completion/completions/setpoint",
        "share/zsh/site-functions/_setpoint",
        "share/fish/vendor_completions.d/setpoint.fish",
        "share/man/man1/setpoint.1",
        "share/man/man1/setpoint-why.1",
        "lib/systemd/system/setpoint.service",
    ] {
        assert!(fs::metadata(installed.join(file)).is_ok_and(|found| found.len() > 0), "there is no {file}");
    }
    let unit = fs::read_to_string(installed.join("lib/systemd/system/setpoint.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/plane/bin/setpoint up --data-dir /var/lib/setpoint\n"), "{unit}");
    assert!(!unit.contains('@') && !unit.contains("/usr/local"), "{unit}");

    let checked =
        Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(path("dist")).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let sums = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(sums.contains("./bin/setpoint: OK") && sums.contains("./systemd/setpoint.service: OK"), "{sums}");
}
