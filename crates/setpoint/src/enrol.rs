//! `setpoint fleet enrol`: what a vehicle needs to connect, in a folder.

use std::path::PathBuf;

use kube::Api;
use serde_json::{Value, json};
use setpoint_cli::refusal;
use setpoint_fleet::certificate;
use setpoint_fleet::kinds::Vehicle;
use setpoint_fleet_protocol::{Party, VehicleName};

use crate::arguments::EnrolArguments;
use crate::failure::{Failure, say};
use crate::{access, alone, hub};

/// How long a token that is written down can be used, in hours.
const TOKEN_HOURS: u16 = 24 * 7;

/// Writes the authority of hubs, a configuration of the agent, and a key with its certificate, or a token for both.
pub async fn run(kubeconfig: Option<&PathBuf>, namespace: &str, asked: &EnrolArguments) -> Result<(), Failure> {
    let (vehicle, out) = (asked.vehicle.as_str(), asked.out.as_path());
    let name = VehicleName::new(namespace, vehicle)
        .ok_or_else(|| Failure::usage(format!("can't enrol {vehicle}"), "this is no name of a vehicle"))?;
    let config = alone::config(kubeconfig).await?;
    let authority = hub::authority_of(&config)?;
    let client = kube::Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    // Nothing is written for a vehicle that nobody has made.
    let vehicles: Api<Vehicle> = Api::namespaced(client.clone(), namespace);
    let known = vehicles.get(vehicle).await.map_err(|error| refusal(format!("can't enrol {name}"), &error))?;
    let hubs = hub::find(&client, kubeconfig, &asked.hub).await?;
    let root = asked.root.as_ref().map(std::fs::read).transpose();
    let root = root.map_err(|error| Failure::of_file("can't read the root metadata", &error))?;
    let unable = |error: std::io::Error| Failure::of_file(format!("can't write to {}", out.display()), &error);
    std::fs::create_dir_all(out).map_err(unable)?;
    let config = configuration(&name, &known, asked, &hubs);
    if asked.with_token {
        let token = access::make_token(client, namespace, vehicle, TOKEN_HOURS).await?;
        hub::private(&out.join("token"), &token).map_err(unable)?;
    } else {
        let issued = certificate::of_party(&client, &Party::Vehicle(name.clone()))
            .await
            .map_err(|error| Failure::new(format!("can't get a certificate for {name}"), error))?;
        hub::private(&out.join("key.pem"), &issued.key).map_err(unable)?;
        std::fs::write(out.join("certificate.pem"), &issued.certificate).map_err(unable)?;
        // From now on this key counts and no other, and vouches for the next one.
        let key = certificate::public_key(&issued.key).map_err(|why| Failure::new("can't use the key", why))?;
        let until = certificate::expires(&issued.certificate).map(|until| until.to_string());
        access::change(client, namespace, vehicle, json!({"keys": [key], "keysUntil": until})).await?;
    }
    if let Some(root) = &root {
        std::fs::write(out.join("root.json"), root).map_err(unable)?;
    }
    std::fs::write(out.join("ca.pem"), authority).map_err(unable)?;
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    let file = out.join("agent.json");
    std::fs::write(&file, text + "\n").map_err(unable)?;
    say(&told(&file.display().to_string(), &config, root.is_some() || asked.unsigned));
    Ok(())
}

/// What the agent reads. What nobody knows yet is empty.
fn configuration(name: &VehicleName, known: &Vehicle, asked: &EnrolArguments, hubs: &[String]) -> Value {
    let runs = known.status.as_ref().and_then(|status| status.firmware_version.clone());
    let mut config = json!({
        "vehicle": name.to_string(), "hardwareId": known.spec.hardware_id, "hubs": hubs,
        "data": "data", "ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem", "token": "token",
        "initialVersion": asked.initial_version.clone().or(runs).unwrap_or_default(),
    });
    match asked.unsigned {
        true => config["unsigned"] = true.into(),
        false => config["root"] = "root.json".into(),
    }
    config
}

/// What was written, and what is still to be done before the agent can start.
fn told(file: &str, config: &Value, has_root: bool) -> String {
    let mut left = Vec::new();
    if config["initialVersion"] == "" {
        left.push("say which version it was made with (`initialVersion`)");
    }
    if !has_root {
        left.push("put the root metadata beside it (`root.json`)");
    }
    let run = format!("`setpoint-edge-agent --config {file}` connects it");
    match left.is_empty() {
        true => format!("wrote {file}: {run}"),
        false => format!("wrote {file}: {}; then {run}", left.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_do_is_told() {
        let config = |version: &str| json!({"initialVersion": version});
        let run = "`setpoint-edge-agent --config a` connects it";
        assert_eq!(told("a", &config("1.0.0"), true), format!("wrote a: {run}"));
        assert_eq!(
            told("a", &config(""), false),
            format!(
                "wrote a: say which version it was made with (`initialVersion`), put the root metadata beside it \
                 (`root.json`); then {run}"
            )
        );
    }
}
