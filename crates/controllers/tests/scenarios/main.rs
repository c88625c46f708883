//! The controllers in the test kit: what users do, with every fault at every point.

mod certificates;
mod cluster_role_aggregation;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoints;
mod garbage_collector;
mod job;
mod namespace;
mod narrow;
mod node_lifecycle;
mod nodes;
mod owned;
mod pod_gc;
mod process;
mod replica_set;
mod resource_quota;
mod rollout_bounds;
mod root_ca;
mod service_account;
mod stateful_set;
mod story;
mod taint_eviction;
mod ttl_after_finished;
mod volumes;
