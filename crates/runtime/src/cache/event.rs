//! What handlers are told.

use std::sync::Arc;

use super::Cached;
use crate::queue::What;

/// A change of the cache, told after the cache has it.
pub enum Event<K> {
    /// An object appeared.
    Added {
        /// As it is.
        object: Arc<K>,
        /// Whether it was there when the cache, or this handler, started.
        is_in_initial_list: bool,
    },
    /// An object changed, or, if both are the same, the cache was replayed.
    Updated {
        /// As it was.
        old: Arc<K>,
        /// As it is.
        new: Arc<K>,
    },
    /// An object went.
    Deleted {
        /// Its last known state.
        last: Arc<K>,
        /// Whether the deletion itself was missed and is known from a list only: the state may be older than the last one.
        is_final_state_unknown: bool,
    },
}

impl<K: Cached> Event<K> {
    /// The object; after a deletion its last known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// The state before the change, if there was one.
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
    }

    /// Whether nothing changed: the cache was replayed.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if Arc::ptr_eq(old, new))
    }

    /// The cause that this is for the keys it wakes.
    pub fn what(&self) -> What {
        match self {
            Self::Added { .. } => What::Added,
            Self::Updated { .. } if self.is_resync() => What::Resync,
            Self::Updated { .. } => What::Updated,
            Self::Deleted { .. } => What::Deleted,
        }
    }
}
