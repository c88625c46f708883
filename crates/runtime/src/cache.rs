//! Caches that follow the API server: list, watch, resume, and tell handlers what changed.
//!
//! - [`Informer`] follows the objects of one [`Target`] and tells handlers; its [`Lister`] reads what it holds.
//! - [`Informers`] shares informers between those who follow the same objects.
//! - [`Feed`] follows objects without keeping them, for those who keep less than a cache does.
//! - [`Cached`] is what an object must say of itself; views with few fields save memory.

mod difference;
mod event;
mod feed;
mod figures;
mod informer;
mod informers;
mod lister;
mod measure;
mod object;
mod packed;
mod reflector;
mod store;
mod wire;

#[cfg(test)]
mod convergence;
#[cfg(test)]
mod tests;

pub use event::Event;
pub use feed::{Feed, Sink};
pub use informer::{Handler, Informer, InformerOptions, Progress, Registration, Transform};
pub(crate) use informers::CacheFigures;
pub use informers::Informers;
pub use lister::Lister;
pub use object::{Cached, LeanMeta, LeanOwner, Owner};
pub use packed::Pairs;
pub use reflector::{BACKOFF_MAX, BACKOFF_START, PAGE_SIZE};
pub use store::{IndexFn, Memory, Snapshot};
pub use wire::{LINE_BYTES_MAX, LIST_BYTES_MAX, Target};

/// Compares two resource versions as numbers, as the API lets clients do; `None` if one is not a number.
#[must_use]
pub fn compare_versions(one: &str, other: &str) -> Option<std::cmp::Ordering> {
    Some(one.parse::<u64>().ok()?.cmp(&other.parse::<u64>().ok()?))
}
