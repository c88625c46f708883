//! Everything that a thief of one part might try, and what a vehicle answers.

use proptest::prelude::*;

use super::*;
use crate::metadata::{Key, SigningKey, sign};
use crate::reason;

const NOW: &str = "2026-06-01T00:00:00Z";
const LATER: &str = "2027-01-01T00:00:00Z";
const EARLIER: &str = "2026-05-01T00:00:00Z";

/// The keys of a fleet: three of the root, one of the release team, one of the hub.
struct Keys {
    root: [SigningKey; 3],
    targets: SigningKey,
    director: SigningKey,
}

impl Keys {
    fn new() -> Keys {
        let key = |number: u8| SigningKey::of_seed(&[number; 32]);
        Keys { root: [key(1), key(2), key(3)], targets: key(4), director: key(5) }
    }

    fn root(&self, version: u64, expires: &str) -> Root {
        let roots: Vec<Key> = self.root.iter().map(SigningKey::public).collect();
        let (targets, director) = ([self.targets.public()], [self.director.public()]);
        let roles = [(Role::Root, &roots[..], 2), (Role::Targets, &targets, 1), (Role::Director, &director, 1)];
        Root::new(version, expires, &roles)
    }

    fn trust(&self) -> Trust {
        let text = sign(&self.root(1, LATER), &[&self.root[0], &self.root[2]]).unwrap();
        Trust::pinned(&text).unwrap()
    }
}

fn target() -> Target {
    Target {
        version: "2.0.0".into(),
        length: 10,
        sha256: "ab".repeat(32),
        hardware_ids: vec!["tcu-1".into(), "tcu-2".into()],
        release_counter: 7,
    }
}

fn assignment() -> Assignment {
    Assignment {
        kind: "director".into(),
        version: 5,
        expires: LATER.into(),
        vehicle: "fleet/v-1".into(),
        hardware_id: "tcu-1".into(),
        target: "tcu-2.0.0.img".into(),
        sha256: "ab".repeat(32),
        length: 10,
        release_counter: 7,
    }
}

fn targets(target: Target) -> Targets {
    Targets::of(3, LATER, "tcu-2.0.0.img", target)
}

fn judge(released: &str, assigned: &str, floor: &Floor) -> Result<(Target, Floor), Refusal> {
    let digest = "ab".repeat(32);
    let about = About {
        vehicle: "fleet/v-1",
        hardware_id: "tcu-1",
        target: "tcu-2.0.0.img",
        digest: &digest,
        now: NOW.parse().unwrap(),
    };
    Keys::new().trust().judge(released, assigned, &about, floor)
}

/// Signs as the right ones do, after a change.
fn check(change: impl FnOnce(&mut Targets, &mut Assignment), expected: &str) {
    let keys = Keys::new();
    let (mut targets, mut assignment) = (targets(target()), assignment());
    change(&mut targets, &mut assignment);
    let released = sign(&targets, &[&keys.targets]).unwrap();
    let assigned = sign(&assignment, &[&keys.director]).unwrap();
    let floor = Floor { assignment_version: 5, release_counter: 7 };
    let found = judge(&released, &assigned, &floor).map_or_else(|refusal| refusal.reason(), |_| "taken");
    assert_eq!(found, expected);
}

#[test]
fn what_was_released_and_assigned_is_taken() {
    check(|_, _| {}, "taken");
    check(|_, assignment| assignment.version = 6, "taken");
}

#[test]
fn what_both_signed_is_refused_where_it_does_not_fit_this_vehicle_now() {
    check(|targets, _| targets.expires = EARLIER.into(), reason::METADATA_EXPIRED);
    check(|_, assignment| assignment.expires = EARLIER.into(), reason::METADATA_EXPIRED);
    check(|_, assignment| assignment.expires = "soon".into(), reason::METADATA_MALFORMED);
    check(|_, assignment| assignment.version = 4, reason::METADATA_REPLAYED);
    check(|_, assignment| assignment.vehicle = "fleet/v-2".into(), reason::WRONG_VEHICLE);
    check(|_, assignment| assignment.hardware_id = "tcu-2".into(), reason::WRONG_HARDWARE);
    check(
        |targets, _| targets.targets.values_mut().for_each(|target| target.hardware_ids.clear()),
        reason::WRONG_HARDWARE,
    );
    check(
        |targets, assignment| {
            targets.targets.values_mut().for_each(|target| target.release_counter = 6);
            assignment.release_counter = 6;
        },
        reason::DOWNGRADE,
    );
}

#[test]
fn a_hub_alone_can_not_make_a_release() {
    check(|_, assignment| assignment.sha256 = "cd".repeat(32), reason::NOT_RELEASED);
    check(|_, assignment| assignment.length = 11, reason::NOT_RELEASED);
    check(|_, assignment| assignment.release_counter = 8, reason::NOT_RELEASED);
    check(|_, assignment| assignment.target = "other.img".into(), reason::NOT_RELEASED);
    check(|targets, _| targets.targets.clear(), reason::NOT_RELEASED);
    let keys = Keys::new();
    // The director's key signs in the release team's place.
    let released = sign(&targets(target()), &[&keys.director]).unwrap();
    let assigned = sign(&assignment(), &[&keys.director]).unwrap();
    let refused = judge(&released, &assigned, &Floor::default()).unwrap_err();
    assert_eq!(refused.reason(), reason::THRESHOLD_NOT_MET);
    // One role's statement in another's place.
    let refused = judge(&assigned, &assigned, &Floor::default()).unwrap_err();
    assert_eq!(refused.reason(), reason::THRESHOLD_NOT_MET);
    assert_eq!(judge("", &assigned, &Floor::default()).unwrap_err().reason(), reason::METADATA_MALFORMED);
}

#[test]
fn a_root_needs_enough_different_keys_and_follows_the_one_before() {
    let keys = Keys::new();
    let now: Timestamp = NOW.parse().unwrap();
    let below = Refusal::BelowThreshold { role: Role::Root, found: 1, needed: 2 };
    let one = sign(&keys.root(1, LATER), &[&keys.root[0]]).unwrap();
    assert_eq!(Trust::pinned(&one).unwrap_err(), below);
    let twice = sign(&keys.root(1, LATER), &[&keys.root[0], &keys.root[0]]).unwrap();
    assert_eq!(Trust::pinned(&twice).unwrap_err(), below);

    let trust = keys.trust();
    let signed = |version, expires| sign(&keys.root(version, expires), &[&keys.root[0], &keys.root[1]]).unwrap();
    assert_eq!(trust.followed_by(&signed(2, LATER), now).unwrap().root.version, 2);
    for (text, reason) in [
        (signed(1, LATER), reason::METADATA_REPLAYED),
        (signed(3, LATER), reason::METADATA_REPLAYED),
        (signed(2, EARLIER), reason::METADATA_EXPIRED),
    ] {
        assert_eq!(trust.followed_by(&text, now).unwrap_err().reason(), reason);
    }
    // Others' keys, in a root that they signed themselves.
    let key = |number: u8| SigningKey::of_seed(&[number; 32]);
    let thief = Keys { root: [key(11), key(12), key(13)], targets: key(14), director: key(15) };
    let stolen = sign(&thief.root(2, LATER), &[&thief.root[0], &thief.root[1]]).unwrap();
    assert_eq!(trust.followed_by(&stolen, now).unwrap_err().reason(), reason::THRESHOLD_NOT_MET);
}

#[test]
fn a_root_whose_time_is_over_proves_nothing() {
    let keys = Keys::new();
    let trust = Trust::pinned(&sign(&keys.root(1, EARLIER), &[&keys.root[0], &keys.root[1]]).unwrap()).unwrap();
    let (released, assigned) = (sign(&targets(target()), &[&keys.targets]), sign(&assignment(), &[&keys.director]));
    let digest = "ab".repeat(32);
    let now = NOW.parse().unwrap();
    let about = About { vehicle: "fleet/v-1", hardware_id: "tcu-1", target: "tcu-2.0.0.img", digest: &digest, now };
    let refused = trust.judge(&released.unwrap(), &assigned.unwrap(), &about, &Floor::default()).unwrap_err();
    assert_eq!(refused, Refusal::Expired(Role::Root, EARLIER.into()));
}

proptest! {
    #[test]
    fn no_change_of_one_byte_is_taken_for_the_same(at in 0usize..2000, bit in 0u8..8) {
        let keys = Keys::new();
        let assigned = sign(&assignment(), &[&keys.director]).unwrap();
        let mut released = sign(&targets(target()), &[&keys.targets]).unwrap().into_bytes();
        prop_assume!(at < released.len());
        released[at] ^= 1 << bit;
        if let Ok(text) = String::from_utf8(released) {
            // A change that leaves the meaning alone, such as the case of a hexadecimal digit of the signature, may be taken.
            if let Ok((found, _)) = judge(&text, &assigned, &Floor::default()) {
                prop_assert_eq!(found, target());
            }
        }
    }

    #[test]
    fn what_is_cut_off_anywhere_is_refused(cut in 0usize..2000) {
        let keys = Keys::new();
        let assigned = sign(&assignment(), &[&keys.director]).unwrap();
        let released = sign(&targets(target()), &[&keys.targets]).unwrap();
        prop_assume!(cut < released.len());
        prop_assert!(judge(&released[..cut], &assigned, &Floor::default()).is_err());
    }
}
