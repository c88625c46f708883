//! How many bytes a second the vehicles of a rollout may take from this hub.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use setpoint_api::labels::Selector;
use setpoint_fleet_protocol::Party;
use setpoint_runtime::Key;
use tokio::time::Instant;

use super::Hub;
use super::view::{FirmwareView, VehicleView};
use crate::kinds::{Rollout, firmware_name};
use crate::rollout::terms;

/// How often the hubs are counted.
const COUNT_PAUSE: Duration = Duration::from_secs(10);

/// How many hubs there were when they were last counted.
#[derive(Default)]
pub struct Hubs(Mutex<Option<(Instant, u64)>>);

impl Hub {
    /// The rollouts that a download of an artifact is for, with this hub's share of the bytes a second that they may take: hubs in use
    /// share evenly.
    #[must_use]
    pub fn rates(&self, party: &Party, digest: &str) -> Vec<(Key, u64)> {
        let rollouts = self.shared.rollouts.lister().snapshot();
        let mut rates: Vec<(Key, u64)> = rollouts
            .iter()
            .filter_map(|rollout| {
                let rate = u64::try_from(rollout.spec.bytes_per_second?).ok()?;
                self.is_for(rollout, party, digest).then(|| (key_of(rollout), rate))
            })
            .collect();
        if !rates.is_empty() {
            let hubs = self.hubs();
            rates.iter_mut().for_each(|(_, rate)| *rate = (*rate / hubs).max(1));
        }
        rates
    }

    fn is_for(&self, rollout: &Rollout, party: &Party, digest: &str) -> bool {
        let phase = rollout.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let goes_back = phase == "RollingBack";
        if !goes_back && !matches!(phase, "Progressing" | "Soaking") {
            return false;
        }
        let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
        let is_named = |version: &str| goes_back || firmware_name(version) == rollout.spec.firmware_ref.name;
        match party {
            Party::Vehicle(name) => {
                let vehicle = self.shared.vehicles.lister().get(&name.to_string());
                name.namespace() == namespace && vehicle.is_some_and(|vehicle| is_one_of(rollout, &vehicle, &is_named))
            }
            Party::Gateway { namespace: own, .. } => {
                let firmwares = self.shared.firmwares.lister().snapshot();
                let has = |firmware: &FirmwareView| {
                    let is_it = firmware.spec.artifacts.iter().any(|artifact| artifact.sha256 == digest);
                    is_it && firmware.metadata.key.namespace() == Some(namespace) && is_named(&firmware.spec.version)
                };
                own == namespace && firmwares.iter().any(|firmware| has(firmware))
            }
        }
    }

    /// How many hubs vehicles are connected to, this one among them.
    fn hubs(&self) -> u64 {
        let now = Instant::now();
        let mut counted = self.shared.hubs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, count)) = *counted
            && now.saturating_duration_since(at) < COUNT_PAUSE
        {
            return count;
        }
        let vehicles = self.shared.vehicles.lister().snapshot();
        let connected = vehicles.iter().filter(|vehicle| vehicle.status.is_connected());
        let mut names: HashSet<&str> =
            connected.filter_map(|vehicle| Some(vehicle.status.session.as_ref()?.hub.as_str())).collect();
        names.insert(&self.shared.options.name);
        let count = names.len() as u64;
        *counted = Some((now, count));
        count
    }
}

/// Whether a vehicle is at what a rollout asks for.
fn is_one_of(rollout: &Rollout, vehicle: &VehicleView, is_named: &dyn Fn(&str) -> bool) -> bool {
    let selector = terms::selector(rollout.spec.selector.as_ref());
    let selector = selector.ok().flatten().unwrap_or(Selector::everything());
    let task = vehicle.status.task.as_ref();
    task.is_some_and(|task| is_named(&task.firmware_version)) && selector.matches(&vehicle.metadata.labels)
}

fn key_of(rollout: &Rollout) -> Key {
    Key::new(rollout.metadata.namespace.as_deref(), rollout.metadata.name.as_deref().unwrap_or_default())
}
