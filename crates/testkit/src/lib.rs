//! A whole control plane in the test's own process, with virtual time, and faults on purpose.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use k8s_openapi::api::core::v1::Namespace;
//! use setpoint_testkit::ControlPlane;
//!
//! let plane = ControlPlane::start().await;
//! let namespaces = kube::Api::<Namespace>::all(plane.client());
//! assert!(namespaces.get("default").await.is_ok());
//! # });
//! ```
//!
//! [`exhaust`] runs a [`Scenario`] once without faults, then once for every point at which something can go wrong, and
//! checks that it ends the same: that is how a controller is shown to be level-triggered and idempotent. [`storm`] lets
//! several things go wrong at once, by seed, and [`ControlPlane::run_with`] does in a test of any other form.
//!
//! Invariants
//! - Nothing here waits in real time: a test advances tokio's paused clock, or lets it advance by itself when all tasks wait.
//! - A run follows from its seed and its faults; the same two give the same run.

mod again;
#[cfg(feature = "controllers")]
mod built_in;
mod cores;
mod course;
mod events;
mod exhaust;
mod fault;
mod kubelet;
mod life;
mod outside;
mod picture;
mod plan;
mod plane;
mod process;
mod pulse;
mod run;
mod scenario;
mod state;
mod storm;
mod wire;

pub use exhaust::{Report, exhaust, exhaust_with};
pub use fault::Fault;
pub use kubelet::{Kubelet, OUTCOME};
pub use life::Broken;
pub use plan::Plan;
pub use plane::ControlPlane;
pub use process::Process;
pub use scenario::{Limits, Scenario};
pub use state::State;
pub use storm::{Storm, storm, storm_with};
