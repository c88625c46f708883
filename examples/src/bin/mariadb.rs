//! Runs the databases against the cluster of the current kubeconfig.

use std::error::Error;

use ring::rand::SystemRandom;
use setpoint_examples::mariadb::{self, MariaDB};
use setpoint_examples::program;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    program::run::<MariaDB>("mariadb", |manager, settings| mariadb::add_to(manager, settings, password)).await
}

/// 144 bits that nobody can guess.
fn password() -> String {
    let bits: ring::rand::Random<[u8; 18]> = ring::rand::generate(&SystemRandom::new()).expect("a source of chance");
    bits.expose().iter().map(|byte| format!("{byte:02x}")).collect()
}
