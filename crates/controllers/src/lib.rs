//! The built-in controllers.
//!
//! Each module is one controller and reads the same way: wiring (which caches wake it), a pure plan (what is, what should be,
//! what to do), and a thin act that carries the plan out.
//!
//! Invariants
//! - A controller has a `kube::Client` of its own identity and nothing else: it runs against any Kubernetes API server.
//! - It is right from any state at any moment. Nothing that it needs is kept between two runs but what it can do without.
//! - It writes only what has to change.

#![allow(dead_code)]

pub mod catalog;
mod claim;
mod daemon_set;
mod deployment;
mod disruption;
mod node;
mod pod;
mod pod_control;
mod replica_set;
mod replication_controller;
mod revisions;
mod selector;
mod service_account;
mod stateful_set;
mod wake;
mod wiring;

pub use catalog::{Choice, ChoiceError, add_to};
pub use wiring::Wiring;
