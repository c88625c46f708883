//! Why a key is in the queue, kept through de-duplication.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Most causes that one key remembers; later ones are only counted. A key that thousands of events name
/// needs no more than the first few of them to be explained.
pub const CAUSES_MAX: usize = 8;

/// One reason for a key to be worked on.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint_runtime::queue::{Cause, Priority, What, WorkQueue};
///
/// let queue = WorkQueue::default();
/// queue.add_because("web", Priority::Normal, Cause::from_source(What::Updated, "Pod shop/web-1", Some("17")));
/// queue.add_because("web", Priority::High, Cause::of(What::Request));
/// let item = queue.get().await.unwrap();
/// assert_eq!((item.priority(), item.causes().first.len()), (Priority::High, 2));
/// assert_eq!(item.causes().first[0].to_string(), "Updated Pod shop/web-1@17");
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// What happened.
    pub what: What,
    /// The object that it happened to as `Kind namespace/name`, or the name of a source that is no object.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub source: Option<Arc<str>>,
    /// The version of that object.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub resource_version: Option<Arc<str>>,
}

/// What can wake a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// An object appeared.
    Added,
    /// An object changed.
    Updated,
    /// An object went.
    Deleted,
    /// The cache was replayed without a change.
    Resync,
    /// The reconciler asked to run again.
    Requeue,
    /// The last run failed.
    Retry,
    /// The last run lost a race for a write.
    Conflict,
    /// The caches had not yet seen the reconciler's own writes.
    StaleCache,
    /// Something else asked, such as a timer, a channel or a person.
    Request,
}

impl Cause {
    /// A cause without an object.
    #[must_use]
    pub fn of(what: What) -> Self {
        Self { what, source: None, resource_version: None }
    }

    /// A cause that an object or a named source gave.
    #[must_use]
    pub fn from_source(what: What, source: impl Into<Arc<str>>, resource_version: Option<&str>) -> Self {
        Self { what, source: Some(source.into()), resource_version: resource_version.map(Into::into) }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.what)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(out, " {source}"))?;
        self.resource_version.as_ref().map_or(Ok(()), |version| write!(out, "@{version}"))
    }
}

/// The causes of one run, bounded by [`CAUSES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Causes {
    /// The first causes in the order in which they came, without repetitions.
    pub first: Vec<Cause>,
    /// How many more there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl Causes {
    /// Whether nothing is known about why.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.more == 0
    }

    pub(super) fn push(&mut self, cause: Cause) {
        if self.first.contains(&cause) {
            return;
        }
        if self.first.len() < CAUSES_MAX {
            self.first.push(cause);
        } else {
            self.more += 1;
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}
