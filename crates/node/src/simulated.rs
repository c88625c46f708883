//! Any number of simulated nodes from a few tasks: they register, send heartbeats, and play the life of the pods bound to them.
//!
//! What a pod does follows from its spec: a command that plainly ends does so with its exit code, and a script of a shell is gone through as
//! far as its variables and the files of its empty volumes decide it (see `shell`). An image whose tag says that it doesn't exist can't be
//! pulled, everything else keeps running. Annotations on a pod choose otherwise:
//!
//! | `simulated.setpoint.dev/` | what happens |
//! |---|---|
//! | `start-delay: 5s` | its containers start so much later |
//! | `ready-delay: 5s` | it gets ready so long after its start |
//! | `never-ready: "true"` | it runs, and never gets ready |
//! | `run-for: 10s` | its containers end after that time |
//! | `exit-code: "3"` | with this code, at once unless `run-for` says when |
//! | `crash-loop: "true"` | they end with code 1 a second after each start |
//! | `stop-delay: 5s` | they take so long to stop once they are asked to, within their grace |
//!
//! and on a node:
//!
//! | `simulated.setpoint.dev/` | what happens |
//! |---|---|
//! | `heartbeat: stopped` | the node is silent and does nothing, as if its power were cut |
//! | `heartbeat: flapping` | the same every other minute |
//! | `ready: "false"` | it lives and says that it can't run pods |
//! | `pods-lost-at: 2026-01-02T03:04:05Z` | containers that ran at that moment are lost: they end with code 137 |
//!
//! A node takes no pod that doesn't fit: processors, memory, number of pods, host ports. It says so as real nodes do.

mod addresses;
mod admission;
mod behaviour;
mod command;
mod container;
mod environment;
mod events;
mod heartbeat;
mod identity;
mod kubelet;
mod log;
mod missing;
mod plan;
mod pod;
mod probes;
mod references;
mod resize;
mod shell;
mod status;
mod stop;
mod told;
mod usage;

use std::sync::Arc;

use kube::Client;
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::{events as record, queue};

pub use identity::{ANNOTATIONS, SIMULATED_LABEL};
pub use log::{Log, log};
pub use usage::{NODE as NODE_USAGE, Usage, usage};

/// How many nodes there can be at most: as many as there are networks of 256 addresses for their pods.
pub const NODES_MAX: usize = 60_000;

/// Which nodes there are, and how large each is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many; at most [`NODES_MAX`].
    pub count: usize,
    /// Their names are this, a dash, and a number from 0.
    pub prefix: String,
    /// The processors of each, as a quantity.
    pub cpu: String,
    /// The memory of each, as a quantity.
    pub memory: String,
    /// How many pods each takes.
    pub pods: u32,
}

impl Default for Options {
    fn default() -> Options {
        let (cpu, memory) = ("8".to_owned(), "32Gi".to_owned());
        Options { count: 1, prefix: "simulated".to_owned(), cpu, memory, pods: 110 }
    }
}

/// Adds the nodes to a manager. They act with `client`.
pub fn add_to(manager: &Manager, client: &Client, options: Options) -> Result<(), ManagerError> {
    let options = Options { count: options.count.min(NODES_MAX), ..options };
    let prefix = options.prefix.clone();
    let nodes = Arc::new(identity::Nodes::new(options));
    let client = manager.metrics().client(client);
    let chance = manager.chance("simulated nodes").fork("events");
    let (recorder, writer) = record::recorder(events::AUTHOR, &prefix, client.clone(), manager.clock(), chance);
    manager
        .add(writer.form(record::Form::CountedOnHost).paced(queue::Bucket::new(events::PER_SECOND, events::BURST)))?;
    let seen = heartbeat::add_to(manager, &client, &nodes)?;
    kubelet::add_to(manager, &client, nodes, seen, recorder)
}
