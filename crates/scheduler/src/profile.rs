//! How nodes are compared, by the name of the scheduler that a pod asks for.

use serde::Deserialize;
use serde_json::Value;

/// How many profiles there can be.
const PROFILES_MAX: usize = 16;
/// The most that an aspect can count.
const WEIGHT_MAX: i64 = 100;

/// What one scheduler's name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// What pods write as `schedulerName`.
    #[serde(rename = "schedulerName")]
    pub name: String,
    /// Which nodes are better.
    #[serde(default)]
    pub strategy: Strategy,
    /// How much each aspect counts.
    #[serde(default)]
    pub weights: Weights,
}

/// Which nodes are better: those with more room, or those with less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Strategy {
    /// Pods spread over nodes.
    #[default]
    LeastAllocated,
    /// Nodes fill up one after the other.
    MostAllocated,
}

/// How much each aspect counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Weights {
    /// Room on the node.
    pub room: i64,
    /// Processors and memory used alike.
    pub balance: i64,
    /// Taints that say: rather not.
    pub taints: i64,
    /// Preferred labels of nodes.
    pub node_affinity: i64,
    /// Pods that should be near or far.
    pub pod_affinity: i64,
    /// Pods that should be spread.
    pub spread: i64,
    /// Images that are there already.
    pub images: i64,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { room: 1, balance: 1, taints: 3, node_affinity: 2, pod_affinity: 2, spread: 2, images: 1 }
    }
}

impl Profile {
    /// As a scheduler of this name does it that was told nothing else.
    pub fn named(name: &str) -> Profile {
        Profile { name: name.to_owned(), strategy: Strategy::default(), weights: Weights::default() }
    }
}

/// The part of a configuration that is the scheduler's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    profiles: Vec<Profile>,
}

/// Reads profiles as a configuration writes them under `scheduler`; without any there is the default one.
pub fn profiles(written: Option<&Value>) -> Result<Vec<Profile>, String> {
    let Some(written) = written else { return Ok(vec![Profile::named(crate::DEFAULT)]) };
    let Written { profiles } =
        serde_json::from_value(written.clone()).map_err(|error| format!("scheduler: {error}"))?;
    if profiles.is_empty() || profiles.len() > PROFILES_MAX {
        return Err(format!("scheduler.profiles: must have from 1 to {PROFILES_MAX}"));
    }
    for (index, profile) in profiles.iter().enumerate() {
        let at = format!("scheduler.profiles[{index}]");
        if profile.name.is_empty() || profiles[..index].iter().any(|other| other.name == profile.name) {
            return Err(format!("{at}.schedulerName: must be a name that no other profile has"));
        }
        let weights = &profile.weights;
        let all = [
            weights.room,
            weights.balance,
            weights.taints,
            weights.node_affinity,
            weights.pod_affinity,
            weights.spread,
            weights.images,
        ];
        if all.iter().any(|weight| !(0..=WEIGHT_MAX).contains(weight)) {
            return Err(format!("{at}.weights: must be from 0 to {WEIGHT_MAX}"));
        }
    }
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn profiles_are_read_and_what_is_wrong_is_told() {
        assert_eq!(profiles(None), Ok(vec![Profile::named("default-scheduler")]));
        let packed = json!({"schedulerName": "packed", "strategy": "MostAllocated", "weights": {"room": 5}});
        let read = profiles(Some(&json!({"profiles": [{"schedulerName": "a"}, packed]}))).unwrap();
        assert_eq!((read[1].strategy, read[1].weights.room, read[1].weights.taints), (Strategy::MostAllocated, 5, 3));
        for (written, told) in [
            (json!({"profiles": []}), "scheduler.profiles: must have from 1 to 16"),
            (
                json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}),
                "scheduler.profiles[1].schedulerName: must be a name that no other profile has",
            ),
            (
                json!({"profiles": [{"schedulerName": "a", "weights": {"room": 101}}]}),
                "scheduler.profiles[0].weights: must be from 0 to 100",
            ),
        ] {
            assert_eq!(profiles(Some(&written)), Err(told.to_owned()));
        }
        assert!(profiles(Some(&json!({"profile": []}))).unwrap_err().starts_with("scheduler: unknown field `profile`"));
    }
}
