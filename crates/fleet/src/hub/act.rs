//! Writes about vehicles, each as the vehicle that it is about.

use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use http::header::HeaderName;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_fleet_protocol::{VEHICLES_GROUP, VehicleName};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error, Reconciler};
use tokio::time::Instant;

use super::plan::{self, Decision, Known};
use super::view::{Status, VehicleView};
use super::{Hub, NAME, Shared};
use crate::kinds::{GROUP, VERSION, Vehicle};

/// The field manager of what is written for vehicles.
const MANAGER: &str = NAME;

/// The reconciler of the hub: brings what is written about a vehicle to what is known of it.
#[derive(Clone)]
pub struct Act {
    vehicles: Informer<VehicleView>,
    hub: Arc<OnceLock<std::sync::Weak<Shared>>>,
}

impl Act {
    pub fn new(vehicles: Informer<VehicleView>) -> Act {
        Act { vehicles, hub: Arc::default() }
    }

    /// The hub is made with the queue of its reconciler, so the reconciler hears of it a moment later.
    pub fn belongs_to(&self, hub: &Hub) {
        // It is said once.
        let _ = self.hub.set(Arc::downgrade(&hub.shared));
    }
}

impl Reconciler for Act {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(shared) = self.hub.get().and_then(std::sync::Weak::upgrade) else { return Ok(Action::done()) };
        let Some(vehicle) = context.read(&self.vehicles, &key) else {
            shared.roster.forget(&key, u64::MAX);
            return Ok(Action::done());
        };
        let now = Instant::now();
        let known = Known {
            session: shared.roster.heard(&key, now),
            hub: shared.options.name.clone(),
            up_for: now.saturating_duration_since(shared.started),
            away_after: shared.options.away_after(),
            is_barred: vehicle.spec.access.as_ref().is_some_and(|access| access.revoked),
        };
        match plan::decide(&vehicle.status, &known, context.clock().wall()) {
            Decision::Nothing => Ok(Action::done()),
            Decision::Later(span) => Ok(Action::requeue_after(span)),
            Decision::Yield => {
                let epoch = known.session.map_or(0, |heard| heard.epoch);
                shared.roster.forget(&key, epoch);
                Ok(Action::done())
            }
            Decision::Write(status) => {
                write(context.client(), &key, &status).await?;
                shared.roster.wrote(&key, now);
                if !status.is_connected() {
                    let epoch = known.session.map_or(0, |heard| heard.epoch);
                    shared.roster.forget(&key, epoch);
                    return Ok(Action::done());
                }
                Ok(Action::requeue_after(plan::SEEN_PAUSE))
            }
        }
    }
}

/// What an answer is read for: nothing.
#[derive(Clone, Debug, Deserialize)]
struct Ignored {}

/// Applies the hub's part of a vehicle's status, as the vehicle.
async fn write(client: &Client, key: &Key, status: &Status) -> Result<(), Error> {
    let namespace = key.namespace().unwrap_or_default();
    let name =
        VehicleName::new(namespace, key.name()).ok_or_else(|| Error::terminal(format!("{key} is no vehicle")))?;
    let url = <Vehicle as kube::Resource>::url_path(&(), Some(namespace));
    let params = PatchParams::apply(MANAGER).force();
    let patch = patch(key, status);
    let request = Request::new(url).patch_subresource("status", key.name(), &params, &Patch::Apply(&patch));
    let mut request = request.map_err(Error::terminal)?;
    let user = HeaderValue::try_from(name.user()).map_err(Error::terminal)?;
    let headers = request.headers_mut();
    headers.insert(HeaderName::from_static("impersonate-user"), user);
    headers.insert(HeaderName::from_static("impersonate-group"), HeaderValue::from_static(VEHICLES_GROUP));
    client.request::<Ignored>(request).await?;
    Ok(())
}

fn patch(key: &Key, status: &Status) -> Value {
    let condition = |kind: &str, known: Option<(bool, Timestamp)>, yes: [&str; 2], no: [&str; 2]| {
        known.map(|(holds, since)| {
            let [reason, message] = if holds { yes } else { no };
            json!({
                "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
                "lastTransitionTime": second(since),
            })
        })
    };
    let conditions = status.conditions;
    let connected = condition(
        "Connected",
        conditions.connected,
        ["SessionOpen", "it has a session with a hub"],
        ["NotHeard", "nothing was heard of it for some minutes"],
    );
    let healthy = condition(
        "Healthy",
        conditions.healthy,
        ["SaidSo", "it says that it is well"],
        ["SaidSo", "it says that it is not well"],
    );
    let conditions: Vec<Value> = connected.into_iter().chain(healthy).collect();
    let mut fields = json!({
        "firmwareVersion": status.firmware_version, "slot": status.slot, "progress": status.progress,
        "agentVersion": status.agent_version, "rxswin": status.rxswin, "session": status.session,
        "lastSeenTime": status.last_seen_time.map(second), "conditions": conditions,
    });
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Vehicle",
        "metadata": {"namespace": key.namespace(), "name": key.name()}, "status": fields,
    })
}

/// A moment in the form of API objects: whole seconds.
fn second(moment: Timestamp) -> String {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}
