//! `setpoint fleet enrol`: what a vehicle needs to connect, in a folder.

use std::path::{Path, PathBuf};

use serde_json::json;
use setpoint_fleet::certificate;
use setpoint_fleet_protocol::{Party, VehicleName};

use crate::failure::{Failure, say};
use crate::{access, alone, hub};

/// How long a token that is written down can be used, in hours.
const TOKEN_HOURS: u16 = 24 * 7;

/// Writes the authority of hubs, a configuration of the agent, and a key with its certificate, or a token for both.
pub async fn run(
    kubeconfig: Option<&PathBuf>,
    namespace: &str,
    vehicle: &str,
    out: &Path,
    with_token: bool,
) -> Result<(), Failure> {
    let name = VehicleName::new(namespace, vehicle)
        .ok_or_else(|| Failure::usage(format!("can't enrol {vehicle}"), "this is no name of a vehicle"))?;
    let config = alone::config(kubeconfig).await?;
    let authority = hub::authority_of(&config)?;
    let client = kube::Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    let unable = |error| Failure::new(format!("can't write to {}", out.display()), error);
    std::fs::create_dir_all(out).map_err(unable)?;
    let hubs: Vec<String> = hub::url_beside(kubeconfig).into_iter().collect();
    let mut config = json!({
        "vehicle": name.to_string(), "hardwareId": "", "hubs": hubs, "data": "data",
        "ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem", "root": "root.json", "initialVersion": "",
    });
    if with_token {
        let token = access::make_token(client, namespace, vehicle, TOKEN_HOURS).await?;
        hub::private(&out.join("token"), &token).map_err(unable)?;
        config["token"] = "token".into();
    } else {
        let issued = certificate::of_party(&client, &Party::Vehicle(name.clone()))
            .await
            .map_err(|error| Failure::new(format!("can't get a certificate for {name}"), error))?;
        hub::private(&out.join("key.pem"), &issued.key).map_err(unable)?;
        std::fs::write(out.join("certificate.pem"), &issued.certificate).map_err(unable)?;
        // From now on this key counts and no other, and vouches for the next one.
        let key = certificate::public_key(&issued.key).map_err(|why| Failure::new("can't use the key", why))?;
        access::change(client, namespace, vehicle, json!({"keys": [key]})).await?;
    }
    std::fs::write(out.join("ca.pem"), authority).map_err(unable)?;
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    let file = out.join("agent.json");
    std::fs::write(&file, text + "\n").map_err(unable)?;
    say(&format!(
        "wrote {}: fill in its hardware and its root, then run setpoint-edge-agent --config with it",
        file.display()
    ));
    Ok(())
}
