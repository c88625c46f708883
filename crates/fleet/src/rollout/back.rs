//! What a rollback has to do: each vehicle goes to what it had before, or to where the spec says.

use super::plan::Back;
use super::tally::{Facts, Standing};
use crate::view::VehicleView;

/// A vehicle that goes back.
#[derive(Clone, Copy, Debug)]
pub struct Return<'a> {
    /// The vehicle.
    pub vehicle: &'a VehicleView,
    /// The version that it goes to.
    pub version: &'a str,
    /// Whether it has to install it: not, if it still runs it.
    pub installs: bool,
}

/// Those that can be told to go back, and how many others there are.
#[must_use]
pub fn returns<'a>(
    facts: &Facts<'_>,
    rollback_to: Option<&'a str>,
    vehicles: impl Iterator<Item = &'a VehicleView>,
) -> (Vec<Return<'a>>, Back) {
    let target = Some(&*facts.firmware.spec.version);
    let (mut ready, mut back) = (Vec::new(), Back::default());
    for vehicle in vehicles {
        if matches!(facts.standing(vehicle), Standing::NotMeant | Standing::Superseded) {
            continue;
        }
        let runs_it = vehicle.running() == target;
        if vehicle.wanted() != target {
            let is_on_its_way = runs_it && vehicle.is_connected() && !vehicle.has_failed();
            back.returning += usize::from(is_on_its_way);
            continue;
        }
        let Some(version) = rollback_to.or_else(|| before(vehicle)).filter(|version| Some(*version) != target) else {
            // Nobody knows what it had.
            continue;
        };
        match vehicle.status.conditions.connected {
            Some((false, since)) if runs_it => back.awaited += usize::from(facts.is_patient(since)),
            None if runs_it => {}
            _ => ready.push(Return { vehicle, version, installs: runs_it }),
        }
    }
    back.ready = ready.len();
    (ready, back)
}

/// What a vehicle had before it was told.
fn before(vehicle: &VehicleView) -> Option<&str> {
    let wanted = vehicle.wanted();
    let task = vehicle.status.task.as_deref().filter(|task| Some(&*task.firmware_version) == wanted);
    vehicle.running().filter(|version| Some(*version) != wanted).or_else(|| task?.from_version.as_deref())
}
