//! What controllers are put together from: a client of their own, shared caches, a recorder of events, settings.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use setpoint_runtime::cache::{Cached, Informer, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, QueueSettings, Settings};
use setpoint_runtime::controller::{Builder, Controller};
use setpoint_runtime::events::{self, Form, Happening, Recorder, Severity};
use setpoint_runtime::manager::{Manager, ManagerError, Runnable};

use crate::catalog::author;
use crate::certificates::Signer;
use crate::pod::{self, Pod};
use crate::root_ca::RootCa;
use crate::service_account_token::TokenSigner;
use crate::specific::Specific;

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
    /// Makes the tokens that lie in Secrets; without it nobody here does.
    pub tokens: Option<TokenSigner>,
    /// The certificates that the API server is known by, in PEM; published in every namespace.
    pub root_ca: Option<&'a RootCa>,
}

impl Wiring<'_> {
    /// The shared cache of a kind.
    pub fn informer<K: Cached>(&self) -> Informer<K>
    where
        K::Kind: Resource<DynamicType = ()>,
    {
        self.informer_of(Target::of::<K::Kind>(&(), None))
    }

    /// The shared cache of some objects of a kind. With the settings of caches, whose selectors are added to its own.
    pub fn informer_of<K: Cached>(&self, target: Target) -> Informer<K> {
        let settings = self.config.all();
        self.manager.informers().with(settings.target(target), || settings.informer_options())
    }

    /// The same as the controller with this name sees it: its settings are those of the caches that it asks for.
    pub(crate) fn seen_by<T>(&self, name: &str, see: impl FnOnce(&Wiring<'_>) -> T) -> T {
        let config = self.config.seen_by(name);
        let Wiring { manager, client_of, instance, root_ca, .. } = *self;
        let (signer, tokens) = (self.signer.clone(), self.tokens.clone());
        see(&Wiring { manager, client_of, config: &config, instance, signer, tokens, root_ca })
    }

    /// Settings that only one controller has. Whoever reads the configuration tells what is wrong with them; what nobody checked is as
    /// if it weren't there.
    pub(crate) fn specific(&self) -> Specific {
        Specific::of(self.config).unwrap_or_default()
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
        let (recorder, writer) =
            events::recorder(author(name), self.instance, events_client, clock, chance.fork("events"));
        let writer = writer.form(Form::Counted);
        let writer_name = writer.name().to_owned();
        self.manager.add(writer)?;
        Ok(Desk {
            name,
            writer_name,
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
    writer_name: String,
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

    /// How its queue behaves otherwise than that of most, unless the settings say so.
    #[must_use]
    pub fn queue(mut self, own: impl FnOnce(&mut QueueSettings)) -> Desk {
        let usual = Settings::default().queue;
        let (mut wanted, set) = (usual.clone(), &mut self.settings.queue);
        own(&mut wanted);
        set.max_retries = set.max_retries.or(wanted.max_retries);
        if (set.base_delay, set.max_delay) == (usual.base_delay, usual.max_delay) {
            (set.base_delay, set.max_delay) = (wanted.base_delay, wanted.max_delay);
        }
        self
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
        self.manager.add_after(&[&self.writer_name], part)
    }

    /// Gives the controller to the manager. It ends before the writer of its events does.
    pub fn run(&self, controller: Controller) -> Result<(), ManagerError> {
        self.manager.add_controller(&[&self.writer_name], controller)
    }
}

/// So often a key is tried again by those controllers of Kubernetes that give up at some time. Whatever changes about its object
/// wakes it again.
pub const MAX_RETRIES: u32 = 15;

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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use setpoint_runtime::config::Sources;
    use setpoint_runtime::manager::ManagerOptions;

    use super::*;

    /// What is asked of a server that never answers.
    async fn asked(settings: &str, wire: impl FnOnce(&Wiring<'_>)) -> Vec<String> {
        let paths = std::sync::Arc::new(Mutex::new(Vec::new()));
        let noted = paths.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            noted.lock().unwrap().push(request.uri().to_string());
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        let client = Client::new(service, "default");
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let manager = Manager::new(client.clone(), clock, Chance::seeded(1), ManagerOptions::default()).unwrap();
        let config = Config::load(&Sources::new().file(settings)).unwrap();
        let client_of = |_: &str| client.clone();
        let (manager, instance) = (&manager, "test");
        let (signer, tokens, root_ca) = (None, None, None);
        wire(&Wiring { manager, client_of: &client_of, config: &config, instance, signer, tokens, root_ca });
        let second = tokio::time::sleep(std::time::Duration::from_secs(1));
        manager.run(second).await.unwrap();
        let mut paths = paths.lock().unwrap().clone();
        paths.sort();
        paths
    }

    #[tokio::test(start_paused = true)]
    async fn caches_are_followed_as_the_settings_say() {
        let settings = "cache: {labelSelector: 'team=a', pageSize: 7, streamingLists: false}\n\
                        controllers: {web: {cache: {labelSelector: 'team=b', pageSize: 9}}}";
        let paths = asked(settings, |wiring| {
            let _ = wiring.informer::<ConfigMap>();
            let named = Target::of::<Secret>(&(), None).fields("metadata.name=a");
            let _ = wiring.informer_of::<Secret>(named);
            wiring.seen_by("web", |wiring| drop(wiring.informer::<ConfigMap>()));
        });
        let paths = paths.await;
        assert_eq!(paths.len(), 3, "{paths:?}");
        for (path, parts) in paths.iter().zip([
            ["/api/v1/configmaps?", "labelSelector=team%3Da", "limit=7"].as_slice(),
            &["/api/v1/configmaps?", "labelSelector=team%3Db", "limit=9"],
            &["/api/v1/secrets?", "labelSelector=team%3Da", "fieldSelector=metadata.name%3Da", "limit=7"],
        ]) {
            assert!(parts.iter().all(|part| path.contains(part)) && !path.contains("watch"), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_settings_objects_are_asked_for_as_a_stream() {
        let paths = asked("", |wiring| drop(wiring.informer::<ConfigMap>())).await;
        assert!(paths.len() == 1 && paths[0].contains("sendInitialEvents=true"), "{paths:?}");
    }
}
