//! What controllers are put together from: a client of their own, shared caches, a recorder of events, settings.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, Settings};
use setpoint_runtime::controller::{Builder, Controller};
use setpoint_runtime::events::{self, Happening, Recorder, Severity};
use setpoint_runtime::manager::{Manager, ManagerError, Runnable};

use crate::certificates::Signer;
use crate::pod::{self, Pod};

/// What all controllers share.
pub struct Wiring<'a> {
    /// Runs them; its caches are shared.
    pub manager: &'a Manager,
    /// The client of the controller with a name: each has an identity of its own.
    pub client_of: &'a (dyn Fn(&str) -> Client + Sync),
    /// Settings for all controllers and for some.
    pub config: &'a Config,
    /// Which process this is, in events.
    pub instance: &'a str,
    /// Signs certificates; without it nobody here does.
    pub signer: Option<Signer>,
    /// The certificates that the API server is known by, in PEM; published in every namespace.
    pub root_ca: Option<&'a str>,
}

impl Wiring<'_> {
    /// The shared cache of a kind.
    pub fn informer<K: Cached>(&self) -> Informer<K>
    where
        K::Kind: Resource<DynamicType = ()>,
    {
        self.manager.informers().all()
    }

    /// The shared cache of pods, with its indexes.
    pub fn pods(&self) -> Informer<Pod> {
        pod::indexed(self.informer())
    }

    /// What is the own of the controller with this name.
    pub fn desk(&self, name: &'static str) -> Result<Desk, ManagerError> {
        let client = (self.client_of)(name);
        let (clock, chance) = (self.manager.clock(), self.manager.chance(name));
        // Not fenced: a process that isn't leading has something to say too.
        let events_client = self.manager.metrics().client(&client);
        let (recorder, writer) = events::recorder(name, self.instance, events_client, clock, chance.fork("events"));
        self.manager.add(writer)?;
        Ok(Desk {
            name,
            client: self.manager.guard(&client),
            recorder,
            clock,
            chance,
            settings: self.config.of(name).clone(),
            manager: self.manager.clone(),
        })
    }
}

/// What is one controller's own.
pub struct Desk {
    pub name: &'static str,
    /// For work outside of a run; inside of one use the run's own.
    pub client: Client,
    pub recorder: Recorder,
    pub clock: Clock,
    pub chance: Chance,
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
        let builder = Controller::builder(self.name, self.client.clone(), self.clock, primary).options(options);
        match self.settings.reconcile.resync_period {
            Some(period) => builder.resync(period),
            None => builder,
        }
    }

    /// How many workers: as the settings say, else this many.
    pub fn workers(&self, default: usize) -> usize {
        match self.settings.workers == Settings::default().workers {
            true => default,
            false => self.settings.workers.min(self.settings.reconcile.max_concurrent).max(1),
        }
    }

    /// Gives something that is no controller of the usual shape to the manager. It ends before the writer of its events does.
    pub fn run_part(&self, part: impl Runnable) -> Result<(), ManagerError> {
        self.manager.add_after(&[&format!("events of {}", self.name)], part)
    }

    /// Gives the controller to the manager. It ends before the writer of its events does.
    pub fn run(&self, controller: Controller) -> Result<(), ManagerError> {
        self.manager.add_controller(&[&format!("events of {}", self.name)], controller)
    }
}

/// Records that all is as it should be.
pub fn normal(recorder: &Recorder, regarding: ObjectReference, reason: &str, action: &str, note: String) {
    say(recorder, Severity::Normal, regarding, reason, action, note);
}

/// Records that someone should look.
pub fn warning(recorder: &Recorder, regarding: ObjectReference, reason: &str, action: &str, note: String) {
    say(recorder, Severity::Warning, regarding, reason, action, note);
}

fn say(recorder: &Recorder, severity: Severity, about: ObjectReference, reason: &str, action: &str, note: String) {
    recorder.record(about, Happening { severity, reason: reason.to_owned(), action: action.to_owned(), note });
}
