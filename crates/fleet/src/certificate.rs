//! Certificates for vehicles, gateways and hubs: a key of one's own, a request, and the answer of the signer.

use std::fmt;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::json;
use setpoint_fleet_protocol::{Party, hex};
use setpoint_runtime::retry;
use tokio::time::{Instant, sleep};

use crate::approver;

/// How long a certificate of a vehicle lives: it is renewed at two thirds of it.
pub(crate) const LIFE_SECONDS: i32 = 30 * 24 * 3600;

/// The organization of hubs.
const HUBS_GROUP: &str = "system:fleet-hubs";

/// How long the signer may take, and how often it is looked for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Why there is no certificate.
#[derive(Debug)]
pub enum CertificateError {
    /// What the API server said.
    Api(kube::Error),
    /// The key or the request could not be made.
    Make(rcgen::Error),
    /// The signer said no, in these words.
    Refused(String),
    /// Nobody signed it.
    Unanswered,
    /// The hub that was to be asked could not be.
    Unreached(std::io::Error),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::Api(error) => error.fmt(formatter),
            CertificateError::Make(error) => error.fmt(formatter),
            CertificateError::Refused(why) => write!(formatter, "the request was refused: {why}"),
            CertificateError::Unanswered => {
                formatter.write_str("no controller signed the request within half a minute")
            }
            CertificateError::Unreached(error) => write!(formatter, "the hub was not reached: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

impl From<kube::Error> for CertificateError {
    fn from(error: kube::Error) -> Self {
        CertificateError::Api(error)
    }
}

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> Self {
        CertificateError::Make(error)
    }
}

/// A certificate for a vehicle or a gateway, approved by who asks.
pub async fn of_party(client: &Client, party: &Party) -> Result<Issued, CertificateError> {
    let (name, organization) = party.subject();
    let signer = match party {
        Party::Vehicle(_) => approver::SIGNER,
        Party::Gateway { .. } => "fleet.setpoint.dev/gateway",
    };
    issue(client, Wanted { name: &name, organization, alternatives: Vec::new(), signer, usage: "client auth" }).await
}

/// A certificate for a hub that is reached by these names and addresses.
pub async fn of_hub(client: &Client, name: &str, reached_by: &[String]) -> Result<Issued, CertificateError> {
    let alternatives = CertificateParams::new(reached_by.to_vec())?.subject_alt_names;
    let (name, organization) = (&format!("system:fleet-hub:{name}"), HUBS_GROUP);
    issue(client, Wanted { name, organization, alternatives, signer: "fleet.setpoint.dev/hub", usage: "server auth" })
        .await
}

/// Until when the first of some certificates in PEM counts.
#[must_use]
pub fn expires(certificate: &str) -> Option<Timestamp> {
    let (_, until) = crate::hub::serve::validity(certificate)?;
    Timestamp::from_second(until).ok()
}

/// The public half of a key in PEM, in hexadecimal: what stands for it in the spec of a vehicle.
pub fn public_key(key: &str) -> Result<String, CertificateError> {
    Ok(hex::encode(KeyPair::from_pem(key)?.public_key_raw()))
}

/// The certificate that a vehicle asks for, with what vouches for it; none while nobody has decided. Asking again with the same is not
/// asking twice.
pub(crate) async fn of_request(
    client: &Client,
    request: &str,
    proof: &str,
    patience: Duration,
) -> Result<Option<String>, CertificateError> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let identity = ring::digest::digest(&ring::digest::SHA256, format!("{proof}\n{request}").as_bytes());
    let name = format!("vehicle-{}", hex::encode(&identity.as_ref()[..16]));
    let annotations = [(approver::PROOF.to_owned(), proof.to_owned())].into();
    let metadata = ObjectMeta { name: Some(name.clone()), annotations: Some(annotations), ..ObjectMeta::default() };
    let spec = spec(request, approver::SIGNER, "client auth");
    match api.create(&PostParams::default(), &CertificateSigningRequest { metadata, spec, status: None }).await {
        Err(error) if !retry::is_already_exists(&error) => return Err(error.into()),
        _ => {}
    }
    match answer(&api, &name, patience).await {
        Err(CertificateError::Unanswered) => Ok(None),
        answer => answer.map(Some),
    }
}

/// A key for a party, and the request for its certificate, both in PEM: for who has a token that vouches for it.
pub(crate) fn request_of_party(party: &Party) -> Result<(String, String), CertificateError> {
    let key = KeyPair::generate()?;
    let (name, organization) = party.subject();
    let request = request(&key, &name, organization, Vec::new())?;
    Ok((key.serialize_pem(), request))
}

/// The key of a hub, and the request for its certificate, both in PEM: for who has the authority at hand.
pub fn request_of_hub(name: &str, reached_by: &[String]) -> Result<(String, String), CertificateError> {
    let alternatives = CertificateParams::new(reached_by.to_vec())?.subject_alt_names;
    let key = KeyPair::generate()?;
    let request = request(&key, &format!("system:fleet-hub:{name}"), HUBS_GROUP, alternatives)?;
    Ok((key.serialize_pem(), request))
}

fn request(key: &KeyPair, name: &str, organization: &str, alternatives: Vec<SanType>) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.subject_alt_names = alternatives;
    params.serialize_request(key)?.pem()
}

struct Wanted<'a> {
    name: &'a str,
    organization: &'a str,
    alternatives: Vec<SanType>,
    signer: &'a str,
    usage: &'a str,
}

async fn issue(client: &Client, wanted: Wanted<'_>) -> Result<Issued, CertificateError> {
    let key = KeyPair::generate()?;
    let request = request(&key, wanted.name, wanted.organization, wanted.alternatives)?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let spec = spec(&request, wanted.signer, wanted.usage);
    let metadata = ObjectMeta { generate_name: Some("fleet-".to_owned()), ..ObjectMeta::default() };
    let made = api.create(&PostParams::default(), &CertificateSigningRequest { metadata, spec, status: None }).await?;
    let name = made.metadata.name.unwrap_or_default();
    let approval = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "Requested", "message": "approved by who asked for it",
    }]}});
    api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(approval)).await?;
    let answer = answer(&api, &name, PATIENCE).await;
    // It has served; what is left is cleared away in an hour in any case.
    let _ = api.delete(&name, &DeleteParams::default()).await;
    Ok(Issued { certificate: answer?, key: key.serialize_pem() })
}

fn spec(request: &str, signer: &str, usage: &str) -> CertificateSigningRequestSpec {
    CertificateSigningRequestSpec {
        expiration_seconds: Some(LIFE_SECONDS),
        request: ByteString(request.as_bytes().to_vec()),
        signer_name: signer.to_owned(),
        usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
        ..CertificateSigningRequestSpec::default()
    }
}

async fn answer(
    api: &Api<CertificateSigningRequest>,
    name: &str,
    patience: Duration,
) -> Result<String, CertificateError> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        let status = api.get(name).await?.status.unwrap_or_default();
        let is_no = |kind: &str| matches!(kind, "Failed" | "Denied");
        let failed = status.conditions.iter().flatten().find(|condition| is_no(&condition.type_));
        if let Some(failed) = failed {
            return Err(CertificateError::Refused(failed.message.clone().unwrap_or_default()));
        }
        if let Some(certificate) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
            return Ok(String::from_utf8_lossy(&certificate.0).into_owned());
        }
        sleep(LOOK_PAUSE).await;
    }
    Err(CertificateError::Unanswered)
}
