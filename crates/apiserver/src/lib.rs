//! HTTP over the store and the schema: authentication, authorization, admission, handlers. One tower `Service`.
//!
//! Invariants
//! - Everything that changes an object goes through here, in-process clients included: there is no other way to the store.
//! - Every refusal is a Kubernetes `Status`; causes that concern only the operator go to the log.
//! - Everything is bounded: bodies, requests in flight, connections, watch lag.
//!
//! Start at [`ApiServer`], the service; [`serve`] puts it behind TLS sockets; [`pki`] makes the certificates.

mod admission;
mod allocation;
mod answer;
mod api_service_availability;
pub mod audit;
mod authorization;
mod bootstrap;
mod call;
mod compression;
mod conditions;
mod content;
mod continuation;
mod conversion;
mod definitions;
mod discovery;
mod event_expiry;
mod event_rate;
mod fence;
mod flow;
mod flow_schemas;
mod freshness;
mod health;
mod inbox;
mod local;

mod objects;
mod openapi;
mod openid;

pub mod body;
pub mod clock;
#[cfg(test)]
mod every_kind;
#[cfg(test)]
mod hostile;
pub mod metrics;
pub mod nearby;
mod node_metrics;
mod ownership;
#[cfg(test)]
mod past_faults;
mod path;
mod pieces;
pub mod pki;
mod query;
pub mod registry;
mod representation;
mod reviews;
pub mod serve;
mod server;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod user;
mod verbs;
mod webhook_client;
mod yaml_out;

pub use admission::{Plugin, UnknownPlugin};
pub use clock::{Chance, Clock};
pub use health::GIT_VERSION;
pub use local::Local;
pub use registry::Registry;
pub use server::ApiServer;
