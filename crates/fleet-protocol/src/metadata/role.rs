//! What each role says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Key;

/// Whose word something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Says whose keys count.
    Root,
    /// The release team: says what exists.
    Targets,
    /// The hub: says which vehicle gets what.
    Director,
}

impl Role {
    /// The word in metadata.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Root => "root",
            Role::Targets => "targets",
            Role::Director => "director",
        }
    }
}

/// Whose keys count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// `root`.
    #[serde(rename = "_type")]
    pub kind: String,
    /// Grows by one with each.
    pub version: u64,
    /// Until when it counts, in RFC 3339.
    pub expires: String,
    /// All keys, by their ids.
    pub keys: BTreeMap<String, Key>,
    /// Which of them, and how many, each role needs.
    pub roles: BTreeMap<Role, Keyholders>,
}

/// The keys of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyholders {
    /// Their ids.
    pub keyids: Vec<String>,
    /// How many different ones have to sign.
    pub threshold: usize,
}

impl Root {
    /// The keys of each role, of which so many have to sign.
    #[must_use]
    pub fn new(version: u64, expires: &str, roles: &[(Role, &[Key], usize)]) -> Root {
        let all = roles.iter().flat_map(|(_, keys, _)| keys.iter());
        Root {
            kind: Role::Root.word().into(),
            version,
            expires: expires.into(),
            keys: all.map(|key| (key.id(), key.clone())).collect(),
            roles: roles
                .iter()
                .map(|(role, keys, threshold)| {
                    (*role, Keyholders { keyids: keys.iter().map(Key::id).collect(), threshold: *threshold })
                })
                .collect(),
        }
    }
}

/// What the release team released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// `targets`.
    #[serde(rename = "_type")]
    pub kind: String,
    /// Grows with each.
    pub version: u64,
    /// Until when it counts, in RFC 3339.
    pub expires: String,
    /// The artifacts, by name.
    pub targets: BTreeMap<String, Target>,
}

impl Targets {
    /// One artifact.
    #[must_use]
    pub fn of(version: u64, expires: &str, name: &str, target: Target) -> Targets {
        let targets = BTreeMap::from([(name.to_owned(), target)]);
        Targets { kind: Role::Targets.word().into(), version, expires: expires.into(), targets }
    }
}

/// A released artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The version that it brings.
    pub version: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// The hardware that it is for.
    pub hardware_ids: Vec<String>,
    /// Grows with each release that must not be undone.
    pub release_counter: u64,
}

/// What the director assigned to one vehicle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// `director`.
    #[serde(rename = "_type")]
    pub kind: String,
    /// Grows with each to the same vehicle.
    pub version: u64,
    /// Until when it counts, in RFC 3339.
    pub expires: String,
    /// `namespace/name`.
    pub vehicle: String,
    /// The vehicle's hardware.
    pub hardware_id: String,
    /// The name of the artifact.
    pub target: String,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its release counter.
    pub release_counter: u64,
}
