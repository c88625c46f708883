//! Reads of a cache.

use std::sync::Arc;

use super::Cached;
use super::informer::Core;
use super::store::{Memory, Snapshot};

/// Reads a cache. No lock is held by what it returns.
///
/// ```no_run
/// # fn example(pods: &setpoint_runtime::cache::Informer<k8s_openapi::api::core::v1::Pod>) {
/// let lister = pods.lister();
/// let one = lister.get("shop/web-1");
/// let all = lister.snapshot(); // of one moment, whatever happens meanwhile
/// assert!(all.namespace("shop").count() <= all.len());
/// # let _ = one;
/// # }
/// ```
pub struct Lister<K> {
    core: Arc<Core<K>>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<K: Cached> Lister<K> {
    pub(super) fn of(core: Arc<Core<K>>) -> Self {
        Self { core }
    }

    /// The object of a key: `namespace/name` or `name`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.core.read(|snapshot| snapshot.get(key))
    }

    /// Everything at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K> {
        self.core.read(Snapshot::clone)
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.read(Snapshot::len)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that the objects take.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.core.read(Snapshot::memory)
    }
}
