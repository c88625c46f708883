//! The controllers in the test kit: what users do, with every fault at every point.

mod daemon_set;
mod deployment;
mod disruption;
mod process;
mod replica_set;
mod rollout_bounds;
mod service_account;
mod stateful_set;
mod story;
mod tale;
