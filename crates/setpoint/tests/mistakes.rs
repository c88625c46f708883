//! Usual mistakes, and the whole of what is said about each: what is wrong, with what, why, and what to do next.

mod server;
mod session;
mod transcript;

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
    }
}
