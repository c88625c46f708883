//! The built-in controllers.
//!
//! Each module is one controller and reads the same way: wiring (which caches wake it), a pure plan (what is, what should be,
//! what to do), and a thin act that carries the plan out.
//!
//! Invariants
//! - A controller has a `kube::Client` of its own identity and nothing else: it runs against any Kubernetes API server.
//! - It is right from any state at any moment. Nothing that it needs is kept between two runs but what it can do without.
//! - It writes only what has to change.

mod backend;
pub mod catalog;
mod certificates;
mod claim;
mod cluster_role_aggregation;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_slice;
mod endpoint_slice_mirroring;
mod endpoints;
mod ephemeral_volume;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod namespace;
mod node;
mod node_lifecycle;
mod persistent_volume;
mod pod;
mod pod_control;
mod pod_gc;
mod removal;
mod replica_set;
mod replication_controller;
mod resource_claim;
mod resource_quota;
mod revisions;
mod root_ca;
mod selector;
mod served;
mod service_account;
mod service_account_token;
mod specific;
mod stateful_set;
mod taint_eviction;
mod token_cleaner;
mod ttl_after_finished;
mod volume_protection;
mod wake;
mod wiring;

pub use catalog::{Choice, ChoiceError, account, add_to};
pub use certificates::{Signer, ToSign};
pub use root_ca::{RootCa, fixed_root_ca};
pub use service_account_token::{ToProve, TokenSigner};
pub use specific::{PARTS, Specific};
pub use wiring::Wiring;
