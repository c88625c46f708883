//! The fleet in the test kit: what users do, with every fault at every point.

mod garage;
mod hub;
mod kinds;
mod process;
mod rollout;
mod story;
mod vehicle;
