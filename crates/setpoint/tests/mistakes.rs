//! Usual mistakes, and the whole of what is said about each: what is wrong, with what, why, and what to do next.

mod server;
mod session;
mod transcript;

#[test]
fn each_mistake_is_told_with_what_to_do() {
    session::run("mistakes/mistakes", &["up", "--nodes", "1"]);
    let text = include_str!("mistakes/mistakes.txt");
    let count = text.lines().filter(|line| line.starts_with("$ ")).count();
    assert!(count >= 60, "only {count} mistakes");
}
