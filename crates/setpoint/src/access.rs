//! `setpoint fleet token` and `setpoint fleet revoke`: who is let in, and who is not any more.

use std::path::PathBuf;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_cli::refusal;
use setpoint_fleet::kinds::{AccessToken, Vehicle};
use setpoint_fleet_protocol::enrolment::Token;

use crate::alone;
use crate::failure::{Failure, say};
use crate::hub;

/// Makes a token with which a vehicle gets a certificate, once, and prints it. It is not kept anywhere.
pub async fn token(kubeconfig: Option<&PathBuf>, namespace: &str, vehicle: &str, hours: u16) -> Result<(), Failure> {
    let client = alone::client(kubeconfig).await?;
    say(&make_token(client, namespace, vehicle, hours).await?);
    Ok(())
}

/// The token, whose other half stands in the vehicle's spec from now on.
pub async fn make_token(client: kube::Client, namespace: &str, vehicle: &str, hours: u16) -> Result<String, Failure> {
    let unable = |why: &dyn std::fmt::Display| Failure::new("can't draw a token", why.to_string());
    let text = hub::draw_seed().map_err(|error| unable(&error))?;
    let token = Token::parse(&text).ok_or_else(|| unable(&"it is none"))?;
    let until = Timestamp::now().saturating_add(SignedDuration::from_hours(hours.into())).unwrap_or(Timestamp::MAX);
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    let said = AccessToken { key: token.key(), expires: Time(until) };
    change(client, namespace, vehicle, json!({ "token": said })).await?;
    Ok(text)
}

/// Ends the sessions of a vehicle and lets none of its certificates count, or lets them count again.
pub async fn revoke(kubeconfig: Option<&PathBuf>, namespace: &str, vehicle: &str, undo: bool) -> Result<(), Failure> {
    let client = alone::client(kubeconfig).await?;
    change(client, namespace, vehicle, json!({"revoked": !undo})).await?;
    say(&match undo {
        false => format!("{namespace}/{vehicle} is not let in any more"),
        true => format!("{namespace}/{vehicle} is let in again"),
    });
    Ok(())
}

/// Changes what the spec of a vehicle says about access.
pub async fn change(client: kube::Client, namespace: &str, vehicle: &str, access: Value) -> Result<(), Failure> {
    let api: Api<Vehicle> = Api::namespaced(client, namespace);
    let patch = Patch::Merge(json!({"spec": {"access": access}}));
    api.patch(vehicle, &PatchParams::default(), &patch)
        .await
        .map(drop)
        .map_err(|error| refusal(format!("can't change who is let in as {namespace}/{vehicle}"), &error))
}
