//! What a reconciler wants to happen next.

use std::time::Duration;

/// The answer of a run that went well.
///
/// ```
/// use std::time::Duration;
/// use setpoint_runtime::controller::Action;
///
/// /// A room gets one degree warmer in a minute, so look again then.
/// fn next(actual: i32, wanted: i32) -> Action {
///     if actual == wanted { Action::done() } else { Action::requeue_after(Duration::from_secs(60)) }
/// }
/// assert_eq!(next(21, 21), Action::done());
/// ```
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
