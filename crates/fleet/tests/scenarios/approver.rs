//! Of two keys that come with one token one is let in, whatever happens to who decides.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{self, Vehicle};
use setpoint_fleet_protocol::enrolment::{Proof, Token, message};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};
use tokio::time::sleep;

use crate::process::{approver, exhaust};
use crate::story::{create, get, wish};

const GROUP: &str = "certificates.k8s.io";

fn token() -> Token {
    Token::parse(&"1".repeat(64)).unwrap()
}

/// Asks for a certificate, with the token.
async fn ask(plane: &ControlPlane, name: &str) {
    hand_in(plane, name, &KeyPair::generate().unwrap(), |request| token().vouch(request)).await;
}

/// Asks for a certificate of a key, with what vouches for it.
async fn hand_in(plane: &ControlPlane, name: &str, key: &KeyPair, vouch: impl FnOnce(&str) -> Proof) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "system:vehicle:default:car");
    params.distinguished_name.push(DnType::OrganizationName, "system:vehicles");
    let request = params.serialize_request(key).unwrap().pem().unwrap();
    let proof = vouch(&request).text();
    let request = json!({
        "metadata": {"name": name, "annotations": {"fleet.setpoint.dev/proof": proof}},
        "spec": {
            "request": ByteString(request.into_bytes()), "signerName": "fleet.setpoint.dev/vehicle",
            "usages": ["client auth", "digital signature"], "expirationSeconds": CERTIFICATE.as_secs(),
        },
    });
    let api: Api<CertificateSigningRequest> = Api::all(plane.client());
    api.create(&PostParams::default(), &serde_json::from_value(request).unwrap()).await.unwrap();
}

struct TwoKeys;

impl Scenario for TwoKeys {
    fn name(&self) -> &'static str {
        "approver::of_two_keys_with_one_token_one_is_let_in"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            kinds::install(&plane.client()).await.unwrap();
            let token = json!({"key": token().key(), "expires": "2026-01-02T00:00:00Z"});
            let spec = json!({"hardwareId": "ecu-1", "access": {"token": token}});
            create::<Vehicle>(plane, json!({"metadata": {"name": "car"}, "spec": spec})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        approver(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            ask(plane, "first").await;
            plane.settle().await.unwrap();
            ask(plane, "second").await;
        })
    }

    /// Never more than one key counts.
    fn invariant(&self, state: &State) -> Result<(), String> {
        let access = get(state, "vehicles", "car")["spec"]["access"].clone();
        let keys = access["keys"].as_array().map_or(0, Vec::len);
        if keys <= 1 { Ok(()) } else { Err(format!("{keys} keys count: {access}")) }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let said = |name: &str| {
            let request = state.object(GROUP, "certificatesigningrequests", "", name).unwrap_or_default();
            request["status"]["conditions"][0]["type"].clone()
        };
        let access = get(state, "vehicles", "car")["spec"]["access"].clone();
        if access["usedToken"] != token().key() {
            return Err(format!("the token was not used up: {access}"));
        }
        match (said("first"), said("second")) == (json!("Approved"), json!("Denied")) {
            true => Ok(()),
            false => Err(format!("the first is {}, the second {}", said("first"), said("second"))),
        }
    }

    /// Keys are drawn anew in each run.
    fn view(&self, mut object: Value) -> Option<Value> {
        for pointer in ["/spec/access/keys", "/spec/request", "/metadata/annotations", "/metadata/managedFields"] {
            if let Some(value) = object.pointer_mut(pointer) {
                *value = Value::Null;
            }
        }
        Some(object)
    }
}

#[test]
fn of_two_keys_with_one_token_one_is_let_in() {
    exhaust(&TwoKeys).assert();
}

/// A vehicle that is off for longer than its certificate counts.
struct Away;

/// What the owner of a key says for a request.
fn by_key(key: &KeyPair, request: &str) -> Proof {
    let rng = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.serialize_der(), &rng).unwrap();
    Proof::Key(pair.sign(&rng, &message(request)).unwrap().as_ref().to_vec())
}

const HOUR: Duration = Duration::from_secs(3600);
/// As short as it may be asked for, and more: a run of the kit lasts a day at most.
const CERTIFICATE: Duration = HOUR;

impl Scenario for Away {
    fn name(&self) -> &'static str {
        "approver::a_vehicle_that_was_away_comes_back_by_its_key_within_its_time"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async { kinds::install(&plane.client()).await.unwrap() })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        approver(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let keys: Vec<KeyPair> = (0..4).map(|_| KeyPair::generate().unwrap()).collect();
            let token = json!({"key": token().key(), "expires": "2036-01-02T00:00:00Z"});
            let spec = json!({"hardwareId": "ecu-1", "access": {"token": token, "returnWithin": "2h"}});
            create::<Vehicle>(plane, json!({"metadata": {"name": "car"}, "spec": spec})).await;
            hand_in(plane, "first", &keys[0], |request| self::token().vouch(request)).await;
            plane.settle().await.unwrap();
            // An hour after its certificate has expired it comes back by the key of it.
            sleep(CERTIFICATE + HOUR).await;
            hand_in(plane, "back", &keys[1], |request| by_key(&keys[0], request)).await;
            plane.settle().await.unwrap();
            // Three hours are too long, for either key that is known.
            sleep(CERTIFICATE + 3 * HOUR).await;
            hand_in(plane, "late", &keys[2], |request| by_key(&keys[1], request)).await;
            hand_in(plane, "later", &keys[3], |request| by_key(&keys[0], request)).await;
            plane.settle().await.unwrap();
            // Somebody who lets it stay away for longer has let it in.
            wish(plane, "car", json!({"access": {"returnWithin": "4h"}})).await;
            hand_in(plane, "let", &keys[2], |request| by_key(&keys[1], request)).await;
            plane.settle().await.unwrap();
            wish(plane, "car", json!({"access": {"revoked": true}})).await;
            hand_in(plane, "revoked", &keys[3], |request| by_key(&keys[2], request)).await;
        })
    }

    /// Never more than the newest key and the one before it count, and until when is said.
    fn invariant(&self, state: &State) -> Result<(), String> {
        let access = get(state, "vehicles", "car")["spec"]["access"].clone();
        let keys = access["keys"].as_array().map_or(0, Vec::len);
        let is_said = keys == 0 || access["keysUntil"].is_string();
        if keys <= 2 && is_said { Ok(()) } else { Err(format!("{keys} keys count: {access}")) }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for (name, expected, why) in [
            ("first", "Approved", "vouches"),
            ("back", "Approved", "vouches"),
            ("late", "Denied", "needs a token now"),
            ("later", "Denied", "needs a token now"),
            ("let", "Approved", "vouches"),
            ("revoked", "Denied", "its access is revoked"),
        ] {
            let request = state.object(GROUP, "certificatesigningrequests", "", name).unwrap_or_default();
            let said = &request["status"]["conditions"][0];
            let message = said["message"].as_str().unwrap_or_default();
            if said["type"] != expected || !message.contains(why) {
                return Err(format!("{name} is {said}"));
            }
        }
        Ok(())
    }

    fn view(&self, mut object: Value) -> Option<Value> {
        // Until when a key counts, and who is told so, follows from when it was asked for.
        for pointer in ["/spec/access/keysUntil", "/status/conditions/0/message"] {
            if let Some(value) = object.pointer_mut(pointer) {
                *value = Value::Null;
            }
        }
        TwoKeys.view(object)
    }
}

#[test]
fn a_vehicle_that_was_away_comes_back_by_its_key_within_its_time() {
    exhaust(&Away).assert();
}
