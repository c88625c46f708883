//! Runs the thermostat against the cluster of the current kubeconfig.

use std::error::Error;

use setpoint_examples::program;
use setpoint_examples::thermostat::{self, Thermostat};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    program::run::<Thermostat>("thermostat", thermostat::add_to).await
}
