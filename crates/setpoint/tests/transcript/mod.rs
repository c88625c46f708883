//! Shell sessions as text: commands after `$`, then what they print.
//!
//! ```text
//! # A comment.
//! $ kubectl get configmaps --all-namespaces -o name
//! configmap/<any>
//! ...
//! $ kubectl create -f - <<EOF
//! {}
//! EOF
//! error: ...
//! [1]
//! ```
//! Standard output and standard error come merged. A line `...` stands for any number of lines, `[N]` for the exit code N (0
//! when absent), and words like `<age>` for any text of that form. Columns may be wider or narrower than written.

#![allow(dead_code)] // each test binary has its own copy of this module and needs only a part of it

mod pattern;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Longest time one command may take, so that a command that hangs is a failure and not a stall.
const COMMAND_SECONDS_MAX: &str = "60";

/// Set to write what commands really print into the transcript instead of failing; the difference is then read in review.
const UPDATE: &str = "UPDATE_TRANSCRIPTS";

/// One command with what it should print.
#[derive(Default)]
struct Step {
    line: usize,
    /// Comments and blank lines before the command, kept for an update.
    preamble: Vec<String>,
    command: Vec<String>,
    expected: Vec<String>,
    code: i32,
}

/// Runs every command of the transcript at `path`, in order, each by a shell in `folder` with `environment`.
pub fn run(path: &Path, folder: &Path, environment: &[(&str, String)]) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut steps = parse(&text);
    assert!(!steps.is_empty(), "{} has no commands", path.display());
    let mode = Mode { same: pattern::matches, written: pattern::generalize, clean: &str::to_owned };
    let report = perform(&mut steps, &path.display().to_string(), &mode, folder, environment);
    if report.is_empty() {
        return;
    }
    if updates() {
        std::fs::write(path, render(&steps)).expect("the transcript can be written");
    } else {
        panic!("{report}\n`{UPDATE}=1` writes what was printed into the transcript");
    }
}

/// Runs the commands of a block of a page, whose first line is `line` of `name`; `clean` takes out of the output what is this
/// run's own. Returns what differs, and the block with what was printed.
pub fn run_block(
    block: &str,
    name: &str,
    line: usize,
    clean: &dyn Fn(&str) -> String,
    folder: &Path,
    environment: &[(&str, String)],
) -> (String, String) {
    let mut steps = parse(block);
    steps.iter_mut().for_each(|step| step.line += line - 1);
    let mode = Mode { same: pattern::matches_seen, written: str::to_owned, clean };
    let report = perform(&mut steps, name, &mode, folder, environment);
    (report, render(&steps))
}

/// Whether what is printed is written down instead of compared.
pub fn updates() -> bool {
    std::env::var_os(UPDATE).is_some()
}

/// How output is compared, and how it is written down.
struct Mode<'a> {
    same: fn(&[String], &[String]) -> bool,
    written: fn(&str) -> String,
    clean: &'a dyn Fn(&str) -> String,
}

/// Runs steps, and puts what they printed where it is not what was expected. Returns what differed.
fn perform(steps: &mut [Step], name: &str, mode: &Mode<'_>, folder: &Path, environment: &[(&str, String)]) -> String {
    let mut report = String::new();
    for step in steps {
        let (said, code) = shell(&step.command.join("\n"), folder, environment);
        let said: Vec<String> = said.iter().map(|line| (mode.clean)(line)).collect();
        if (mode.same)(&step.expected, &said) && code == step.code {
            continue;
        }
        writeln!(report, "\n{name}:{}\n  {}", step.line, step.command.join("\n  ")).expect("a string takes any text");
        describe(&mut report, step, &said, code);
        step.expected = said.iter().map(|line| (mode.written)(line)).collect();
        step.code = code;
    }
    report
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut preamble = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(command) = line.strip_prefix("$ ") {
            let mut command = vec![command.to_owned()];
            while let Some(end) = unfinished(&command) {
                let (_, next) =
                    lines.next().unwrap_or_else(|| panic!("line {}: no {end:?} ends this command", number + 1));
                command.push(next.to_owned());
            }
            steps.push(Step { line: number + 1, preamble: std::mem::take(&mut preamble), command, ..Step::default() });
        } else if line.starts_with("# ") {
            preamble.push(line.to_owned());
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).and_then(|code| code.parse().ok()) {
                Some(code) => step.code = code,
                None => step.expected.push(line.trim_end().to_owned()),
            }
        }
    }
    steps.iter_mut().for_each(|step| trim_blank(&mut step.expected));
    steps
}

/// What still has to come before the command is whole: the word that ends its here-document, or one more line after `\`.
fn unfinished(command: &[String]) -> Option<&str> {
    let last = command.last()?;
    if let Some((_, rest)) = command[0].split_once("<<") {
        let word = rest.split([' ', ';', ')', '|']).next().unwrap_or(rest).trim_matches('\'');
        return (command.len() == 1 || last != word).then_some(word);
    }
    last.ends_with('\\').then_some("\\")
}

fn shell(command: &str, folder: &Path, environment: &[(&str, String)]) -> (Vec<String>, i32) {
    let output = Command::new("timeout")
        .args([COMMAND_SECONDS_MAX, "bash", "-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<_> = text.lines().map(|line| line.trim_end().to_owned()).collect();
    trim_blank(&mut lines);
    (lines, output.status.code().unwrap_or(-1))
}

fn trim_blank(lines: &mut Vec<String>) {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
}

fn describe(report: &mut String, step: &Step, said: &[String], code: i32) {
    let same = pattern::common_lines(&step.expected, said);
    let lines = step.expected[..same].iter().map(|line| (' ', line));
    let lines = lines.chain(step.expected[same..].iter().map(|line| ('-', line)));
    // After a `...` the lines of both sides no longer count the same, so all that was printed is shown.
    let shown = if step.expected[..same].iter().any(|line| line == "...") { 0 } else { same };
    for (mark, line) in lines.chain(said[shown..].iter().map(|line| ('+', line))) {
        writeln!(report, "  {mark} {line}").expect("a string takes any text");
    }
    if code != step.code {
        writeln!(report, "  exit code {code}, expected {}", step.code).expect("a string takes any text");
    }
}

fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let blank = (!step.preamble.is_empty() && !text.is_empty()).then(String::new);
        let command = step.command.join("\n");
        let code = (step.code != 0).then(|| format!("[{}]", step.code));
        let lines = blank.iter().chain(&step.preamble).cloned().chain([format!("$ {command}")]);
        for line in lines.chain(step.expected.iter().cloned()).chain(code) {
            writeln!(text, "{line}").expect("a string takes any text");
        }
    }
    text
}
