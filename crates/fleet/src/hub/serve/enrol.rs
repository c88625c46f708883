//! Requests for certificates: handed to the API server with what vouches for them, and the answer handed back.
//!
//! The hub decides nothing here: who approves reads the proof again. It only keeps out what would be refused anyway, so that nobody can
//! fill the API server with requests.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use k8s_openapi::jiff::SignedDuration;
use setpoint_fleet_protocol::Party;
use setpoint_fleet_protocol::enrolment::{ASK_BYTES_MAX, Ask, Granted, Proof};
use setpoint_runtime::Key;
use tokio::sync::Semaphore;

use super::renewal::validity;
use super::{Body, full, plain};
use crate::approver::judge::{Asked, Moment, Verdict, judge};
use crate::certificate::{self, CertificateError};
use crate::hub::{Credential, Hub};

/// Requests that are worked on at once: each costs a few calls to the API server.
const AT_ONCE: usize = 16;

/// How long an answer is waited for; a vehicle asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What requests have to do with each other.
pub struct Enrolments {
    places: Semaphore,
}

impl Default for Enrolments {
    fn default() -> Enrolments {
        Enrolments { places: Semaphore::new(AT_ONCE) }
    }
}

/// Answers a request, of somebody without a certificate or of a party with one.
pub async fn answer(
    hub: &Hub,
    enrolments: &Enrolments,
    caller: Option<(&Party, &Credential)>,
    request: Request<Incoming>,
) -> Response<Body> {
    let Ok(_place) = enrolments.places.try_acquire() else {
        return plain(StatusCode::TOO_MANY_REQUESTS, "too many ask at once");
    };
    let body = match Limited::new(request.into_body(), ASK_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return plain(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
    };
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => return plain(StatusCode::BAD_REQUEST, error.to_string()),
    };
    if let Err(why) = check(hub, caller, &ask) {
        return plain(StatusCode::FORBIDDEN, why);
    }
    match certificate::of_request(&hub.shared.client, &ask.request, &ask.proof, PATIENCE).await {
        Ok(certificate) => {
            let granted = granted(certificate.unwrap_or_default(), hub.now().as_second());
            Response::new(full(serde_json::to_vec(&granted).unwrap_or_default()))
        }
        Err(CertificateError::Refused(why)) => plain(StatusCode::FORBIDDEN, why),
        Err(error) => {
            tracing::warn!(%error, "a request for a certificate could not be handed on");
            plain(StatusCode::SERVICE_UNAVAILABLE, "the API server can't be asked")
        }
    }
}

fn granted(certificate: String, now: i64) -> Granted {
    let (from, until) = validity(&certificate).unwrap_or_default();
    Granted { certificate, from, until, now }
}

/// Why a request would be refused, by what this hub knows.
fn check(hub: &Hub, caller: Option<(&Party, &Credential)>, ask: &Ask) -> Result<(), String> {
    let proof = Proof::parse(&ask.proof).ok_or("the proof can't be read")?;
    let asked = Asked::read(ask.request.as_bytes())?;
    match (caller, &proof) {
        (None, Proof::Token(_)) => {}
        (Some((Party::Vehicle(own), _)), Proof::Key(_)) if *own == asked.vehicle => {}
        // One whose certificate has expired comes back by the key of it; judged below.
        (None, Proof::Key(_)) => {}
        (Some(_), _) => return Err("a vehicle renews its own certificate, by its own key".to_owned()),
    }
    let key = Key::namespaced(asked.vehicle.namespace(), asked.vehicle.name());
    let vehicle = hub.shared.vehicles.lister().get(key.as_str());
    let vehicle = vehicle.ok_or_else(|| format!("there is no vehicle {}", asked.vehicle))?;
    if caller.is_some_and(|(_, credential)| !vehicle.spec.admits(Some(&credential.key))) {
        return Err("the certificate doesn't count any more".to_owned());
    }
    let access = vehicle.spec.access.as_deref().cloned().unwrap_or_default();
    if caller.is_none() && matches!(proof, Proof::Key(_)) && access.keys_until.is_none() {
        return Err("a first certificate needs a token".to_owned());
    }
    let moment = Moment { now: hub.now(), life: SignedDuration::from_secs(certificate::LIFE_SECONDS.into()) };
    match judge(&access, &asked, &proof, moment) {
        Verdict::Refuse(why) => Err(why),
        Verdict::Grant | Verdict::GrantWith(_) => Ok(()),
    }
}
