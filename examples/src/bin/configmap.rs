//! Runs the greetings against the cluster of the current kubeconfig.

use std::error::Error;

use setpoint_examples::configmap::{self, Greeting};
use setpoint_examples::program;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    program::run::<Greeting>("greeting", configmap::add_to).await
}
