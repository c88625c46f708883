//! The fleet with real processes: a control plane, hubs, and agents of vehicles.

mod access;
mod addresses;
mod crossings;
mod cuts;
mod hooks;
mod kills;
mod people;
#[path = "../server/mod.rs"]
mod server;
mod trust;
mod world;
