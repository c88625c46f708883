//! What a vehicle believes, from the root that it was made with.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Assignment, Refusal, Role, Root, Target, Targets, canonical};
use crate::hex;

/// Where a hub hands out roots: the version of one follows.
pub const ROOT_PATH: &str = "/v1/root/";

/// Largest metadata of one role.
pub const METADATA_BYTES_MAX: usize = 32 * 1024;

/// Most signatures that are looked at.
const SIGNATURES_MAX: usize = 16;

/// A root whose keys count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    root: Root,
}

/// What metadata has to be about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// `namespace/name`.
    pub vehicle: &'a str,
    /// The vehicle's hardware.
    pub hardware_id: &'a str,
    /// The artifact's name in the metadata.
    pub target: &'a str,
    /// Its SHA-256 in hexadecimal, as the hub says it.
    pub digest: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// What was seen before, below which nothing is taken. Kept by the vehicle over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Floor {
    /// Of the director's metadata. The release team's has none: an older release may be assigned again, within its counter.
    pub assignment_version: u64,
    /// Of the firmware that runs.
    pub release_counter: u64,
}

impl Trust {
    /// Starts from a root that came with the vehicle. Its own signatures are checked.
    pub fn pinned(text: &str) -> Result<Trust, Refusal> {
        let root: Root = unverified(Role::Root, text)?;
        let trust = Trust { root };
        trust.signed::<Root>(Role::Root, text)?;
        Ok(trust)
    }

    /// Which root it is.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.root.version
    }

    /// The next root: signed by enough keys of this one and of itself, and of the next version.
    pub fn followed_by(&self, text: &str, now: Timestamp) -> Result<Trust, Refusal> {
        let root: Root = self.signed(Role::Root, text)?;
        if root.version != self.root.version + 1 {
            return Err(Refusal::Replayed { role: Role::Root, version: root.version, seen: self.root.version });
        }
        check_time(Role::Root, &root.expires, now)?;
        Trust::pinned(text)
    }

    /// Whether an artifact was released and assigned to this vehicle. Gives the artifact as it was released, and the floor from now on.
    ///
    /// The release counter of the floor is left as it is: it rises once the artifact runs and is confirmed.
    pub fn judge(
        &self,
        released: &str,
        assigned: &str,
        about: &About<'_>,
        floor: &Floor,
    ) -> Result<(Target, Floor), Refusal> {
        check_time(Role::Root, &self.root.expires, about.now)?;
        let targets: Targets = self.signed(Role::Targets, released)?;
        let assignment: Assignment = self.signed(Role::Director, assigned)?;
        check_time(Role::Targets, &targets.expires, about.now)?;
        check_time(Role::Director, &assignment.expires, about.now)?;
        check_age(Role::Director, assignment.version, floor.assignment_version)?;
        if assignment.vehicle != about.vehicle {
            return Err(Refusal::WrongVehicle(assignment.vehicle));
        }
        let target = agreed(&targets, &assignment, about)?;
        check_hardware(target, &assignment, about)?;
        if target.release_counter < floor.release_counter {
            let (counter, running) = (target.release_counter, floor.release_counter);
            return Err(Refusal::Downgrade { counter, running });
        }
        let floor = Floor { assignment_version: assignment.version, ..*floor };
        Ok((target.clone(), floor))
    }

    /// Metadata that enough keys of its role signed.
    fn signed<T: DeserializeOwned>(&self, role: Role, text: &str) -> Result<T, Refusal> {
        let envelope = envelope(role, text)?;
        let message = canonical(&envelope.signed)
            .ok_or_else(|| Refusal::Malformed(role, "it has a number that isn't whole".into()))?;
        let holders = self.root.roles.get(&role);
        let holders = holders.ok_or(Refusal::BelowThreshold { role, found: 0, needed: 1 })?;
        let mut signers = BTreeSet::new();
        for signature in &envelope.signatures {
            // A signature of a key that isn't of this role says nothing.
            let Some(key) = self.root.keys.get(&signature.keyid).filter(|_| holders.keyids.contains(&signature.keyid))
            else {
                continue;
            };
            let bytes = hex::decode(&signature.sig).unwrap_or_default();
            if key.id() != signature.keyid || !key.verifies(&message, &bytes) {
                return Err(Refusal::BadSignature(role));
            }
            signers.insert(key.public.as_str());
        }
        let needed = holders.threshold.max(1);
        if signers.len() < needed {
            return Err(Refusal::BelowThreshold { role, found: signers.len(), needed });
        }
        read(role, envelope.signed)
    }
}

/// Signed metadata as it is sent.
#[derive(Deserialize)]
struct Envelope {
    signed: Value,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    keyid: String,
    sig: String,
}

fn envelope(role: Role, text: &str) -> Result<Envelope, Refusal> {
    let malformed = |why: String| Refusal::Malformed(role, why);
    if text.len() > METADATA_BYTES_MAX {
        return Err(malformed(format!("it is longer than {METADATA_BYTES_MAX} bytes")));
    }
    if text.is_empty() {
        return Err(malformed("there is none".into()));
    }
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    match envelope.signatures.len() {
        count if count > SIGNATURES_MAX => Err(malformed(format!("it has {count} signatures"))),
        _ => Ok(envelope),
    }
}

fn unverified<T: DeserializeOwned>(role: Role, text: &str) -> Result<T, Refusal> {
    read(role, envelope(role, text)?.signed)
}

fn read<T: DeserializeOwned>(role: Role, signed: Value) -> Result<T, Refusal> {
    let kind = signed["_type"].as_str().unwrap_or_default();
    if kind != role.word() {
        return Err(Refusal::Malformed(role, format!("its type is {kind:?}")));
    }
    serde_json::from_value(signed).map_err(|error| Refusal::Malformed(role, error.to_string()))
}

/// The artifact that both name, with the same facts.
fn agreed<'a>(targets: &'a Targets, assignment: &Assignment, about: &About<'_>) -> Result<&'a Target, Refusal> {
    let name = &assignment.target;
    let target = targets.targets.get(name).filter(|_| name == about.target);
    let target =
        target.ok_or_else(|| Refusal::NotReleased(format!("{} was assigned and not released", about.target)))?;
    let same = target.sha256 == assignment.sha256
        && target.length == assignment.length
        && target.release_counter == assignment.release_counter
        && target.sha256 == about.digest;
    if same { Ok(target) } else { Err(Refusal::NotReleased(format!("{name} was released as something else"))) }
}

fn check_hardware(target: &Target, assignment: &Assignment, about: &About<'_>) -> Result<(), Refusal> {
    let own = about.hardware_id;
    if assignment.hardware_id != own {
        let other = &assignment.hardware_id;
        return Err(Refusal::WrongHardware(format!("it is assigned to hardware {other}, and this is {own}")));
    }
    if !target.hardware_ids.iter().any(|id| id == own) {
        let others = target.hardware_ids.join(", ");
        return Err(Refusal::WrongHardware(format!("it is for hardware {others}, and this is {own}")));
    }
    Ok(())
}

fn check_age(role: Role, version: u64, seen: u64) -> Result<(), Refusal> {
    if version < seen { Err(Refusal::Replayed { role, version, seen }) } else { Ok(()) }
}

fn check_time(role: Role, expires: &str, now: Timestamp) -> Result<(), Refusal> {
    let end: Timestamp = expires.parse().map_err(|_| Refusal::Malformed(role, format!("{expires:?} is no time")))?;
    if end <= now { Err(Refusal::Expired(role, expires.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
