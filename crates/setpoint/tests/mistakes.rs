//! Usual mistakes, and the whole of what is said about each: what is wrong, with what, why, and what to do next.

mod server;
mod session;
mod transcript;

/// Most lines about one mistake: what is longer is not read.
const LINES_MAX: usize = 6;

/// How kubectl and we begin to say what failed, and on what.
const OPENINGS: [&str; 4] = ["error: ", "Error from server", "The connection to the server ", "The "];

/// Fewer would not be the usual ones.
const MISTAKES_MIN: usize = 60;

#[test]
fn each_mistake_is_told_with_what_to_do() {
    session::run("mistakes/mistakes", &["up", "--nodes", "1"]);
}

#[test]
fn each_mistake_is_a_failure_with_a_next_step() {
    let text = include_str!("mistakes/mistakes.txt");
    let text = format!("\n{text}");
    let mistakes: Vec<&str> = text.split("\n$ ").skip(1).collect();
    assert!(mistakes.len() >= MISTAKES_MIN, "only {} mistakes", mistakes.len());
    for mistake in mistakes {
        let said: Vec<&str> =
            mistake.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with("# ")).collect();
        let fails = said.last().is_some_and(|last| last.starts_with('[') && last.ends_with(']') && *last != "[0]");
        assert!(fails, "this is no failure:\n{mistake}");
        assert!(said.iter().any(|line| line.starts_with("  hint: ")), "this has no next step:\n{mistake}");
        // The exit code is no line; two mistakes in one command have the room of two.
        let room = LINES_MAX * mistake.matches("  hint: ").count();
        assert!(said.len() - 1 <= room, "this is too long:\n{mistake}");
        let first = said.iter().find(|line| !line.contains(" INFO ")).copied().unwrap_or_default();
        assert!(OPENINGS.iter().any(|opening| first.starts_with(opening)), "this doesn't say what failed:\n{mistake}");
    }
}
