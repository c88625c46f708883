//! Requests for certificates are signed and cleared away.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State};

use crate::process::{controllers, exhaust, exhaust_with};

const REQUEST: &[u8] = include_bytes!("certificates/request.pem");
const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const ALL: &str = "csrapproving,csrsigning,csrcleaner";

fn requests(plane: &ControlPlane) -> Api<CertificateSigningRequest> {
    Api::all(plane.client())
}

async fn ask(plane: &ControlPlane, name: &str, signer: &str, usages: &[&str]) {
    let request = k8s_openapi::ByteString(REQUEST.to_vec());
    let spec = json!({"request": request, "signerName": signer, "usages": usages});
    let request = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    requests(plane).create(&PostParams::default(), &request).await.unwrap();
}

async fn decide(plane: &ControlPlane, name: &str, decision: &str) {
    let time = plane.clock().time();
    let said =
        json!([{"type": decision, "status": "True", "reason": "Said", "message": "said", "lastUpdateTime": time}]);
    let patch = Patch::Merge(json!({"status": {"conditions": said}}));
    requests(plane).patch_approval(name, &PatchParams::default(), &patch).await.unwrap();
}

fn of(state: &State, name: &str) -> Value {
    state.object("certificates.k8s.io", "certificatesigningrequests", "", name).unwrap_or_default()
}

fn has(request: &Value, kind: &str) -> bool {
    request["status"]["conditions"].as_array().into_iter().flatten().any(|said| said["type"] == kind)
}

/// A request that was approved is signed; one that asks for too much fails; others wait for somebody to decide.
struct Asked;

impl Scenario for Asked {
    fn name(&self) -> &'static str {
        "certificates::what_is_approved_is_signed"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, ALL)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            ask(plane, "node", NODE_CLIENT, &["client auth", "digital signature"]).await;
            ask(plane, "undecided", "kubernetes.io/kube-apiserver-client", &["client auth"]).await;
            ask(plane, "too-much", "kubernetes.io/kube-apiserver-client", &["client auth", "server auth"]).await;
            ask(plane, "foreign", "example.com/signer", &["client auth"]).await;
            decide(plane, "node", "Approved").await;
            decide(plane, "too-much", "Approved").await;
            decide(plane, "foreign", "Approved").await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let issued = |name: &str| of(state, name)["status"]["certificate"].is_string();
        for (name, right) in [
            ("node", issued("node")),
            ("undecided", !issued("undecided") && !has(&of(state, "undecided"), "Approved")),
            ("too-much", !issued("too-much") && has(&of(state, "too-much"), "Failed")),
            ("foreign", !issued("foreign") && !has(&of(state, "foreign"), "Failed")),
        ] {
            if !right {
                return Err(of(state, name).to_string());
            }
        }
        Ok(())
    }
}

#[test]
fn what_is_approved_is_signed() {
    exhaust_with(&Asked, 0, Limits { still: Duration::from_secs(1200), ..Limits::default() }).assert();
}

/// What was decided goes after an hour, what wasn't after a day.
struct Old;

impl Scenario for Old {
    fn name(&self) -> &'static str {
        "certificates::old_requests_go"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            for name in ["denied", "issued", "young"] {
                ask(plane, name, "kubernetes.io/kube-apiserver-client", &["client auth"]).await;
            }
            decide(plane, "denied", "Denied").await;
            decide(plane, "issued", "Approved").await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, ALL)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.advance(Duration::from_secs(3 * 3600)).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = state.objects("certificates.k8s.io", "certificatesigningrequests");
        let names: Vec<_> = left.iter().map(|request| request["metadata"]["name"].clone()).collect();
        if names == ["young"] { Ok(()) } else { Err(format!("{names:?}")) }
    }
}

#[test]
fn old_requests_go() {
    exhaust(&Old).assert();
}

/// A request that is denied, one that somebody else's signer answered, one that can't be read: none is signed or lost.
struct Refused;

impl Scenario for Refused {
    fn name(&self) -> &'static str {
        "certificates::what_is_denied_is_never_signed"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, ALL)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            ask(plane, "denied", "kubernetes.io/kube-apiserver-client", &["client auth"]).await;
            decide(plane, "denied", "Denied").await;
            ask(plane, "foreign", "example.com/signer", &["client auth"]).await;
            decide(plane, "foreign", "Approved").await;
            let certificate = k8s_openapi::ByteString(include_bytes!("certificates/certificate.pem").to_vec());
            let signed = Patch::Merge(json!({"status": {"certificate": certificate}}));
            requests(plane).patch_status("foreign", &PatchParams::default(), &signed).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let (denied, foreign) = (of(state, "denied"), of(state, "foreign"));
        let right = !denied["status"]["certificate"].is_string()
            && !has(&denied, "Approved")
            && foreign["status"]["certificate"].is_string();
        if right { Ok(()) } else { Err(format!("{denied} {foreign}")) }
    }
}

#[test]
fn what_is_denied_is_never_signed() {
    exhaust_with(&Refused, 0, Limits { still: Duration::from_secs(1200), ..Limits::default() }).assert();
}
