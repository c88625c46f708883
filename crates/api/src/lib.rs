//! What an object is: names, kinds, selectors, owner references, conditions, revisions and `Status` errors.
//!
//! Invariants
//! - This crate never does IO, never reads a clock, never draws a random number: everything here is a value or a pure
//!   function of its arguments, but for the counters of [`metrics`], which hold what others count.
//! - Bad input is an error that a user can act on, never a panic.
//! - Messages that a user can see are those of Kubernetes 1.36, to the letter: scripts and people match on them.
//!
//! Start at [`Status`] (every refusal ends as one), then [`FieldError`] with its [`Path`] (what validation speaks), then
//! [`labels::Selector`] and [`Quantity`].

pub mod cron;
pub mod field;
pub mod fields;
pub mod ip;
pub mod kind;
pub mod labels;
pub mod metadata;
pub mod metrics;
pub mod name;
pub mod percent;
pub mod quantity;
pub mod quote;
pub mod revision;
pub mod status;
pub mod time;

pub use field::{BadValue, FieldError, FieldErrorKind, Path};
pub use kind::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use metadata::{Condition, ConditionStatus, ListMeta, OwnerReference};
pub use name::{Name, Namespace};
pub use quantity::Quantity;
pub use revision::Revision;
pub use status::{Status, StatusCause, StatusDetails};
