//! Lets vehicles have certificates: the first one for a token, each further one for the key of the one before.
//!
//! - The key before vouches for as long as the vehicle may return after its certificate has expired, and no longer: a vehicle that was off
//!   for a month comes back by itself, one that was forgotten for a year needs somebody to let it in.
//! - A request is judged by its proof alone: who handed it in, a hub, is not believed. Requests without a proof are left to people.
//! - What counts from now on is written into the vehicle's spec before the request is approved, for the very version that was read. So of
//!   two keys that come with the same token one is let in, also if this process dies in between.

pub(crate) mod judge;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Request;
use k8s_openapi::jiff::SignedDuration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_fleet_protocol::enrolment::Proof;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::manager::ManagerError;

use crate::certificate;
use crate::kinds::{GROUP, VERSION, Vehicle};
use crate::wiring::Wiring;
use judge::{Asked, Moment, Verdict, judge};
pub use judge::{RETURN_WITHIN, returns_until};

/// Its name.
pub const NAME: &str = "vehicle-approver";

/// Whose requests it judges.
pub const SIGNER: &str = "fleet.setpoint.dev/vehicle";

/// The annotation of a request that vouches for it.
pub const PROOF: &str = "fleet.setpoint.dev/proof";

pub(crate) fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk(NAME)?;
    let requests: Informer<Request> = wiring.requests();
    let cache = requests.clone();
    let controller =
        desk.controller(&requests, 1).build(move |context: Context, key: Key| reconcile(context, key, cache.clone()));
    desk.run(controller)
}

async fn reconcile(context: Context, key: Key, requests: Informer<Request>) -> Result<Action, Error> {
    let Some(request) = context.read(&requests, &key) else { return Ok(Action::done()) };
    let proof = request.metadata.annotations.as_ref().and_then(|all| all.get(PROOF));
    let Some(proof) = proof.filter(|_| request.spec.signer_name == SIGNER && !is_decided(&request)) else {
        return Ok(Action::done());
    };
    match decide(&context, &request, proof).await? {
        Ok(()) => say(&context, &request, "Approved", "Vouched", "its token or its key before vouches for it").await?,
        Err(why) => say(&context, &request, "Denied", "NotVouched", &why).await?,
    }
    Ok(Action::done())
}

/// Judges a request, and writes down whose certificates count from now on. Why not, if it is refused.
async fn decide(context: &Context, request: &Request, proof: &str) -> Result<Result<(), String>, Error> {
    let asked = match Asked::read(&request.spec.request.0) {
        Ok(asked) => asked,
        Err(why) => return Ok(Err(why)),
    };
    let Some(proof) = Proof::parse(proof) else { return Ok(Err("its proof can't be read".to_owned())) };
    let api: Api<Vehicle> = Api::namespaced(context.client().clone(), asked.vehicle.namespace());
    let Some(vehicle) = api.get_opt(asked.vehicle.name()).await? else {
        return Ok(Err(format!("there is no vehicle {}", asked.vehicle)));
    };
    let life =
        request.spec.expiration_seconds.map_or(certificate::LIFE_SECONDS, |life| life.min(certificate::LIFE_SECONDS));
    let moment = Moment { now: context.clock().wall(), life: SignedDuration::from_secs(life.into()) };
    let access = match judge(&vehicle.spec.access.unwrap_or_default(), &asked, &proof, moment) {
        Verdict::Refuse(why) => return Ok(Err(why)),
        Verdict::Grant => return Ok(Ok(())),
        Verdict::GrantWith(access) => access,
    };
    let mut own = json!({"keys": access.keys, "keysUntil": access.keys_until});
    if let Some(token) = access.used_token {
        own["usedToken"] = token.into();
    }
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Vehicle",
        "metadata": {
            "name": asked.vehicle.name(), "uid": vehicle.metadata.uid,
            "resourceVersion": vehicle.metadata.resource_version,
        },
        "spec": {"access": own},
    });
    let params = PatchParams::apply(NAME).force();
    api.patch(asked.vehicle.name(), &params, &Patch::Apply(body)).await?;
    Ok(Ok(()))
}

fn is_decided(request: &Request) -> bool {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| matches!(condition.type_.as_str(), "Approved" | "Denied"))
}

async fn say(context: &Context, request: &Request, kind: &str, reason: &str, message: &str) -> Result<(), Error> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    let patch = json!({
        "metadata": {"resourceVersion": request.metadata.resource_version}, "status": {"conditions": [condition]},
    });
    let api: Api<Request> = Api::all(context.client().clone());
    api.patch_approval(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
