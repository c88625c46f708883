//! Lets simulated vehicles in, each by a token and a request of its own, as real ones are.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use ring::rand::SystemRandom;
use rustls::ClientConfig;
use serde_json::json;
use setpoint_fleet_protocol::enrolment::{ASK_BYTES_MAX, Ask, ENROL_PATH, Granted, Token};
use setpoint_fleet_protocol::{Party, VehicleName, hex};
use setpoint_runtime::retry;
use tokio::time::sleep;

use super::Options;
use super::drive::{secure, trusting};
use crate::certificate::{self, CertificateError, Issued};
use crate::kinds::{Access, AccessToken, Vehicle, VehicleSpec};

/// Vehicles that are let in at once: fewer than a hub takes.
const AT_ONCE: usize = 12;

/// How long a token counts.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// How often a hub is asked that says no or nothing, and how long the pauses are: it may not have seen the vehicle yet, or be full.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the vehicles known to the API server, each with a token, and gets a certificate for each from hubs, which are `HOST:PORT` each.
/// Those that there are get another token, and so another key.
pub async fn enrol_vehicles(
    client: &Client,
    options: &Options,
    hubs: &[String],
    authority: &str,
) -> Result<Vec<Issued>, CertificateError> {
    let config = trusting(authority).map_err(CertificateError::Unreached)?.with_no_client_auth();
    let tls = Arc::new(config);
    let enrol = |number: usize| {
        let (tls, hub) = (tls.clone(), &hubs[number % hubs.len()]);
        async move {
            let token = admit(client, options, number).await?;
            ask(options, number, &token, hub, tls).await
        }
    };
    stream::iter((0..options.count).map(enrol)).buffered(AT_ONCE).try_collect().await
}

/// Makes a vehicle with a token, or gives it another one.
async fn admit(client: &Client, options: &Options, number: usize) -> Result<Token, CertificateError> {
    let token = draw()?;
    let until = Timestamp::now().saturating_add(TOKEN_LIFE).unwrap_or(Timestamp::MAX);
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    let said = AccessToken { key: token.key(), expires: Time(until) };
    let api: Api<Vehicle> = Api::namespaced(client.clone(), &options.namespace);
    let name = options.name(number);
    let access = Access { token: Some(said.clone()), ..Access::default() };
    let spec = VehicleSpec { hardware_id: options.hardware_id.clone(), access: Some(access), ..VehicleSpec::default() };
    match api.create(&PostParams::default(), &Vehicle::new(&name, spec)).await {
        Err(error) if retry::is_already_exists(&error) => {
            let patch = Patch::Merge(json!({"spec": {"access": {"token": said}}}));
            api.patch(&name, &PatchParams::default(), &patch).await?;
        }
        made => drop(made?),
    }
    Ok(token)
}

fn draw() -> Result<Token, CertificateError> {
    let seed = ring::rand::generate::<[u8; 32]>(&SystemRandom::new()).ok();
    let token = seed.and_then(|seed| Token::parse(&hex::encode(&seed.expose())));
    token.ok_or_else(|| CertificateError::Refused("there is no chance to draw a token from".to_owned()))
}

/// Asks a hub for a certificate until it gives one.
async fn ask(
    options: &Options,
    number: usize,
    token: &Token,
    hub: &str,
    tls: Arc<ClientConfig>,
) -> Result<Issued, CertificateError> {
    let name = VehicleName::new(&options.namespace, &options.name(number));
    let name = name.ok_or_else(|| CertificateError::Refused("this is no name of a vehicle".to_owned()))?;
    let (key, request) = certificate::request_of_party(&Party::Vehicle(name))?;
    let proof = token.vouch(&request).text();
    let body = serde_json::to_vec(&Ask { request, proof }).unwrap_or_default();
    let mut why = CertificateError::Unanswered;
    for _ in 0..TRIES {
        match post(hub, tls.clone(), body.clone()).await {
            Ok((StatusCode::OK, answer)) => {
                let granted: Granted = serde_json::from_slice(&answer).unwrap_or_default();
                if !granted.certificate.is_empty() {
                    return Ok(Issued { certificate: granted.certificate, key });
                }
            }
            Ok((_, answer)) => why = CertificateError::Refused(String::from_utf8_lossy(&answer).into_owned()),
            Err(error) => why = CertificateError::Unreached(error),
        }
        sleep(PAUSE).await;
    }
    Err(why)
}

async fn post(hub: &str, tls: Arc<ClientConfig>, body: Vec<u8>) -> io::Result<(StatusCode, Bytes)> {
    let stream = secure(hub, tls).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::post(ENROL_PATH).header(http::header::HOST, hub).body(Full::new(Bytes::from(body)));
    let request = request.map_err(io::Error::other)?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ASK_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        Ok((head.status, body.to_bytes()))
    };
    tokio::pin!(connection);
    tokio::select! {
        answer = asking => answer,
        // It goes on for as long as there is something to ask.
        ended = &mut connection => Err(ended.err().map_or(io::ErrorKind::UnexpectedEof.into(), io::Error::other)),
    }
}
