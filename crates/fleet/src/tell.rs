//! Tells people how a fleet fares, why one vehicle is not there yet, and what a rollout would do. All of it follows from objects that
//! were read: nothing is written.

mod forecast;
mod overview;
mod read;
mod table;
mod why;

pub use forecast::Forecast;

use k8s_openapi::jiff::Timestamp;
use setpoint_api::labels::Selector;

use crate::kinds::{Firmware, Rollout};
use crate::rollout::tally::Facts;
use crate::rollout::terms::Terms;
use crate::view::VehicleView;

/// Everything that was read of a namespace.
#[derive(Debug, Default)]
pub struct Fleet {
    /// All vehicles.
    pub vehicles: Vec<VehicleView>,
    /// All firmwares.
    pub firmwares: Vec<Firmware>,
    /// All rollouts.
    pub rollouts: Vec<Rollout>,
}

/// A rollout with what it takes to say where vehicles stand.
struct Sight<'a> {
    rollout: &'a Rollout,
    firmware: &'a Firmware,
    terms: Terms,
    newer: Vec<Selector>,
}

impl Fleet {
    /// A vehicle by its name.
    fn vehicle(&self, name: &str) -> Option<&VehicleView> {
        self.vehicles.iter().find(|vehicle| vehicle.metadata.key.name() == name)
    }

    /// A rollout, or why it can't be read.
    fn sight<'a>(&'a self, rollout: &'a Rollout) -> Result<Sight<'a>, String> {
        let name = crate::kinds::firmware_name(&rollout.spec.firmware_ref.name);
        let firmware = self.firmwares.iter().find(|firmware| firmware.metadata.name.as_deref() == Some(&name));
        let firmware = firmware.ok_or_else(|| format!("there is no firmware {name}"))?;
        let terms = Terms::read(&rollout.spec)?;
        let newer = crate::rollout::newer(self.rollouts.iter(), rollout);
        Ok(Sight { rollout, firmware, terms, newer })
    }
}

impl Sight<'_> {
    fn facts(&self, now: Timestamp) -> Facts<'_> {
        Facts {
            terms: &self.terms,
            firmware: self.firmware,
            newer: &self.newer,
            created: crate::rollout::created(self.rollout),
            dynamic: self.rollout.spec.dynamic,
            now,
        }
    }
}

#[cfg(test)]
mod tests;
