//! `setpoint fleet enrol`: what a vehicle needs to connect, in a folder.

use std::path::{Path, PathBuf};

use serde_json::json;
use setpoint_fleet::certificate;
use setpoint_fleet_protocol::{Party, VehicleName};

use crate::failure::{Failure, say};
use crate::{alone, hub};

/// Writes a key, a certificate for it, the authority of hubs, and a configuration of the agent.
pub async fn run(kubeconfig: Option<&PathBuf>, namespace: &str, vehicle: &str, out: &Path) -> Result<(), Failure> {
    let name = VehicleName::new(namespace, vehicle)
        .ok_or_else(|| Failure::usage(format!("can't enrol {vehicle}"), "this is no name of a vehicle"))?;
    let config = alone::config(kubeconfig).await?;
    let authority = hub::authority_of(&config)?;
    let client = kube::Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    let issued = certificate::of_party(&client, &Party::Vehicle(name.clone()))
        .await
        .map_err(|error| Failure::new(format!("can't get a certificate for {name}"), error))?;
    let unable = |error| Failure::new(format!("can't write to {}", out.display()), error);
    std::fs::create_dir_all(out).map_err(unable)?;
    hub::private(&out.join("key.pem"), &issued.key).map_err(unable)?;
    std::fs::write(out.join("certificate.pem"), issued.certificate).map_err(unable)?;
    std::fs::write(out.join("ca.pem"), authority).map_err(unable)?;
    let hubs: Vec<String> = hub::url_beside(kubeconfig).into_iter().collect();
    let config = json!({
        "vehicle": name.to_string(), "hardwareId": "", "hubs": hubs, "data": "data",
        "ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem", "root": "root.json", "initialVersion": "",
    });
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    let file = out.join("agent.json");
    std::fs::write(&file, text + "\n").map_err(unable)?;
    say(&format!(
        "wrote {}: fill in its hardware and its root, then run setpoint-edge-agent --config with it",
        file.display()
    ));
    Ok(())
}
