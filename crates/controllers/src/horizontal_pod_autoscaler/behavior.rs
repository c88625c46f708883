//! How fast the number of pods may change, and how sure one must be before it does.

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// For how long a higher proposal holds off a lower one, unless a user says otherwise.
const DOWN_WINDOW: i32 = 300;

/// Longest window and longest period that the API takes; nothing older is of use.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(3600);

/// What was proposed and done lately. A new process starts with the present number as the one proposal, so it takes no
/// pods away sooner than this one would.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    proposals: Vec<(Timestamp, i32)>,
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

impl Memory {
    /// Starts with the present number if nothing is known.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.proposals.is_empty() {
            self.proposals.push((now, current));
        }
    }

    /// Remembers a change.
    pub fn changed(&mut self, from: i32, to: i32, now: Timestamp) {
        let list = if to > from { &mut self.ups } else { &mut self.downs };
        list.push((now, to.abs_diff(from).try_into().unwrap_or(i32::MAX)));
    }

    fn proposed(&mut self, replicas: i32, now: Timestamp) {
        let oldest = ago(now, REMEMBERED);
        for list in [&mut self.proposals, &mut self.ups, &mut self.downs] {
            list.retain(|(at, _)| *at >= oldest);
        }
        self.proposals.push((now, replicas));
    }

    /// How many pods there were at the beginning of a period.
    fn at_start(&self, current: i32, period: i32, now: Timestamp) -> i32 {
        let since = ago(now, SignedDuration::from_secs(period.into()));
        let sum = |list: &[(Timestamp, i32)]| {
            let recent = list.iter().filter(|(at, _)| *at > since);
            recent.fold(0_i32, |sum, (_, change)| sum.saturating_add(*change))
        };
        current.saturating_sub(sum(&self.ups)).saturating_add(sum(&self.downs))
    }
}

fn ago(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.saturating_sub(span).unwrap_or(Timestamp::MIN)
}

/// What is proposed for what there is, and between which bounds it must stay.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub current: i32,
    pub proposed: i32,
    pub min: i32,
    pub max: i32,
}

/// How many pods there will be, and what is said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub replicas: i32,
    /// Reason and message of `AbleToScale`.
    pub able: (&'static str, &'static str),
    pub is_limited: bool,
    /// Reason and message of `ScalingLimited`.
    pub limit: (&'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_HELD: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_HELD: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");

/// Takes a proposal as far as users allow, and remembers it.
pub fn grant(
    wish: Wish,
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    memory: &mut Memory,
    now: Timestamp,
) -> Granted {
    let rules = Rules::of(behavior);
    let steady = rules.steady(wish, memory, now);
    memory.proposed(wish.proposed, now);
    let able = match (steady == wish.proposed, wish.proposed >= wish.current) {
        (true, _) => READY,
        (false, true) if behavior.is_some() => UP_HELD,
        (false, _) => DOWN_HELD,
    };
    let (replicas, limit) = match behavior {
        Some(_) => rules.limited(Wish { proposed: steady, ..wish }, memory, now),
        None => limited(Wish { proposed: steady, ..wish }),
    };
    Granted { replicas, able, is_limited: replicas != steady, limit }
}

/// The bounds of an autoscaler without rules of its own: at most twice as many, or four.
fn limited(wish: Wish) -> (i32, (&'static str, &'static str)) {
    let fast = wish.current.saturating_mul(2).max(4);
    let (most, why) = if wish.max > fast { (fast, TOO_FAST_UP) } else { (wish.max, TOO_MANY) };
    if wish.proposed < wish.min {
        (wish.min, TOO_FEW)
    } else if wish.proposed > most {
        (most, why)
    } else {
        (wish.proposed, WITHIN)
    }
}

/// What users allow in each direction.
struct Rules {
    up: HPAScalingRules,
    down: HPAScalingRules,
    has_behavior: bool,
}

impl Rules {
    fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Rules {
        let policy = |kind: &str, value| HPAScalingPolicy { type_: kind.to_owned(), value, period_seconds: 15 };
        let mut up = behavior.and_then(|behavior| behavior.scale_up.clone()).unwrap_or_default();
        up.policies.get_or_insert_with(|| vec![policy("Percent", 100), policy("Pods", 4)]);
        let mut down = behavior.and_then(|behavior| behavior.scale_down.clone()).unwrap_or_default();
        down.policies.get_or_insert_with(|| vec![policy("Percent", 100)]);
        Rules { up, down, has_behavior: behavior.is_some() }
    }

    /// The proposal nearest to the present number among those of the windows.
    fn steady(&self, wish: Wish, memory: &Memory, now: Timestamp) -> i32 {
        let since = |window: i32| ago(now, SignedDuration::from_secs(window.into()));
        let down = since(self.down.stabilization_window_seconds.unwrap_or(DOWN_WINDOW));
        if !self.has_behavior {
            let recent = memory.proposals.iter().filter(|(at, _)| *at >= down);
            return recent.fold(wish.proposed, |most, (_, replicas)| most.max(*replicas));
        }
        let up = since(self.up.stabilization_window_seconds.unwrap_or(0));
        let recent = |since: Timestamp| memory.proposals.iter().filter(move |(at, _)| *at > since).map(|one| one.1);
        let least = recent(up).fold(wish.proposed, i32::min);
        let most = recent(down).fold(wish.proposed, i32::max);
        wish.current.max(least).min(most)
    }

    fn limited(&self, wish: Wish, memory: &Memory, now: Timestamp) -> (i32, (&'static str, &'static str)) {
        if wish.proposed > wish.current {
            let fast = self.fastest_up(wish.current, memory, now).max(wish.current);
            let (most, why) = if wish.max > fast { (fast, TOO_FAST_UP) } else { (wish.max, TOO_MANY) };
            if wish.proposed > most {
                return (most, why);
            }
        } else if wish.proposed < wish.current {
            let fast = self.fastest_down(wish.current, memory, now).min(wish.current);
            let (least, why) = if wish.min < fast { (fast, TOO_FAST_DOWN) } else { (wish.min, TOO_FEW) };
            if wish.proposed < least {
                return (least, why);
            }
        }
        (wish.proposed, WITHIN)
    }

    fn fastest_up(&self, current: i32, memory: &Memory, now: Timestamp) -> i32 {
        let bound = |policy: &HPAScalingPolicy| {
            let start = memory.at_start(current, policy.period_seconds, now);
            match policy.type_.as_str() {
                "Pods" => start.saturating_add(policy.value),
                // Rounded up: else one pod would never become two.
                _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        };
        let bounds = self.up.policies.iter().flatten().map(bound);
        match self.up.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => bounds.min().unwrap_or(i32::MAX),
            _ => bounds.max().unwrap_or(i32::MIN),
        }
    }

    fn fastest_down(&self, current: i32, memory: &Memory, now: Timestamp) -> i32 {
        let bound = |policy: &HPAScalingPolicy| {
            let start = memory.at_start(current, policy.period_seconds, now);
            match policy.type_.as_str() {
                "Pods" => start.saturating_sub(policy.value),
                _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        };
        let bounds = self.down.policies.iter().flatten().map(bound);
        match self.down.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => bounds.max().unwrap_or(i32::MIN),
            _ => bounds.min().unwrap_or(i32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn behavior(said: Value) -> HorizontalPodAutoscalerBehavior {
        serde_json::from_value(said).unwrap()
    }

    fn wish(current: i32, proposed: i32) -> Wish {
        Wish { current, proposed, min: 1, max: 100 }
    }

    #[test]
    fn bounds_and_the_usual_rate_hold() {
        for (current, proposed, granted, reason) in [
            (1, 3, 3, "DesiredWithinRange"),
            (1, 50, 4, "ScaleUpLimit"),
            (10, 50, 20, "ScaleUpLimit"),
            (60, 500, 100, "TooManyReplicas"),
            (3, 0, 1, "TooFewReplicas"),
        ] {
            let found = grant(wish(current, proposed), None, &mut Memory::default(), at(0));
            assert_eq!((found.replicas, found.limit.0), (granted, reason), "{current} to {proposed}");
            assert_eq!(found.is_limited, granted != proposed);
        }
    }

    #[test]
    fn a_lower_proposal_waits_until_higher_ones_are_old() {
        let mut memory = Memory::default();
        memory.begin(5, at(0));
        let held = grant(wish(5, 2), None, &mut memory, at(15));
        assert_eq!((held.replicas, held.able.0), (5, "ScaleDownStabilized"));
        let free = grant(wish(5, 2), None, &mut memory, at(301));
        assert_eq!((free.replicas, free.able.0), (2, "ReadyForNewScale"));
    }

    #[test]
    fn windows_hold_in_the_direction_that_they_are_for() {
        let slow_up = behavior(
            json!({"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 0}}),
        );
        let mut memory = Memory::default();
        memory.begin(3, at(0));
        let held = grant(wish(3, 6), Some(&slow_up), &mut memory, at(30));
        assert_eq!((held.replicas, held.able.0), (3, "ScaleUpStabilized"));
        assert_eq!(grant(wish(3, 2), Some(&slow_up), &mut memory, at(45)).replicas, 2);
        assert_eq!(grant(wish(3, 6), Some(&slow_up), &mut memory, at(120)).replicas, 6);
    }

    #[test]
    fn policies_limit_what_changes_in_a_period() {
        let rules = |select: &str| {
            let policies = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]);
            let rules = json!({"policies": policies, "selectPolicy": select, "stabilizationWindowSeconds": 0});
            behavior(json!({"scaleUp": rules, "scaleDown": rules}))
        };
        for (select, up, down) in [("Max", 15, 5), ("Min", 12, 8), ("Disabled", 10, 10)] {
            let rules = rules(select);
            let to = |proposed| grant(wish(10, proposed), Some(&rules), &mut Memory::default(), at(0)).replicas;
            assert_eq!((to(100), to(1)), (up, down), "{select}");
        }
        let (rules, mut memory) = (rules("Min"), Memory::default());
        memory.changed(10, 12, at(0));
        let held = grant(wish(12, 20), Some(&rules), &mut memory, at(30));
        assert_eq!((held.replicas, held.limit.0), (12, "ScaleUpLimit"));
        assert_eq!(grant(wish(12, 20), Some(&rules), &mut memory, at(61)).replicas, 14);
    }
}
