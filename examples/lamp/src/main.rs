use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::manager::{Manager, ManagerOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let client = Client::try_default().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("lamp").force();
    definitions.patch(lamp::Lamp::crd_name(), &params, &Patch::Apply(lamp::Lamp::crd())).await?;

    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let (clock, chance) = (Clock::starting_at(Timestamp::now()), Chance::seeded(seed.into()));
    let manager = Manager::new(client, clock, chance, ManagerOptions::default())?;
    lamp::add_to(&manager)?;
    manager.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
