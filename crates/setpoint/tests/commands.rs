//! Sessions with our own commands on a whole control plane: what a person types without kubectl, and what kubectl lacks.

mod server;
mod session;
mod transcript;

#[test]
fn everyday() {
    session::run("commands/everyday", &["up", "--nodes", "3"]);
}

#[test]
fn understanding() {
    session::run("commands/understanding", &["up", "--nodes", "3"]);
}
