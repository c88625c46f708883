//! The name of a task: who makes it anew from the same facts gets the same name.

use std::fmt;

use ring::digest::{SHA256, digest};

/// Letters of RFC 4648 base32, in lower case.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Letters of a task's name: 80 bits, so that no two tasks of a fleet share one by chance.
const LENGTH: usize = 16;

/// The name of "bring this vehicle, as of this generation of its spec, to this firmware".
///
/// It follows from the facts, so a controller that died after it had handed out a task hands out the same one again and the vehicle
/// knows it. Attempts of one task are numbered beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(String);

impl TaskId {
    /// The task of a vehicle, by its uid, the generation of its spec and the firmware's digest.
    #[must_use]
    pub fn of(vehicle_uid: &str, generation: i64, firmware_digest: &str) -> TaskId {
        let facts = format!("{vehicle_uid}\0{generation}\0{firmware_digest}");
        TaskId(base32(digest(&SHA256, facts.as_bytes()).as_ref())[..LENGTH].to_owned())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Five bits a letter, without padding.
fn base32(bytes: &[u8]) -> String {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1)));
    let bits: Vec<usize> = bits.collect();
    bits.chunks(5)
        .map(|five| {
            let value = five.iter().fold(0, |value, bit| value << 1 | bit) << (5 - five.len());
            char::from(LETTERS[value])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_task_is_named_by_its_facts_and_by_each_of_them() {
        let task = TaskId::of("uid", 3, "abc");
        assert_eq!(task, TaskId::of("uid", 3, "abc"));
        assert_eq!(task.as_str().len(), LENGTH);
        for other in [TaskId::of("uid2", 3, "abc"), TaskId::of("uid", 4, "abc"), TaskId::of("uid", 3, "abd")] {
            assert_ne!(task, other);
        }
    }
}
