//! What can go wrong with a manager.

use std::fmt;

use super::runnable::RunError;
use crate::election::ConfigError;

/// Why a manager refused something, or stopped.
#[derive(Debug)]
pub enum ManagerError {
    /// There is one with this name already.
    AlreadyAdded(String),
    /// There is none with this name.
    Unknown(String),
    /// Another depends on it.
    InUse {
        /// What was to be removed.
        name: String,
        /// What needs it.
        by: String,
    },
    /// There are too many.
    TooMany,
    /// It is running already, or has been: a manager runs once.
    AlreadyRun,
    /// The election can't be held like this.
    Election(ConfigError),
    /// One of those it ran failed.
    Failed {
        /// Its name.
        name: String,
        /// Why.
        error: RunError,
    },
    /// One of those it ran panicked.
    Panicked(String),
    /// Another process is the leader, or may be.
    LeadershipLost,
}

impl fmt::Display for ManagerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManagerError::AlreadyAdded(name) => write!(formatter, "{name} was added already"),
            ManagerError::Unknown(name) => write!(formatter, "there is no {name}"),
            ManagerError::InUse { name, by } => write!(formatter, "{by} depends on {name}"),
            ManagerError::TooMany => write!(formatter, "too many parts"),
            ManagerError::AlreadyRun => write!(formatter, "the manager was run already"),
            ManagerError::Election(error) => error.fmt(formatter),
            ManagerError::Failed { name, error } => write!(formatter, "{name} failed: {error}"),
            ManagerError::Panicked(name) => write!(formatter, "{name} panicked"),
            ManagerError::LeadershipLost => write!(formatter, "leadership lost"),
        }
    }
}

impl std::error::Error for ManagerError {}
