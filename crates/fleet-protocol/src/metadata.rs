//! Signed metadata in the shape of Uptane: who released an artifact, and who assigned it to this vehicle.
//!
//! Three roles. `root` says whose keys count; its keys are offline and more than one has to sign. `targets` is the release team: what
//! exists, for which hardware, with which counter; its keys are offline too. `director` assigns one of these to one vehicle; its key is
//! online, on the hub. A vehicle takes an artifact only if director and targets agree, so whoever steals the hub can choose among
//! what was released, and nothing else.
//!
//! Start at [`Trust::judge`].

mod canonical;
mod key;
mod refusal;
mod role;
mod trust;

pub use canonical::canonical;
pub use key::{Key, SigningKey, sign};
pub use refusal::Refusal;
pub use role::{Assignment, Keyholders, Role, Root, Target, Targets};
pub use trust::{About, Floor, METADATA_BYTES_MAX, ROOT_PATH, Trust};
