//! Managed fields and server-side apply: who owns which field of an object, and what follows from it.
//!
//! Every write leaves in `metadata.managedFields` which fields its manager set. Who *applies* a document says all it
//! wants: what it owned before and has stopped to mention goes, and what others own it can't change unless it insists.
//!
//! Everything here is a function of its input: the time is passed in, and nothing is read or stored.
//!
//! Start at [`Write::update`] and [`Write::apply`]. [`FieldSet`] is the set of paths behind it all, and `ownership` has
//! the rules.

mod atom;
mod comparison;
mod conflict;
mod element;
mod extent;
mod field_set;
mod fields_v1;
mod last_applied;
mod managers;
mod merge;
mod overlay;
mod ownership;
mod removal;
mod scale;
mod schema_change;
mod validity;
mod write;

#[cfg(test)]
mod model;

pub use conflict::{ApplyError, Conflicts};
pub use element::{Element, ElementError};
pub use field_set::{Entry, FieldSet, path_text};
pub use last_applied::LAST_APPLIED;
pub use managers::{Manager, Managers, Operation, Owner, UPDATE_MANAGERS_MAX};
pub use overlay::lay_over;
pub use ownership::{OnConflict, OneVersion, Versions};
pub use scale::{ScaleVersions, from_scale, to_scale};
pub use validity::MISTAKES_MAX;
pub use write::{Applied, Write, is_reset, keep_times};
