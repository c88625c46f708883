//! The controllers in the test kit: what users do, with every fault at every point.

mod deployment;
mod process;
mod replica_set;
mod rollout_bounds;
mod service_account;
mod tale;
