//! The controller framework: caches that follow the API server, queues of keys, and controllers that make reality agree.
//!
//! Invariants
//! - A reconciler gets a key, never an event; one key never runs twice at once.
//! - Time is [`tokio::time`] and chance is seeded: on a paused single-threaded runtime every run can be repeated exactly.
//! - The API server is reached through a `kube::Client` and nothing else, so controllers run against any Kubernetes.

pub mod cache;
pub mod children;
pub mod clock;
pub mod conditions;
pub mod config;
pub mod controller;
pub mod create_or_patch;
pub mod election;
pub mod events;
pub mod expectations;
#[cfg(test)]
mod fake_api;
pub mod finalizers;
mod key;
pub mod manager;
pub mod metrics;
pub mod owners;
pub mod probes;
pub mod queue;
pub mod retry;
pub mod slow_start;
pub mod throttle;

pub use key::Key;
