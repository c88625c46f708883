//! Runs the thermostat against the cluster of the current kubeconfig.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt};
use setpoint_examples::thermostat::{self, Thermostat};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::manager::{Manager, ManagerOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let client = Client::try_default().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Patch::Apply(Thermostat::crd());
    definitions.patch(Thermostat::crd_name(), &PatchParams::apply("thermostat").force(), &definition).await?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let clock = Clock::starting_at(Timestamp::now());
    let manager = Manager::new(client, clock, Chance::seeded(seed.into()), ManagerOptions::default())?;
    thermostat::add_to(&manager)?;
    let stop = async {
        // Without signals there is nothing to wait for, and it ends.
        let _ = tokio::signal::ctrl_c().await;
    };
    manager.run(stop).await?;
    Ok(())
}
