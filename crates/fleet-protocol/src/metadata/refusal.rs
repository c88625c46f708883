//! Why a vehicle won't take an artifact.

use std::fmt;

use super::Role;
use crate::reason;

/// Why metadata, or what it speaks of, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It can't be read.
    Malformed(Role, String),
    /// A signature is wrong, or by nobody who counts.
    BadSignature(Role),
    /// Too few signatures.
    BelowThreshold {
        /// Whose.
        role: Role,
        /// How many there are.
        found: usize,
        /// How many there have to be.
        needed: usize,
    },
    /// Its time is over.
    Expired(Role, String),
    /// It is older than what was seen before.
    Replayed {
        /// Whose.
        role: Role,
        /// Its version.
        version: u64,
        /// The version seen before.
        seen: u64,
    },
    /// The assignment is for another vehicle.
    WrongVehicle(String),
    /// The artifact is for other hardware.
    WrongHardware(String),
    /// The release counter is lower than what runs.
    Downgrade {
        /// Of the artifact.
        counter: u64,
        /// Of what runs.
        running: u64,
    },
    /// The director assigned what the release team doesn't know as such.
    NotReleased(String),
}

impl Refusal {
    /// One of [`crate::reason`].
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::Malformed(..) => reason::METADATA_MALFORMED,
            Refusal::BadSignature(_) => reason::SIGNATURE_INVALID,
            Refusal::BelowThreshold { .. } => reason::THRESHOLD_NOT_MET,
            Refusal::Expired(..) => reason::METADATA_EXPIRED,
            Refusal::Replayed { .. } => reason::METADATA_REPLAYED,
            Refusal::WrongVehicle(_) => reason::WRONG_VEHICLE,
            Refusal::WrongHardware(_) => reason::WRONG_HARDWARE,
            Refusal::Downgrade { .. } => reason::DOWNGRADE,
            Refusal::NotReleased(_) => reason::NOT_RELEASED,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(role, why) => write!(formatter, "{} metadata can't be read: {why}", role.word()),
            Refusal::BadSignature(role) => write!(formatter, "a signature of the {} metadata is wrong", role.word()),
            Refusal::BelowThreshold { role, found, needed } => {
                write!(formatter, "{} metadata has {found} of {needed} signatures", role.word())
            }
            Refusal::Expired(role, when) => write!(formatter, "{} metadata expired at {when}", role.word()),
            Refusal::Replayed { role, version, seen } => {
                write!(formatter, "{} metadata is of version {version}, and {seen} was seen before", role.word())
            }
            Refusal::WrongVehicle(vehicle) => write!(formatter, "it is assigned to {vehicle}"),
            Refusal::WrongHardware(why) => formatter.write_str(why),
            Refusal::Downgrade { counter, running } => {
                write!(formatter, "its release counter {counter} is below {running}, which runs")
            }
            Refusal::NotReleased(why) => formatter.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}
