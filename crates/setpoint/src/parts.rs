//! The parts of the control plane that are clients of its API: what they are made from, in one process or in several.

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use setpoint_controllers::{Choice, Specific, Wiring};
use setpoint_node::simulated;
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, Sources};
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};
use setpoint_runtime::probes::Profiles;
use setpoint_scheduler::Profile;

use crate::arguments::SettingsArguments;
use crate::failure::{self, Failure};
use crate::service::seed;

/// What variables of the environment begin with that are settings.
const PREFIX: &str = "SETPOINT";

/// Where settings of the scheduler are in a file.
const SCHEDULER_PART: &str = "scheduler";

/// Who schedules.
pub const SCHEDULER: &str = "kube-scheduler";

/// One part.
pub enum Part {
    /// Those controllers that are chosen, the built-in ones and those of the fleet.
    Controllers(Choice),
    /// Pods to nodes, with these profiles.
    Scheduler(Vec<Profile>),
    /// Simulated nodes.
    Nodes(simulated::Options),
}

impl Part {
    /// So many simulated nodes.
    pub fn nodes(count: usize) -> Part {
        Part::Nodes(simulated::Options { count, ..simulated::Options::default() })
    }
}

/// A manager with nothing to run yet.
pub fn manager(client: Client, options: ManagerOptions) -> Result<Manager, Failure> {
    let clock = Clock::starting_at(Timestamp::now());
    Manager::new(client, clock, Chance::seeded(seed()), options).map_err(|error| Failure::new("can't start", error))
}

/// Gives parts to the manager of a wiring.
pub fn add(wiring: &Wiring<'_>, parts: &[Part]) -> Result<(), Failure> {
    let Wiring { manager, client_of, instance, .. } = wiring;
    let add = |part: &Part| match part {
        Part::Controllers(choice) => {
            setpoint_controllers::add_to(wiring, choice)?;
            let Wiring { manager, client_of, config, instance, .. } = *wiring;
            let fleet = setpoint_fleet::Wiring { manager, client_of, config, instance };
            setpoint_fleet::add_to(&fleet, |name| choice.has(name))
        }
        Part::Scheduler(profiles) => {
            setpoint_scheduler::add_with_profiles(manager, &client_of(SCHEDULER), instance, profiles.clone())
        }
        Part::Nodes(options) => simulated::add_to(manager, &client_of("simulated-nodes"), options.clone()),
    };
    parts.iter().try_for_each(add).map_err(|error: ManagerError| Failure::new("can't start", error))
}

/// Makes what parts need known to the API server: the kinds of the fleet, if somebody works on them.
pub async fn prepare(client: &Client, parts: &[Part]) -> Result<(), Failure> {
    if !has_fleet(parts) {
        return Ok(());
    }
    setpoint_fleet::kinds::install(client).await.map_err(|error| {
        Failure::new("can't install the kinds of the fleet", error)
            .hint("leave its controllers out with `--controllers '*,-approver,-firmware,-rollout,-vehicle'`")
    })
}

/// Whether somebody works on the kinds of the fleet.
pub fn has_fleet(parts: &[Part]) -> bool {
    parts.iter().any(|part| match part {
        Part::Controllers(choice) => setpoint_fleet::CONTROLLERS.iter().any(|(name, _)| choice.has(name)),
        Part::Scheduler(_) | Part::Nodes(_) => false,
    })
}

/// Where the time and the memory of this process go, as far as it was built to tell; nothing unless that is wanted.
pub fn profiles(wanted: bool) -> Profiles {
    let profiles = if wanted { Profiles::default() } else { Profiles::off() };
    #[cfg(feature = "cpu-profile")]
    let profiles = profiles.with_cpu(setpoint_runtime::probes::cpu_profile);
    #[cfg(feature = "heap-profile")]
    let profiles = profiles.with_heap(setpoint_runtime::probes::heap_profile);
    profiles
}

/// Settings from a file, from the environment and from flags.
pub fn config(arguments: &SettingsArguments) -> Result<Config, Failure> {
    let file = arguments.config.as_deref();
    let parts = setpoint_controllers::PARTS.into_iter().chain([SCHEDULER_PART]);
    let mut sources = parts
        .fold(Sources::new(), |sources, part| sources.part(part))
        .environment(PREFIX, std::env::vars())
        .set(arguments.set.iter().cloned());
    let what = || file.map_or("can't use the settings".to_owned(), |file| format!("can't use {}", file.display()));
    if let Some(file) = file {
        let read = std::fs::read_to_string(file);
        sources = sources.file(read.map_err(|error| Failure::of_file(what(), &error).with_code(failure::USAGE))?);
    }
    let unusable = |error: &dyn std::fmt::Display| Failure::usage(what(), error).hint(SETTINGS);
    let config = Config::load(&sources).map_err(|error| unusable(&error))?;
    config.controllers().try_for_each(known).map_err(|error| unusable(&error))?;
    Specific::of(&config).map_err(|error| unusable(&error))?;
    Ok(config)
}

/// What to do about settings that can't be used.
const SETTINGS: &str = "a setting looks like `--set queue.maxRetries=5`; docs/configuration.md lists them all";

/// Settings for a controller that isn't there would be believed and have no effect.
fn known(controller: &str) -> Result<(), String> {
    match Choice::parse_among(controller, &setpoint_fleet::CONTROLLERS) {
        Ok(choice) if choice.has(controller) => Ok(()),
        Ok(_) => {
            Err(format!("controllers.{controller}: settings go by the full name of a controller, not by its short one"))
        }
        Err(error) => Err(format!("controllers.{controller}: {error}")),
    }
}

/// The scheduler with the profiles of a configuration.
pub fn scheduler(config: &Config) -> Result<Part, Failure> {
    let profiles = setpoint_scheduler::profiles(config.part(SCHEDULER_PART));
    profiles.map(Part::Scheduler).map_err(|error| Failure::usage("can't use the settings", error))
}

/// Why parts stopped that nobody stopped.
pub fn failed(error: ManagerError) -> Failure {
    Failure::new("stopped: a part of the control plane failed", error)
}
