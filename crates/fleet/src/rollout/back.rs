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
    /// Whether it needs a place of the budget: not, if it still runs that version, or has a place already.
    pub needs_place: bool,
}

/// Those that can be told to go back, and how many others there are.
#[must_use]
pub fn returns<'a>(facts: &'a Facts<'_>, vehicles: impl Iterator<Item = &'a VehicleView>) -> (Vec<Return<'a>>, Back) {
    let target = Some(&*facts.firmware.spec.version);
    let (mut ready, mut back) = (Vec::new(), Back::default());
    for vehicle in vehicles {
        let standing = facts.standing(vehicle);
        if matches!(standing, Standing::NotMeant | Standing::Superseded) {
            continue;
        }
        let runs_it = vehicle.running() == target;
        if vehicle.wanted() != target {
            match vehicle.is_connected() {
                _ if !facts.is_returning(vehicle) => {}
                true => back.returning += 1,
                false => back.awaited += 1,
            }
            continue;
        }
        let known = facts.terms.rollback_to.as_deref().or_else(|| before(vehicle));
        let Some(version) = known.filter(|version| Some(*version) != target) else {
            // Nobody knows what it had.
            continue;
        };
        match vehicle.status.conditions.connected {
            Some((false, since)) if runs_it => back.awaited += usize::from(facts.is_patient(since)),
            None if runs_it => {}
            _ => {
                let needs_place = vehicle.running() != Some(version) && !facts.is_unconfirmed(standing);
                ready.push(Return { vehicle, version, needs_place });
            }
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
