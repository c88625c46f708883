//! Of two keys that come with one token one is let in, whatever happens to who decides.

use futures_util::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{self, Vehicle};
use setpoint_fleet_protocol::enrolment::Token;
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{approver, exhaust};
use crate::story::{create, get};

const GROUP: &str = "certificates.k8s.io";

fn token() -> Token {
    Token::parse(&"1".repeat(64)).unwrap()
}

/// Asks for a certificate, with the token.
async fn ask(plane: &ControlPlane, name: &str) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "system:vehicle:default:car");
    params.distinguished_name.push(DnType::OrganizationName, "system:vehicles");
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let proof = token().vouch(&request).text();
    let request = json!({
        "metadata": {"name": name, "annotations": {"fleet.setpoint.dev/proof": proof}},
        "spec": {
            "request": ByteString(request.into_bytes()), "signerName": "fleet.setpoint.dev/vehicle",
            "usages": ["client auth", "digital signature"],
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
