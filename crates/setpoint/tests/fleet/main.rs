//! The fleet with real processes: a control plane, hubs, and agents of vehicles.

mod access;
mod crossings;
mod hooks;
mod kills;
#[path = "../server/mod.rs"]
mod server;
mod trust;
mod world;
