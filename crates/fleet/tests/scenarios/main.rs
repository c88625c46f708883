//! The fleet in the test kit: what users do, with every fault at every point.

mod approver;
mod garage;
mod hub;
mod hub_faults;
mod kinds;
mod process;
mod rates;
mod rivals;
mod rollout;
mod story;
mod vehicle;
