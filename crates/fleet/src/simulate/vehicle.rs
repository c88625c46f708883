//! One simulated vehicle: its agent, its slots, and what becomes of actions.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_edge_agent::slots::Boot;
use setpoint_edge_agent::{Action, Agent, Done, Event, Facts, FetchError, Identity, Journal, Running, Slot};
use setpoint_fleet_protocol::{FromVehicle, Said};

use super::{Fleet, Happening, Options};

/// Starts from a new slot before it is given up.
const TRIES: u8 = 3;

/// How long each takes at speed 1, in milliseconds.
const FETCH: u64 = 15_000;
const CHECK: u64 = 500;
const INSTALL: u64 = 4_000;
const RESTART: u64 = 8_000;
const PROBE: u64 = 2_000;

/// The longest time out of reach.
const OFFLINE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long it takes a vehicle to find out that it isn't heard.
const UNHEARD: SignedDuration = SignedDuration::from_secs(60);

/// A simulated vehicle.
pub struct Vehicle {
    pub agent: Agent,
    /// Counts starts: what was under way in an earlier life never ends.
    pub life: u32,
    pub is_alive: bool,
    /// Whether a link to a hub carries what it says.
    pub is_linked: bool,
    /// Whether a link of its own is being opened, and how many in a row could not be.
    pub is_calling: bool,
    pub failed_calls: u8,
    is_away: bool,
    active: Slot,
    trial: Option<(Slot, u8)>,
    fell_back: bool,
    booted: Slot,
    /// The task and attempt that are being installed.
    installing: Option<(String, u32)>,
    /// The task and attempt that were installed last, to the end.
    installed: Option<(String, u32)>,
}

impl Vehicle {
    pub fn new(options: &Options, number: usize, now: Timestamp) -> Vehicle {
        let identity = Identity {
            vehicle: format!("{}/{}", options.namespace, options.name(number)).into(),
            hardware_id: options.hardware_id.as_str().into(),
            agent_version: "simulated",
            trust: None,
        };
        let running = Running { version: options.initial_version.clone(), ..Running::default() };
        let journal = Journal { running: Some(running), ..Journal::default() };
        let (agent, _) = Agent::start(identity, journal, Boot::default(), now);
        Vehicle {
            agent,
            life: 0,
            is_alive: true,
            is_linked: false,
            is_calling: false,
            failed_calls: 0,
            is_away: false,
            active: Slot::A,
            trial: None,
            fell_back: false,
            booted: Slot::A,
            installing: None,
            installed: None,
        }
    }

    pub fn is_in_reach(&self) -> bool {
        self.is_alive && !self.is_away
    }

    /// What a boot loader does.
    fn boot(&mut self) -> Boot {
        match self.trial {
            Some((slot, tries)) if tries > 0 => {
                self.trial = Some((slot, tries - 1));
                self.booted = slot;
            }
            Some(_) => (self.trial, self.fell_back, self.booted) = (None, true, self.active),
            None => self.booted = self.active,
        }
        Boot { slot: self.booted, fell_back: self.fell_back, ..Boot::default() }
    }
}

impl Fleet {
    /// Says hello, if it can.
    pub(super) fn greet(&mut self, number: u32, now: Timestamp) {
        if !self.vehicle(number).is_in_reach() {
            return;
        }
        if !self.vehicle(number).is_linked {
            return self.call(number);
        }
        let vehicle = self.vehicle(number);
        vehicle.agent.next_epoch(now);
        let hello = vehicle.agent.hello();
        self.send(number, Said::Hello(hello), now);
    }

    /// Sends a frame, unless it is lost on the way or comes late.
    fn send(&mut self, number: u32, said: Said, now: Timestamp) {
        let (drop, delay) = (self.options.faults.drop, self.options.faults.delay);
        let vehicle = self.vehicle(number).agent.identity().vehicle.to_string();
        let frame = FromVehicle { vehicle, said: Some(said) };
        if self.chance.unit() < drop {
            // Pings find out that the way is cut, and another session says everything again.
            return self.schedule(number, now, UNHEARD, Happening::Greet);
        }
        if self.chance.unit() < delay {
            let span = self.late();
            self.schedule(number, now, span, Happening::Say(Box::new(frame)));
        } else {
            self.out.push_back(frame);
        }
    }

    /// Does what an agent asks for, or plans when it is done.
    pub(super) fn perform(&mut self, number: u32, actions: Vec<Action>, now: Timestamp) {
        for action in actions {
            match action {
                // The journal lives in the agent, which outlives its process here.
                Action::Keep | Action::StopFetching => {}
                Action::Report => {
                    if self.vehicle(number).is_linked && self.vehicle(number).is_in_reach() {
                        let report = self.vehicle(number).agent.report();
                        self.send(number, Said::Report(report), now);
                    }
                }
                Action::Restart => return self.restart(number, now),
                Action::Fetch { ticket, .. } => self.fetch(number, ticket, now),
                Action::Check(ticket) => {
                    let desired =
                        self.vehicle(number).agent.desired().map(|desired| (desired.size, desired.digest.clone()));
                    let (size, mut digest) = desired.unwrap_or_default();
                    if self.chance.unit() < self.options.faults.corrupt {
                        digest = "corrupt".into();
                    }
                    self.ends(number, ticket, CHECK, Done::Check(Ok((size, digest))), now);
                }
                Action::Install(ticket) => self.install(number, ticket, now),
                Action::Arm(ticket) => {
                    let vehicle = self.vehicle(number);
                    (vehicle.trial, vehicle.fell_back) = (Some((vehicle.booted.other(), TRIES)), false);
                    self.ends(number, ticket, 0, Done::Arm(Ok(())), now);
                }
                Action::Probe(ticket) => {
                    let done = Done::Probe(self.health(number));
                    self.ends(number, ticket, PROBE, done, now);
                }
                Action::Commit(ticket) => {
                    let vehicle = self.vehicle(number);
                    (vehicle.active, vehicle.trial) = (vehicle.booted, None);
                    self.ends(number, ticket, 0, Done::Commit(Ok(())), now);
                }
                Action::Disarm(ticket) => {
                    self.vehicle(number).trial = None;
                    self.ends(number, ticket, 0, Done::Disarm(Ok(())), now);
                }
            }
        }
        if let Some(at) = self.vehicle(number).agent.wakes_at() {
            self.schedule(number, now, at.duration_since(now).max(SignedDuration::ZERO), Happening::Wake);
        }
    }

    fn fetch(&mut self, number: u32, ticket: u32, now: Timestamp) {
        let faults = &self.options.faults;
        let broken = self.chance.unit() < faults.broken || self.vehicle(number).is_away;
        let done = if broken { Err(FetchError::Broken("the connection was lost".into())) } else { Ok(()) };
        self.ends(number, ticket, FETCH, Done::Fetch(done), now);
    }

    fn install(&mut self, number: u32, ticket: u32, now: Timestamp) {
        self.flashes += 1;
        let task = self.vehicle(number).agent.desired().map(|desired| (desired.task_id.clone(), desired.attempt));
        if self.vehicle(number).installed.is_some() && self.vehicle(number).installed == task {
            self.repeated += 1;
        }
        self.vehicle(number).installing = task;
        let fails = self.chance.unit() < self.options.faults.flash;
        let done = if fails { Err("the flash could not be written".to_owned()) } else { Ok(()) };
        self.ends(number, ticket, INSTALL, Done::Install(done), now);
    }

    fn health(&mut self, number: u32) -> Result<(), String> {
        let version = self.vehicle(number).agent.desired().map(|desired| desired.version.clone()).unwrap_or_default();
        let is_bad = self.options.faults.bad_versions.contains(&version);
        if is_bad || self.chance.unit() < self.options.faults.health {
            return Err(format!("{version} does not answer"));
        }
        Ok(())
    }

    /// An action ends after its time, by chance somewhat more or less; or the vehicle loses its power before.
    fn ends(&mut self, number: u32, ticket: u32, millis: u64, done: Done, now: Timestamp) {
        let span = self.spent(millis);
        if self.chance.unit() < self.options.faults.crash {
            self.schedule(number, now, span / 2, Happening::Crash);
        }
        self.schedule(number, now, span, Happening::Event(Event::Done { ticket, done }));
    }

    fn spent(&self, millis: u64) -> SignedDuration {
        let span = Duration::from_millis(millis).mul_f64((0.5 + self.chance.unit()) / self.options.speed.max(0.001));
        SignedDuration::try_from(span).unwrap_or(SignedDuration::ZERO)
    }

    fn restart(&mut self, number: u32, now: Timestamp) {
        let vehicle = self.vehicle(number);
        vehicle.life += 1;
        vehicle.is_alive = false;
        self.leaves(number);
        let span = self.spent(RESTART);
        self.schedule(number, now, span, Happening::Start);
    }

    /// An action has come to its end.
    pub(super) fn ended(&mut self, number: u32, event: Event, now: Timestamp) {
        if let Event::Done { done: Done::Install(done), .. } = &event {
            let vehicle = self.vehicle(number);
            let installed = vehicle.installing.take();
            if done.is_ok() {
                vehicle.installed = installed;
            }
        }
        self.step(number, event, now);
    }

    pub(super) fn crash(&mut self, number: u32, now: Timestamp) {
        // What was cut off is not installed to its end; what was before stays installed.
        self.vehicle(number).installing = None;
        self.restart(number, now);
    }

    pub(super) fn start(&mut self, number: u32, now: Timestamp) {
        let vehicle = self.vehicle(number);
        let (identity, journal, boot) =
            (vehicle.agent.identity().clone(), vehicle.agent.journal().clone(), vehicle.boot());
        let (agent, actions) = Agent::start(identity, journal, boot, now);
        (vehicle.agent, vehicle.is_alive) = (agent, true);
        let facts = Facts { battery: Some(80), parked: Some(true), consent: Some("*".into()), ..Facts::default() };
        self.perform(number, actions, now);
        self.step(number, Event::Facts(facts), now);
        self.greet(number, now);
    }

    pub(super) fn reach(&mut self, number: u32, now: Timestamp) {
        self.vehicle(number).is_away = false;
        self.greet(number, now);
        self.plan_loss(number, now);
    }

    pub(super) fn lose(&mut self, number: u32, now: Timestamp) {
        self.leaves(number);
        self.vehicle(number).is_away = true;
        self.step(number, Event::Disconnected, now);
        let most = u64::try_from(OFFLINE_MAX.as_millis()).unwrap_or(u64::MAX);
        let span = self.spent(60_000 + self.chance.below(most));
        self.schedule(number, now, span, Happening::Reach);
    }

    /// Some vehicles go out of reach, again and again.
    pub(super) fn plan_loss(&mut self, number: u32, now: Timestamp) {
        if self.chance.unit() < self.options.faults.offline {
            let span = self.spent(self.chance.below(120_000));
            self.schedule(number, now, span, Happening::Lose);
        }
    }

    fn leaves(&mut self, number: u32) {
        if self.has_own_links {
            return self.hang_up(number);
        }
        if self.vehicle(number).is_linked && !self.vehicle(number).is_away {
            // The gateway's own word, which isn't sent over the vehicle's link.
            let vehicle = self.vehicle(number).agent.identity().vehicle.to_string();
            self.out.push_back(FromVehicle { vehicle, said: Some(Said::Left(true)) });
        }
    }
}
