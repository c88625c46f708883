//! What the fleet's controllers are put together from: clients of their own, shared caches, settings.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Target};
use setpoint_runtime::clock::Clock;
use setpoint_runtime::config::{Config, Settings};
use setpoint_runtime::controller::{Builder, Controller};
use setpoint_runtime::events::{self, Happening, Recorder, Severity};
use setpoint_runtime::manager::{Manager, ManagerError};

use crate::kinds::{Firmware, GROUP, Rollout, VERSION, Vehicle, firmware_name};
use crate::view::VehicleView;
use crate::{approver, firmware, rollout, vehicle};

/// Vehicles by the firmware that they should run: `namespace/name of the Firmware`.
pub(crate) const WANTED: &str = "wanted";

/// Vehicles by the firmware that they run.
pub(crate) const RUNNING: &str = "running";

/// Vehicles by the firmware that they should run and have given up.
pub(crate) const GIVEN_UP: &str = "given-up";

/// A controller: its name, its short name, and how it is added.
type Entry = (&'static str, &'static str, fn(&Wiring<'_>) -> Result<(), ManagerError>);

const ALL: [Entry; 4] = [
    (approver::NAME, "approver", approver::add),
    (firmware::NAME, "firmware", firmware::add),
    (rollout::NAME, "rollout", rollout::add),
    (vehicle::NAME, "vehicle", vehicle::add),
];

/// The names of all controllers, each with its short one.
pub const CONTROLLERS: [(&str, &str); 4] =
    [(ALL[0].0, ALL[0].1), (ALL[1].0, ALL[1].1), (ALL[2].0, ALL[2].1), (ALL[3].0, ALL[3].1)];

/// What the controllers share.
pub struct Wiring<'a> {
    /// Runs them; its caches are shared.
    pub manager: &'a Manager,
    /// The client of the controller with a name: each has an identity of its own.
    pub client_of: &'a (dyn Fn(&str) -> Client + Sync),
    /// Settings for all controllers and for some.
    pub config: &'a Config,
    /// Which process this is, in events.
    pub instance: &'a str,
}

/// Adds the chosen controllers to the manager of a wiring. The kinds must be there: see [`kinds::install`](crate::kinds::install).
///
/// # Errors
/// If the manager has one of this name.
pub fn add_to(wiring: &Wiring<'_>, is_chosen: impl Fn(&str) -> bool) -> Result<(), ManagerError> {
    let Wiring { manager, client_of, instance, .. } = *wiring;
    ALL.iter().filter(|(name, ..)| is_chosen(name)).try_for_each(|(name, _, add)| {
        // Its settings are those of the caches that it asks for.
        add(&Wiring { manager, client_of, config: &wiring.config.seen_by(name), instance })
    })
}

impl Wiring<'_> {
    /// The shared cache of vehicles, with its indexes.
    pub(crate) fn vehicles(&self) -> Informer<VehicleView> {
        let mut is_new = false;
        let settings = self.config.all();
        let informer = self.manager.informers().with(settings.target(Target::of::<Vehicle>(&(), None)), || {
            is_new = true;
            settings.informer_options()
        });
        if is_new {
            add_indexes(&informer);
        }
        informer
    }

    /// The shared cache of firmwares, without the signed texts that only vehicles read.
    pub(crate) fn firmwares(&self) -> Informer<Firmware> {
        let options = || {
            let mut options = self.config.all().informer_options();
            options.transform = Some(Box::new(|firmware: &mut Firmware| firmware.spec.signed = None));
            options
        };
        self.manager.informers().with(self.config.all().target(Target::of::<Firmware>(&(), None)), options)
    }

    /// The shared cache of rollouts.
    pub(crate) fn rollouts(&self) -> Informer<Rollout> {
        let settings = self.config.all();
        let target = settings.target(Target::of::<Rollout>(&(), None));
        self.manager.informers().with(target, || settings.informer_options())
    }

    /// The shared cache of requests for certificates.
    pub(crate) fn requests(&self) -> Informer<CertificateSigningRequest> {
        let settings = self.config.all();
        let target = settings.target(Target::of::<CertificateSigningRequest>(&(), None));
        self.manager.informers().with(target, || settings.informer_options())
    }

    /// What is the own of the controller with this name.
    pub(crate) fn desk(&self, name: &'static str) -> Result<Desk, ManagerError> {
        let client = (self.client_of)(name);
        let (clock, chance) = (self.manager.clock(), self.manager.chance(name));
        // Not fenced: a process that isn't leading has something to say too.
        let events_client = self.manager.metrics().client(&client);
        let (recorder, writer) = events::recorder(name, self.instance, events_client, clock, chance.fork("events"));
        self.manager.add(writer)?;
        let settings = self.config.of(name).clone();
        Ok(Desk { name, client: self.manager.guard(&client), recorder, clock, settings, manager: self.manager.clone() })
    }
}

/// What is one controller's own.
pub(crate) struct Desk {
    name: &'static str,
    client: Client,
    pub recorder: Recorder,
    clock: Clock,
    settings: Settings,
    manager: Manager,
}

impl Desk {
    /// A controller whose keys are those of a cache, with so many workers unless the settings say otherwise.
    pub fn controller<K: Cached>(&self, primary: &Informer<K>, workers: usize) -> Builder<K> {
        let mut options = self.settings.controller_options();
        if self.settings.workers == Settings::default().workers {
            options.workers = workers;
        }
        Controller::builder(self.name, self.client.clone(), self.clock, primary).options(options)
    }

    /// Gives the controller to the manager. It ends before the writer of its events does.
    pub fn run(&self, controller: Controller) -> Result<(), ManagerError> {
        self.manager.add_controller(&[&format!("events of {}", self.name)], controller)
    }
}

/// Records that someone should look.
pub(crate) fn warn(recorder: &Recorder, about: ObjectReference, reason: &str, action: &str, note: String) {
    let severity = Severity::Warning;
    recorder.record(about, Happening { severity, reason: reason.to_owned(), action: action.to_owned(), note });
}

/// What events about an object of the fleet are about.
pub(crate) fn reference(kind: &str, key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/{VERSION}")),
        kind: Some(kind.to_owned()),
        name: Some(key.name().to_owned()),
        namespace: key.namespace().map(str::to_owned),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn add_indexes(vehicles: &Informer<VehicleView>) {
    let named = |vehicle: &VehicleView, version: Option<&str>| {
        let namespace = vehicle.metadata.key.namespace().unwrap_or_default();
        version.map(|version| format!("{namespace}/{}", firmware_name(version))).into_iter().collect::<Vec<_>>()
    };
    vehicles.add_index(WANTED, move |vehicle| named(vehicle, vehicle.wanted()));
    vehicles.add_index(RUNNING, move |vehicle| named(vehicle, vehicle.running()));
    vehicles.add_index(GIVEN_UP, move |vehicle| named(vehicle, vehicle.wanted().filter(|_| vehicle.has_failed())));
}
