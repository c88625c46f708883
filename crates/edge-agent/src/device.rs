//! A real vehicle around the state machine: files, commands and a connection to the hub.
//!
//! Start at [`run`].

mod commands;
mod config;
mod expiry;
mod fetch;
mod journal_file;
mod link;
mod papers;
mod poll;
mod request;
mod run;
mod socket;
mod wire;

pub use config::Config;
pub use run::{Ended, run};
