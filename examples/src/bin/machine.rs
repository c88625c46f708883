//! Runs the machines against the cluster of the current kubeconfig, in a cloud that is in this program's memory.

use std::error::Error;
use std::sync::Arc;

use setpoint_examples::machine::{self, Machine, MemoryCloud};
use setpoint_examples::program;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cloud = Arc::new(MemoryCloud::default());
    program::run::<Machine>("machine", |manager, settings| machine::add_to(manager, settings, cloud)).await
}
