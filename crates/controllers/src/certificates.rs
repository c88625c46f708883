//! Requests for certificates: those of nodes are approved, approved ones are signed, and old ones are cleared away.

mod lifetime;
mod request;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Request;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::request::{Asked, CLIENT, GATEWAY, HUB, NODE_CLIENT, NODE_SERVING, UNKNOWN, VEHICLE};
use crate::Wiring;

/// Makes a certificate, in PEM, of what was asked for.
pub type Signer = Arc<dyn Fn(&ToSign<'_>) -> Result<Vec<u8>, String> + Send + Sync>;

/// What is to be signed. Whether it may be is decided already.
#[derive(Clone, Debug)]
pub struct ToSign<'a> {
    /// The request in PEM.
    pub request: &'a [u8],
    /// What the certificate may be used for, in the words of the API: `client auth`.
    pub usages: &'a [String],
    /// How long it lives.
    pub life: Duration,
    /// The time of day.
    pub now: Timestamp,
}

/// Adds the controller that approves requests of nodes.
pub fn add_approving(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("certificatesigningrequest-approving-controller")?;
    let requests: Informer<Request> = wiring.informer();
    let cache = requests.clone();
    let controller =
        desk.controller(&requests, 1).build(move |context: Context, key: Key| approve(context, cache.clone(), key));
    desk.run(controller)
}

/// Adds the controller that signs. Without a key it leaves requests to others.
pub fn add_signing(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let Some(signer) = wiring.signer.clone() else { return Ok(()) };
    let desk = wiring.desk("certificatesigningrequest-signing-controller")?;
    let requests: Informer<Request> = wiring.informer();
    let cache = requests.clone();
    let controller = desk
        .controller(&requests, 1)
        .build(move |context: Context, key: Key| sign(context, cache.clone(), signer.clone(), key));
    desk.run(controller)
}

/// Adds the controller that clears old requests away.
pub fn add_cleaner(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("certificatesigningrequest-cleaner-controller")?;
    let requests: Informer<Request> = wiring.informer();
    let cache = requests.clone();
    let controller =
        desk.controller(&requests, 1).build(move |context: Context, key: Key| clear(context, cache.clone(), key));
    desk.run(controller)
}

fn has(request: &Request, kind: &str) -> bool {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn is_issued(request: &Request) -> bool {
    request.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|bytes| !bytes.0.is_empty())
}

/// Who may approve what, by the rights of who asks.
const RIGHTS: [(&str, &str); 2] = [
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
];

async fn approve(context: Context, requests: Informer<Request>, key: Key) -> Result<Action, Error> {
    let Some(request) = context.read(&requests, &key) else { return Ok(Action::done()) };
    if is_issued(&request) || has(&request, "Approved") || has(&request, "Denied") {
        return Ok(Action::done());
    }
    if request.spec.signer_name != NODE_CLIENT {
        return Ok(Action::done());
    }
    let asked = Asked::read(&request).map_err(|why| Error::terminal(format!("unable to parse csr {key:?}: {why}")))?;
    if asked.refusal(NODE_CLIENT).is_some() {
        return Ok(Action::done());
    }
    let is_own = request.spec.username.as_ref() == Some(&asked.common_name);
    for (right, message) in RIGHTS.iter().skip(usize::from(!is_own)) {
        if may(&context, &request, right).await? {
            let condition = json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
            let api: Api<Request> = Api::all(context.client().clone());
            let patch = with(&request, condition);
            api.patch_approval(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            return Ok(Action::done());
        }
    }
    // Rights may be given later.
    Err(Error::transient(format!("recognized csr {key:?} but subject access review was not approved")))
}

async fn may(context: &Context, request: &Request, right: &str) -> Result<bool, Error> {
    let spec = &request.spec;
    let review = json!({"spec": {
        "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
        "resourceAttributes": {"group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
            "subresource": right, "verb": "create"},
    }});
    let review: SubjectAccessReview = serde_json::from_value(review).map_err(Error::terminal)?;
    let api: Api<SubjectAccessReview> = Api::all(context.client().clone());
    match api.create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        // A server that answers no such questions won't do so in a moment: somebody else has to approve.
        Err(error) if is_unanswered(&error) => Err(Error::terminal(error)),
        Err(error) => Err(error.into()),
    }
}

fn is_unanswered(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [404, 405, 501].contains(&status.code))
}

async fn sign(context: Context, requests: Informer<Request>, signer: Signer, key: Key) -> Result<Action, Error> {
    let Some(request) = context.read(&requests, &key) else { return Ok(Action::done()) };
    let ours = [CLIENT, NODE_CLIENT, NODE_SERVING, UNKNOWN, VEHICLE, GATEWAY, HUB];
    let is_ours = ours.contains(&request.spec.signer_name.as_str());
    let is_approved = has(&request, "Approved") && !has(&request, "Denied");
    if !is_ours || !is_approved || has(&request, "Failed") || is_issued(&request) {
        return Ok(Action::done());
    }
    let asked = Asked::read(&request).map_err(|why| Error::terminal(format!("unable to parse csr {key:?}: {why}")))?;
    let clock = context.clock();
    let patch = match asked.refusal(&request.spec.signer_name) {
        Some(why) => with(
            &request,
            json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure",
            "message": why, "lastUpdateTime": clock.time()}),
        ),
        None => {
            let usages = request.spec.usages.clone().unwrap_or_default();
            let to_sign = ToSign {
                request: &request.spec.request.0,
                usages: &usages,
                life: lifetime::life(&request),
                now: clock.wall(),
            };
            let certificate =
                signer(&to_sign).map_err(|why| Error::transient(format!("error auto signing csr: {why}")))?;
            let certificate = k8s_openapi::ByteString(certificate);
            json!({"metadata": {"resourceVersion": request.metadata.resource_version}, "status": {"certificate": certificate}})
        }
    };
    let api: Api<Request> = Api::all(context.client().clone());
    api.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Action::done())
}

/// A patch that adds a condition to this version of a request.
fn with(request: &Request, condition: Value) -> Value {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions: Vec<Value> = conditions.map(|known| json!(known)).chain([condition]).collect();
    json!({"metadata": {"resourceVersion": request.metadata.resource_version}, "status": {"conditions": conditions}})
}

async fn clear(context: Context, requests: Informer<Request>, key: Key) -> Result<Action, Error> {
    let Some(request) = context.read(&requests, &key) else { return Ok(Action::done()) };
    let Some(end) = lifetime::ends_at(&request) else { return Ok(Action::done()) };
    let clock = context.clock();
    if end > clock.wall() {
        return Ok(Action::requeue_after(clock.until(end)));
    }
    let api: Api<Request> = Api::all(context.client().clone());
    // What was decided or renewed meanwhile is looked at again.
    let preconditions = Some(Preconditions {
        uid: request.metadata.uid.clone(),
        resource_version: request.metadata.resource_version.clone(),
    });
    match api.delete(key.name(), &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        other => Ok(other.map(|_| Action::done())?),
    }
}
