//! What a reconciler wants to happen next.

use std::time::Duration;

/// The answer of a run that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub(super) requeue_after: Option<Duration>,
}

impl Action {
    /// Nothing to do until something changes.
    #[must_use]
    pub fn done() -> Self {
        Self { requeue_after: None }
    }

    /// Run again after `delay`, or earlier if something changes.
    #[must_use]
    pub fn requeue_after(delay: Duration) -> Self {
        Self { requeue_after: Some(delay) }
    }
}
