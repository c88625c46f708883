//! The hub: vehicles connect to it, it tells them what should be and writes down what they say.
//!
//! It keeps nothing that isn't in the API server or on the vehicles: kill it, and both sides say everything again. Wishes are looked up
//! at the moment that they are sent, so the latest one wins and no queue can grow. What a vehicle says is written as that vehicle,
//! so a mistake here can't touch another one's object.
//!
//! Start at [`Hub::open`], which is what every transport does with a connection, then `plan`, which decides what is written.

mod act;
pub mod address;
mod mail;
mod pace;
mod plan;
mod rate;
mod roster;
pub mod serve;
mod view;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use setpoint_fleet_protocol::metadata::SigningKey;
use setpoint_fleet_protocol::{FromVehicle, Goodbye, PROTOCOL_VERSION, Party, Said, ToVehicle, Told, VehicleName};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Event, Informer, InformerOptions, Registration, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::controller::{Controller, ControllerOptions, Predicate};
use setpoint_runtime::manager::{Lifecycle, Manager, ManagerError, RunError, Runnable};
use setpoint_runtime::queue::WorkQueue;
use tokio::time::Instant;

pub use view::GATEWAY_LABEL;

use crate::kinds::{Rollout, firmware_name};
use rate::Hubs;
use roster::{LinkState, Outgoing, Roster};
use view::{FirmwareView, VehicleView};

/// The hub's name among controllers, and its service account.
pub const NAME: &str = "fleet-hub";

/// Writes about vehicles that are under way at once.
const WRITES_AT_ONCE: usize = 16;

/// Within this time vehicles come back that are sent away, each at a moment of its own.
const COME_BACK_WITHIN: Duration = Duration::from_secs(30);

/// How often vehicles are asked whether they are there, unless a hub is told otherwise.
pub const PING: Duration = Duration::from_secs(60);

/// Pings without an answer after which a vehicle counts as away.
const PINGS_UNANSWERED: u32 = 3;

/// What a hub is made with.
pub struct Options {
    /// Its name, which no other hub has and which it keeps over restarts.
    pub name: String,
    /// The director's key: assignments are signed with it.
    pub director: Option<SigningKey>,
    /// How often vehicles are asked whether they are there, in whole seconds.
    pub ping: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: String::new(), director: None, ping: PING }
    }
}

impl Options {
    /// How long a vehicle may not be heard of before it counts as away.
    fn away_after(&self) -> Duration {
        self.ping * PINGS_UNANSWERED
    }
}

/// The certificate that a connection was opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its public key in hexadecimal.
    pub key: String,
    /// From when it counts, in seconds since 1970.
    pub from: i64,
    /// Until when it counts.
    pub until: i64,
}

/// A hub. Clones are the same one.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    client: Client,
    clock: Clock,
    chance: Chance,
    started: Instant,
    vehicles: Informer<VehicleView>,
    firmwares: Informer<FirmwareView>,
    rollouts: Informer<Rollout>,
    hubs: Hubs,
    roster: Roster,
    writes: WorkQueue<Key>,
}

impl Hub {
    /// Adds a hub to a manager. `client` is the one that may act as vehicles.
    pub fn add_to(manager: &Manager, client: &Client, options: Options) -> Result<Hub, ManagerError> {
        let informers = manager.informers();
        let vehicles: Informer<VehicleView> =
            informers.with(Target::of::<crate::kinds::Vehicle>(&(), None), InformerOptions::default);
        let firmwares: Informer<FirmwareView> =
            informers.with(Target::of::<crate::kinds::Firmware>(&(), None), InformerOptions::default);
        let rollouts: Informer<Rollout> = informers.with(Target::of::<Rollout>(&(), None), InformerOptions::default);
        let counted = manager.metrics().client(client);
        // What others write wakes it only if it is about a session.
        let sessions = Predicate::new(|old: Option<&VehicleView>, new: &VehicleView| {
            old.is_none_or(|old| old.status.session != new.status.session || old.metadata.uid != new.metadata.uid)
        });
        let act = act::Act::new(vehicles.clone());
        let controller = Controller::builder(NAME, counted, manager.clock(), &vehicles)
            .predicate(sessions)
            .options(ControllerOptions { workers: WRITES_AT_ONCE, ..ControllerOptions::default() })
            .build(act.clone());
        let hub = Hub {
            shared: Arc::new(Shared {
                options,
                client: client.clone(),
                clock: manager.clock(),
                chance: manager.chance(NAME),
                started: Instant::now(),
                vehicles,
                firmwares,
                rollouts,
                hubs: Hubs::default(),
                roster: Roster::default(),
                writes: controller.handle().queue().clone(),
            }),
        };
        act.belongs_to(&hub);
        manager.add_controller(&[], controller)?;
        manager.add(Keeper { hub: hub.clone() })?;
        Ok(hub)
    }

    /// A connection of a party that has proved who it is. Dropping the link ends its sessions.
    #[must_use]
    pub fn open(&self, party: Party) -> Link {
        self.open_with(party, None)
    }

    /// A connection of a party that has proved with a certificate who it is.
    #[must_use]
    pub fn open_with(&self, party: Party, credential: Option<Credential>) -> Link {
        let state = self.shared.roster.open(party, credential, Instant::now());
        Link { hub: self.clone(), state }
    }

    /// How many vehicles have a session here.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.shared.roster.connected()
    }

    /// Whether everything is there that sessions need.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let shared = &self.shared;
        shared.vehicles.is_synced() && shared.firmwares.is_synced() && shared.rollouts.is_synced()
    }

    /// Waits until everything is there that sessions need.
    pub async fn until_ready(&self) {
        self.shared.vehicles.until_synced().await;
        self.shared.firmwares.until_synced().await;
        self.shared.rollouts.until_synced().await;
    }

    /// Whether a party may download an artifact: it is that of a task of its, and its certificate, whose key this is, counts.
    #[must_use]
    pub fn may_download(&self, party: &Party, key: Option<&str>, digest: &str) -> bool {
        let is_asked = |view: &VehicleView| {
            view.spec.admits(key) && view.status.task.as_ref().is_some_and(|task| task.digest == digest)
        };
        let vehicles = self.shared.vehicles.lister();
        match party {
            Party::Vehicle(name) => vehicles.get(&name.to_string()).is_some_and(|view| is_asked(&view)),
            Party::Gateway { namespace, .. } => {
                let firmwares = self.shared.firmwares.lister().snapshot();
                let has =
                    |firmware: &FirmwareView| firmware.spec.artifacts.iter().any(|artifact| artifact.sha256 == digest);
                firmwares.iter().any(|firmware| firmware.metadata.key.namespace() == Some(namespace) && has(firmware))
            }
        }
    }

    /// Ends all sessions: vehicles come back to this hub or another one, each in its own time.
    pub fn say_goodbye(&self, reason: &str) {
        for link in self.shared.roster.all_links() {
            link.send(goodbye(reason, COME_BACK_WITHIN));
            link.close();
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    /// How long a vehicle may not be heard of before it counts as away.
    fn away_after(&self) -> Duration {
        self.shared.options.away_after()
    }

    /// The frame that tells a vehicle what should be.
    fn wish(&self, key: &Key) -> Option<Told> {
        let vehicle = self.shared.vehicles.lister().get(key.as_str())?;
        if vehicle.status.task.is_some() && vehicle.open_task().is_none() {
            // The vehicle itself said how that task ended.
            return None;
        }
        let firmware = vehicle.status.task.as_ref().and_then(|task| {
            let name = Key::new(key.namespace(), &firmware_name(&task.firmware_version));
            self.shared.firmwares.lister().get(name.as_str())
        });
        let desired = mail::desired(&vehicle, firmware.as_deref(), self.shared.options.director.as_ref(), self.now())?;
        Some(Told::Desired(Box::new(desired)))
    }

    /// Ends the session of a vehicle whose certificate doesn't count any more.
    fn turn_out(&self, vehicle: &VehicleView) {
        let key = &vehicle.metadata.key;
        let Some(link) = self.shared.roster.link_of(key).filter(|link| !vehicle.spec.admits(link.own_key())) else {
            return;
        };
        let address = if matches!(link.party, Party::Vehicle(_)) { String::new() } else { key.to_string() };
        link.send(ToVehicle {
            vehicle: address,
            ..goodbye("its certificate doesn't count any more", COME_BACK_WITHIN)
        });
        self.shared.roster.forget(key, u64::MAX);
        self.shared.writes.add(key.clone());
    }

    /// Vehicles that should be at something else than they say are told again: a frame may have been lost.
    fn remind(&self, link: &LinkState) {
        for key in self.shared.roster.members(link) {
            let Some(vehicle) = self.shared.vehicles.lister().get(key.as_str()) else { continue };
            let Some(task) = vehicle.open_task() else { continue };
            if self.shared.roster.is_working_on(&key, &task.id, mail::attempt(task)) == Some(false) {
                self.shared.roster.has_mail(&key);
            }
        }
    }
}

/// A connection, as its transport sees it.
pub struct Link {
    hub: Hub,
    state: Arc<LinkState>,
}

impl Link {
    /// Takes a frame. An error ends the connection.
    pub fn hear(&self, frame: FromVehicle) -> Result<(), String> {
        self.state.heard(Instant::now());
        let key = self.vehicle(&frame.vehicle)?;
        let shared = &self.hub.shared;
        match frame.said {
            None => {}
            Some(Said::Hello(hello)) => {
                if hello.protocol != PROTOCOL_VERSION {
                    return Err(format!("protocol {} is not spoken here", hello.protocol));
                }
                let key = key.ok_or("a session is of one vehicle")?;
                if !self.may_speak_for(&key) {
                    return self.refuse(&frame.vehicle);
                }
                let report = hello.report.unwrap_or_default();
                if !shared.roster.enter(&key, &self.state, hello.epoch, &hello.agent_version, report) {
                    self.tell(&frame.vehicle, goodbye("a later session is open", COME_BACK_WITHIN));
                    return Ok(());
                }
                self.tell(
                    &frame.vehicle,
                    mail::welcome(self.state.credential.as_ref(), shared.options.ping, self.hub.now()),
                );
                shared.roster.has_mail(&key);
                shared.writes.add(key);
            }
            Some(Said::Report(report)) => {
                let key = key.ok_or("a report is of one vehicle")?;
                if shared.roster.report(&key, &self.state, report) {
                    shared.writes.add(key);
                }
            }
            Some(Said::Left(_)) => {
                let key = key.ok_or("one vehicle leaves")?;
                if shared.roster.leave(&key, &self.state) {
                    shared.writes.add_after(key, shared.options.away_after());
                }
            }
            Some(Said::Pong(_)) => {}
        }
        Ok(())
    }

    /// The next frame to send, as soon as there is one; none if the connection is to end.
    pub async fn next(&self) -> Option<ToVehicle> {
        loop {
            // Taken before the look, so that what comes after it isn't missed.
            let woken = self.state.wake.notified();
            match self.try_next() {
                Ok(Some(frame)) => return Some(frame),
                Ok(None) => woken.await,
                Err(Closed) => return None,
            }
        }
    }

    /// The next frame to send, if there is one.
    pub fn try_next(&self) -> Result<Option<ToVehicle>, Closed> {
        while let Some(outgoing) = self.state.next() {
            match outgoing {
                Outgoing::Closed => return Err(Closed),
                Outgoing::Control(frame) => return Ok(Some(frame)),
                Outgoing::Mail(key) => {
                    if self.hub.shared.roster.takes_mail(&key, &self.state)
                        && let Some(told) = self.hub.wish(&key)
                    {
                        return Ok(Some(ToVehicle { vehicle: self.address(&key), told: Some(told) }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The vehicle that a frame is about: the certificate's, or one of the gateway's.
    fn vehicle(&self, named: &str) -> Result<Option<Key>, String> {
        match &self.state.party {
            Party::Vehicle(own) => match named.is_empty() || VehicleName::parse(named).as_ref() == Some(own) {
                true => Ok(Some(Key::namespaced(own.namespace(), own.name()))),
                false => Err(format!("{own} can't speak for {named}")),
            },
            Party::Gateway { namespace, .. } => match VehicleName::parse(named) {
                None if named.is_empty() => Ok(None),
                Some(name) if name.namespace() == namespace => Ok(Some(Key::namespaced(name.namespace(), name.name()))),
                _ => Err(format!("a gateway of {namespace} can't speak for {named}")),
            },
        }
    }

    fn may_speak_for(&self, key: &Key) -> bool {
        let Some(vehicle) = self.hub.shared.vehicles.lister().get(key.as_str()) else { return false };
        let is_assigned = match &self.state.party {
            Party::Vehicle(_) => true,
            Party::Gateway { name, .. } => vehicle.metadata.label(GATEWAY_LABEL) == Some(name),
        };
        is_assigned && vehicle.spec.admits(self.state.own_key())
    }

    /// A vehicle's connection ends; of a gateway's vehicles only this one has to come back later.
    fn refuse(&self, vehicle: &str) -> Result<(), String> {
        match self.state.party {
            Party::Vehicle(_) => Err("this vehicle is not known, or its certificate doesn't count".to_owned()),
            Party::Gateway { .. } => {
                self.tell(vehicle, goodbye("it is not known, or not assigned to this gateway", COME_BACK_WITHIN));
                Ok(())
            }
        }
    }

    fn address(&self, key: &Key) -> String {
        match self.state.party {
            Party::Vehicle(_) => String::new(),
            Party::Gateway { .. } => key.to_string(),
        }
    }

    fn tell(&self, vehicle: &str, frame: ToVehicle) {
        self.state.send(ToVehicle { vehicle: vehicle.to_owned(), ..frame });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // One that ends because nothing was heard for long enough is away at once.
        let left = self.hub.away_after().saturating_sub(Roster::silence(&self.state, Instant::now()));
        for key in self.hub.shared.roster.close(&self.state) {
            self.hub.shared.writes.add_after(key, left);
        }
    }
}

/// The connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

fn goodbye(reason: &str, within: Duration) -> ToVehicle {
    let retry_within_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
    ToVehicle::of(Told::Goodbye(Goodbye { reason: reason.to_owned(), retry_within_ms }))
}

/// Sees to it that mail is sent when wishes change, that links are asked whether they are there, and that silent ones end.
struct Keeper {
    hub: Hub,
}

impl Runnable for Keeper {
    fn name(&self) -> &str {
        "fleet-hub-keeper"
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let told = self.hub.post();
            self.hub.until_ready().await;
            lifecycle.ready();
            let ticking = self.hub.tick();
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = ticking => {}
            }
            self.hub.say_goodbye("this hub ends");
            drop(told);
            Ok(())
        })
    }
}

impl Hub {
    /// Wishes that change are mail.
    fn post(&self) -> [Registration; 2] {
        let hub = self.weak();
        let vehicles = move |event: &Event<VehicleView>| {
            let Some(hub) = hub() else { return };
            let (changed, other_access) = match event {
                Event::Added { .. } => (true, false),
                Event::Updated { old, new } => (new.wants_other_than(old), new.spec.access != old.spec.access),
                Event::Deleted { .. } => (false, false),
            };
            if changed {
                hub.shared.roster.has_mail(&event.object().metadata.key);
            }
            if other_access {
                hub.turn_out(event.object());
            }
        };
        let hub = self.weak();
        // A task may be seen before its firmware is.
        let firmwares = move |event: &Event<FirmwareView>| {
            let Some(hub) = hub() else { return };
            if let Event::Added { object, is_in_initial_list: false } = event {
                let namespace = object.metadata.key.namespace();
                for vehicle in hub.shared.vehicles.lister().snapshot().iter() {
                    let task = vehicle.open_task().filter(|_| vehicle.metadata.key.namespace() == namespace);
                    if task.is_some_and(|task| task.firmware_version == object.spec.version) {
                        hub.shared.roster.has_mail(&vehicle.metadata.key);
                    }
                }
            }
        };
        let vehicles = self.shared.vehicles.add_handler(Box::new(vehicles), None);
        let firmwares = self.shared.firmwares.add_handler(Box::new(firmwares), None);
        [vehicles, firmwares]
    }

    /// The hub, for as long as it is there: what a cache holds must not hold the cache.
    fn weak(&self) -> impl Fn() -> Option<Hub> + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| Hub { shared })
    }

    /// Each link has its turn once in the time of a ping.
    async fn tick(&self) {
        let turns = self.shared.options.ping.as_secs().max(1);
        let first = self.shared.chance.below(turns);
        for turn in first.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = Instant::now();
            for link in self.shared.roster.turn(turn % turns, turns) {
                if Roster::silence(&link, now) >= self.away_after() {
                    link.close();
                } else {
                    link.send(ToVehicle::of(Told::Ping(turn)));
                    self.remind(&link);
                }
            }
        }
    }
}
