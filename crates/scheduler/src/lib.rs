//! Pods to nodes.
//!
//! Most pods are like many others: what a pod asks of a node is its [class](demand::Demand). For each class in use the
//! nodes that fit are kept in the order of their scores, and a change of a node touches one entry of each class. So the cost
//! of a pod doesn't grow with the number of nodes, why a class fits nowhere is known without looking, and a pod that
//! waits is woken exactly when its class fits somewhere again. What pods ask of other pods is answered from
//! [tallies](tally::Tally), which are kept while pods come and go.
//!
//! Invariants
//! - A node never gets more than it holds: a pod counts from the moment that it is assigned, before the API server knows.
//! - What the API server says wins: a pod that it shows elsewhere is elsewhere.
//! - Deciding is synchronous and knows no network: [`cluster::Cluster::next`] is the place to start, then [`choose`].

mod acts;
mod budgets;
mod choose;
mod classes;
mod cluster;
mod demand;
mod devices;
mod feeds;
mod fit;
mod images;
mod judge;
mod message;
#[cfg(test)]
mod model;
mod node;
mod nominations;
mod owners;
mod pod;
mod preemption;
mod profile;
mod queue;
mod relation;
mod relations;
mod resized;
mod resources;
mod scheduler;
mod score;
mod simulation;
mod sinks;
mod storage;
mod tally;
mod wants;

use kube::Client;
use setpoint_runtime::events;
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::queue::Bucket;

pub use profile::{Profile, Strategy, Weights, profiles};
pub use simulation::{Decision, Simulation};

/// What schedules pods that say nothing else.
pub const DEFAULT: &str = "default-scheduler";

/// How many events are written each second, and how many at once: those of a flood of pods are not worth what they cost.
const EVENTS_PER_SECOND: f64 = 100.0;
const EVENTS_BURST: u32 = 500;

/// Adds the scheduler to a manager. It acts with `client`, and `instance` is what events call this process.
pub fn add_to(manager: &Manager, client: &Client, instance: &str) -> Result<(), ManagerError> {
    add_with_profiles(manager, client, instance, vec![Profile::named(DEFAULT)])
}

/// The same with profiles of its own: pods with other schedulers' names are left alone.
pub fn add_with_profiles(
    manager: &Manager,
    client: &Client,
    instance: &str,
    mut profiles: Vec<Profile>,
) -> Result<(), ManagerError> {
    if profiles.is_empty() {
        profiles.push(Profile::named(DEFAULT));
    }
    let chance = manager.chance("scheduler");
    let counted = manager.metrics().client(client);
    let (recorder, writer) = events::recorder(DEFAULT, instance, counted, manager.clock(), chance.fork("events"));
    manager.add(writer.paced(Bucket::new(EVENTS_PER_SECOND, EVENTS_BURST)))?;
    let scheduler = scheduler::Scheduler::new(manager.guard(client), manager.clock(), chance, recorder, profiles);
    manager.add_after(&[&format!("events of {DEFAULT}")], scheduler)
}
