//! Which vehicles are linked to a hub: all over one link, or each over its own.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_edge_agent::Event;
use setpoint_fleet_protocol::{FromVehicle, Said, Told};

use super::{Fleet, Happening};

/// The first pause after a link of a vehicle's own ended or could not be opened, doubled with each that could not, as an agent does.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(120);

impl Fleet {
    /// The link of all is open: every vehicle in reach says hello.
    pub fn connected(&mut self, now: Timestamp) {
        for number in self.all() {
            self.vehicle(number).is_linked = true;
            self.greet(number, now);
        }
    }

    /// The link of all is gone.
    pub fn disconnected(&mut self, now: Timestamp) {
        self.out.clear();
        for number in self.all() {
            self.vehicle(number).is_linked = false;
            self.step(number, Event::Disconnected, now);
        }
    }

    /// From now on each vehicle has a link of its own: see [`Fleet::calling`].
    pub(super) fn part(&mut self, now: Timestamp) {
        self.has_own_links = true;
        for number in self.all() {
            self.greet(number, now);
        }
    }

    /// A vehicle that wants a link, and how many in a row could not be opened. It is answered by [`Fleet::linked`] or [`Fleet::unlinked`].
    pub(super) fn calling(&mut self) -> Option<(u32, u8)> {
        let number = self.calls.pop_front()?;
        Some((number, self.vehicle(number).failed_calls))
    }

    /// A vehicle whose link is to end.
    pub(super) fn leaving(&mut self) -> Option<u32> {
        self.hung_up.pop_front()
    }

    /// A vehicle's own link is open. False if it has no use for it any more.
    pub(super) fn linked(&mut self, number: u32, now: Timestamp) -> bool {
        let vehicle = self.vehicle(number);
        vehicle.is_calling = false;
        vehicle.failed_calls = 0;
        vehicle.is_linked = vehicle.is_in_reach();
        self.greet(number, now);
        self.vehicle(number).is_linked
    }

    /// A vehicle's own link has ended, or could not be opened. It calls again after a while, by chance, so that those which were cut off
    /// together don't come back together.
    pub(super) fn unlinked(&mut self, number: u32, now: Timestamp) {
        let vehicle = self.vehicle(number);
        if vehicle.is_calling {
            (vehicle.is_calling, vehicle.failed_calls) = (false, vehicle.failed_calls.saturating_add(1));
        }
        vehicle.is_linked = false;
        let most = PAUSE.saturating_mul(1 << vehicle.failed_calls.min(10)).min(PAUSE_MAX);
        let span = SignedDuration::try_from(most.mul_f64(self.chance.unit())).unwrap_or_default();
        self.step(number, Event::Disconnected, now);
        self.schedule(number, now, span, Happening::Greet);
    }

    /// Something from the hub, over a vehicle's own link.
    pub(super) fn hear_own(&mut self, number: u32, told: Told, now: Timestamp) {
        if let Told::Ping(ping) = told {
            let vehicle = self.vehicle(number).agent.identity().vehicle.to_string();
            return self.out.push_back(FromVehicle { vehicle, said: Some(Said::Pong(ping)) });
        }
        self.receive(number, told, now);
    }

    /// Whose word a frame is; none if it has no link of its own any more.
    pub(super) fn speaker(&mut self, frame: &FromVehicle) -> Option<u32> {
        let number = self.number(&frame.vehicle)?;
        self.vehicle(number).is_linked.then_some(number)
    }

    /// Asks for a link of its own.
    pub(super) fn call(&mut self, number: u32) {
        if self.has_own_links && !std::mem::replace(&mut self.vehicle(number).is_calling, true) {
            self.calls.push_back(number);
        }
    }

    /// Ends a vehicle's own link.
    pub(super) fn hang_up(&mut self, number: u32) {
        if self.has_own_links && std::mem::replace(&mut self.vehicle(number).is_linked, false) {
            self.hung_up.push_back(number);
        }
    }

    fn all(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.vehicles.len()).unwrap_or(u32::MAX)
    }
}
