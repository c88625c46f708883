//! Settings of controllers from a file, the environment and flags, checked before anything starts.
//!
//! Later sources win: what is built in, the file, the environment, flags. A setting of one controller
//! (`controllers.web.queue.qps`) wins over the same setting of all, wherever it comes from. Every error names the key and the
//! source, and all errors are told at once.

mod settings;
mod sources;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use settings::Program;
pub use settings::{CacheSettings, ElectionSettings, QueueSettings, ReconcileSettings, Settings};
pub use sources::{FILE_BYTES_MAX, Sources};

use crate::throttle::ClientOptions;

/// Settings for all controllers, and for some of them.
///
/// ```
/// use setpoint_runtime::config::{Config, Sources};
///
/// let sources = Sources::new()
///     .file("workers: 2\ncontrollers: {web: {queue: {maxRetries: 5}}}")
///     .environment("SHOP", [("SHOP_QUEUE_BASE_DELAY".to_owned(), "10ms".to_owned())])
///     .flags(["--controllers.web.workers=8".to_owned()]);
/// let config = Config::load(&sources).unwrap();
/// assert_eq!(config.of("web").workers, 8);
/// assert_eq!(config.of("web").queue.max_retries, Some(5));
/// assert_eq!(config.of("other").workers, 2);
///
/// let error = Config::load(&Sources::new().file("queue: {qps: fast}")).unwrap_err();
/// assert_eq!(error.to_string(), "queue.qps: must be a number (from the file)");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    all: Settings,
    program: Program,
    controllers: BTreeMap<String, Settings>,
    parts: BTreeMap<String, serde_json::Value>,
}

impl Config {
    /// Reads and checks all sources.
    pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
        let (assignments, mut errors) = sources.assignments();
        let mut config = Config { parts: sources.parts(), ..Config::default() };
        let (own, common): (Vec<_>, Vec<_>) = assignments.into_iter().partition(|it| it.controller.is_some());
        for assignment in common {
            match assignment.is_of_program() {
                true => assignment.apply_to_program(&mut config.program, &mut errors),
                false => assignment.apply(&mut config.all, &mut errors),
            }
        }
        for assignment in own {
            let name = assignment.controller.clone().unwrap_or_default();
            let settings = config.controllers.entry(name).or_insert_with(|| config.all.clone());
            assignment.apply(settings, &mut errors);
        }
        config.all.check("", &mut errors);
        config.program.election.check(&mut errors);
        for (name, settings) in &config.controllers {
            settings.check(&format!("controllers.{name}."), &mut errors);
        }
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }

    /// The settings of the controller with this name.
    pub fn of(&self, controller: &str) -> &Settings {
        self.controllers.get(controller).unwrap_or(&self.all)
    }

    /// The same, as the controller with this name sees it: its own settings are those of all, and of the caches that it asks for.
    #[must_use]
    pub fn seen_by(&self, controller: &str) -> Config {
        Config { all: self.of(controller).clone(), ..self.clone() }
    }

    /// The settings of all controllers that have none of their own; those of shared caches too.
    pub fn all(&self) -> &Settings {
        &self.all
    }

    /// What the file has for a part of the program that reads it itself; nothing unless the sources were told of it.
    pub fn part(&self, key: &str) -> Option<&serde_json::Value> {
        self.parts.get(key)
    }

    /// How the processes of the program choose a leader.
    pub fn election(&self) -> &ElectionSettings {
        &self.program.election
    }

    /// How fast the clients of the program are, for [`ManagerOptions`](crate::manager::ManagerOptions).
    pub fn client(&self) -> &ClientOptions {
        &self.program.client
    }

    /// The controllers that have settings of their own: names that no controller has are worth a warning.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.controllers.keys().map(String::as_str)
    }
}

/// All that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests;
