//! Any number of vehicles in one process: the agent's own state machine for each, and a world around it that can be made to fail.
//!
//! A fleet has no task, thread or socket. Time and chance are passed in, so a run repeats by its seed. What it says goes over one link, as
//! that of a depot's vehicles does over their gateway, in memory or over a socket ([`over_memory`], [`over_socket`]); or each vehicle has a
//! certificate and a socket of its own ([`over_sockets`]).
//!
//! Start at [`Fleet::hear`] and [`Fleet::advance`].

mod drive;
mod enrol;
mod fault;
mod link;
mod sockets;
mod vehicle;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_edge_agent::Event;
use setpoint_fleet_protocol::{FromVehicle, Outcome, Said, Stage, ToVehicle, Told};
use setpoint_runtime::clock::Chance;

pub use drive::{Connection, make_vehicles, over_memory, over_socket};
pub use enrol::enrol_vehicles;
pub use fault::Faults;
pub use sockets::{Papers, over_sockets};
use vehicle::Vehicle;

/// What simulated vehicles are like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Their namespace.
    pub namespace: String,
    /// Their names are this, a dash, and a number from 0.
    pub prefix: String,
    /// How many there are.
    pub count: usize,
    /// Their hardware.
    pub hardware_id: String,
    /// What they run at first.
    pub initial_version: String,
    /// How fast things happen on them: 1 for about half a minute an upgrade, 10 for ten times as fast.
    pub speed: f64,
    /// What goes wrong.
    pub faults: Faults,
    /// Repeats a run.
    pub seed: u64,
}

impl Options {
    /// The name of a vehicle.
    #[must_use]
    pub fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }
}

/// How a fleet is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Vehicles by the firmware that they run.
    pub versions: BTreeMap<String, usize>,
    /// Vehicles at work, by stage.
    pub stages: BTreeMap<&'static str, usize>,
    /// Vehicles whose last task failed or was rolled back.
    pub failed: usize,
    /// Vehicles that can't be reached.
    pub offline: usize,
    /// Vehicles that are linked to a hub.
    pub linked: usize,
    /// Installations since the start.
    pub flashes: u64,
    /// Installations of a task and attempt that the same vehicle had installed to its end before: there must be none.
    pub repeated: u64,
}

/// All vehicles of a simulation.
pub struct Fleet {
    options: Options,
    vehicles: Vec<Vehicle>,
    numbers: HashMap<String, u32>,
    /// What happens by itself, the next first. A vehicle's entry counts only if it is of the vehicle's present life.
    due: BinaryHeap<Reverse<(Timestamp, u64, u32, u32)>>,
    happenings: HashMap<u64, Happening>,
    last_happening: u64,
    out: VecDeque<FromVehicle>,
    /// Vehicles that want a link of their own.
    calls: VecDeque<u32>,
    /// Vehicles that are done with theirs.
    hung_up: VecDeque<u32>,
    /// Whether each vehicle has a link of its own, or all share one.
    has_own_links: bool,
    chance: Chance,
    flashes: u64,
    repeated: u64,
}

/// Something that happens to a vehicle by itself.
enum Happening {
    /// An action ends.
    Event(Event),
    /// It starts again.
    Start,
    /// It loses its power.
    Crash,
    /// It comes back into reach.
    Reach,
    /// It goes out of reach.
    Lose,
    /// The agent asked to be woken.
    Wake,
    /// A frame arrives late.
    Hear(Box<Told>),
    /// A frame leaves late.
    Say(Box<FromVehicle>),
    /// It says hello again.
    Greet,
}

impl Fleet {
    /// Vehicles that have just been started.
    #[must_use]
    pub fn new(options: Options, now: Timestamp) -> Fleet {
        let chance = Chance::seeded(options.seed);
        let numbers = (0..options.count)
            .map(|number| {
                (format!("{}/{}", options.namespace, options.name(number)), u32::try_from(number).unwrap_or(u32::MAX))
            })
            .collect();
        let vehicles = (0..options.count).map(|number| Vehicle::new(&options, number, now)).collect();
        let mut fleet = Fleet {
            options,
            vehicles,
            numbers,
            due: BinaryHeap::new(),
            happenings: HashMap::new(),
            last_happening: 0,
            out: VecDeque::new(),
            calls: VecDeque::new(),
            hung_up: VecDeque::new(),
            has_own_links: false,
            chance,
            flashes: 0,
            repeated: 0,
        };
        for number in 0..fleet.vehicles.len() {
            fleet.plan_loss(u32::try_from(number).unwrap_or(u32::MAX), now);
        }
        fleet
    }

    /// A frame from the hub, over the link of all.
    pub fn hear(&mut self, frame: ToVehicle, now: Timestamp) {
        let Some(told) = frame.told else { return };
        if frame.vehicle.is_empty() {
            if let Told::Ping(number) = told {
                self.out.push_back(FromVehicle::of(Said::Pong(number)));
            }
            return;
        }
        if let Some(number) = self.number(&frame.vehicle) {
            self.receive(number, told, now);
        }
    }

    /// Which one has this name.
    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// What is told to a vehicle, unless it is lost on the way or comes late.
    fn receive(&mut self, number: u32, told: Told, now: Timestamp) {
        let faults = &self.options.faults;
        if self.chance.unit() < faults.drop {
            return;
        }
        if self.chance.unit() < faults.delay {
            let span = self.late();
            return self.schedule(number, now, span, Happening::Hear(Box::new(told)));
        }
        self.take(number, told, now);
    }

    /// How late a frame is that comes late.
    fn late(&self) -> SignedDuration {
        SignedDuration::from_millis(i64::try_from(self.chance.below(30_000)).unwrap_or(0))
    }

    fn take(&mut self, number: u32, told: Told, now: Timestamp) {
        if !self.vehicle(number).is_in_reach() {
            return;
        }
        match told {
            Told::Welcome(_) => self.step(number, Event::Connected, now),
            Told::Desired(desired) => self.step(number, Event::Told(desired), now),
            Told::Goodbye(goodbye) => {
                // Another session of the same vehicle is younger: it tries again later, with a higher number.
                let span = SignedDuration::from_millis(i64::from(goodbye.retry_within_ms.max(1000)));
                self.step(number, Event::Disconnected, now);
                self.hang_up(number);
                self.schedule(number, now, span, Happening::Reach);
            }
            Told::Ping(_) => {}
        }
    }

    /// Does what is due by now.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(Reverse((at, ..))) = self.due.peek()
            && *at <= now
        {
            let Some(Reverse((at, id, number, life))) = self.due.pop() else { break };
            let Some(happening) = self.happenings.remove(&id) else { continue };
            let is_of_this_life = self.vehicle(number).life == life;
            match happening {
                Happening::Start => self.start(number, at),
                Happening::Reach => self.reach(number, at),
                Happening::Lose => self.lose(number, at),
                Happening::Crash if is_of_this_life => self.crash(number, at),
                Happening::Event(event) if is_of_this_life => self.ended(number, event, at),
                Happening::Say(frame) if is_of_this_life && self.vehicle(number).is_linked => {
                    self.out.push_back(*frame)
                }
                Happening::Greet if is_of_this_life => self.greet(number, at),
                Happening::Hear(told) if is_of_this_life => self.take(number, *told, at),
                Happening::Wake if is_of_this_life => self.step(number, Event::Tick, at),
                Happening::Crash
                | Happening::Event(_)
                | Happening::Hear(_)
                | Happening::Say(_)
                | Happening::Greet
                | Happening::Wake => {}
            }
        }
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next frame for the hub.
    pub fn say(&mut self) -> Option<FromVehicle> {
        self.out.pop_front()
    }

    /// How they are doing.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally { flashes: self.flashes, repeated: self.repeated, ..Tally::default() };
        for vehicle in &self.vehicles {
            let report = vehicle.agent.report();
            *tally.versions.entry(report.firmware_version.clone()).or_default() += 1;
            match (report.stage(), report.outcome()) {
                (Stage::Idle, Outcome::Failed | Outcome::RolledBack) => tally.failed += 1,
                (Stage::Idle, _) => {}
                (stage, _) => *tally.stages.entry(stage.word()).or_default() += 1,
            }
            tally.offline += usize::from(!vehicle.is_in_reach());
            tally.linked += usize::from(vehicle.is_linked);
        }
        tally
    }

    fn vehicle(&mut self, number: u32) -> &mut Vehicle {
        &mut self.vehicles[number as usize]
    }

    /// An event for a vehicle that lives.
    fn step(&mut self, number: u32, event: Event, now: Timestamp) {
        if !self.vehicle(number).is_alive {
            return;
        }
        let actions = self.vehicle(number).agent.step(event, now);
        self.perform(number, actions, now);
    }

    fn schedule(&mut self, number: u32, now: Timestamp, span: SignedDuration, happening: Happening) {
        self.last_happening += 1;
        let at = now.saturating_add(span).unwrap_or(Timestamp::MAX);
        let life = self.vehicle(number).life;
        self.happenings.insert(self.last_happening, happening);
        self.due.push(Reverse((at, self.last_happening, number, life)));
    }
}

#[cfg(test)]
mod tests;
