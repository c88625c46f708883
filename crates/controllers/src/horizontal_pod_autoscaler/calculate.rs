//! How many pods there should be for a target, given what those that there are use.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_api::quantity::Quantity;

use super::usage::{Sample, Samples, Worker};

/// What pods should use on the average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A percentage of what they asked for.
    Utilization(i32),
    /// An amount, in thousandths.
    Average(i64),
}

/// How far from its target usage may be before anything is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    down: f64,
    up: f64,
}

/// What a user doesn't say.
const TOLERANCE: f64 = 0.1;

impl Tolerances {
    pub fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Tolerances {
        let said = |rules: Option<&HPAScalingRules>| {
            let text = rules.and_then(|rules| rules.tolerance.as_ref());
            text.and_then(|text| Quantity::parse(&text.0).ok()).map_or(TOLERANCE, |tolerance| tolerance.as_f64())
        };
        Tolerances {
            down: said(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            up: said(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }

    fn has(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// How many pods there should be, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub replicas: i32,
    /// Percent of what pods asked for, if the target is told so.
    pub utilization: Option<i32>,
    /// What a pod used on the average, in thousandths.
    pub average: i64,
}

/// What a metric is about.
#[derive(Clone, Copy, Debug)]
pub struct Metric<'a> {
    pub resource: &'a str,
    pub container: Option<&'a str>,
    pub target: Target,
    pub tolerances: Tolerances,
}

impl Metric<'_> {
    /// How many pods there should be.
    pub fn propose(
        &self,
        current: i32,
        pods: &[Worker],
        mut samples: Samples,
        now: Timestamp,
    ) -> Result<Proposal, String> {
        if pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = Groups::of(pods, &mut samples, self.resource, now);
        if samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let requests = match self.target {
            Target::Utilization(_) => self.requests(pods)?,
            Target::Average(_) => BTreeMap::new(),
        };
        let (ratio, utilization, average) = self.measure(&samples, &requests)?;
        let proposal = |replicas| Ok(Proposal { replicas, utilization, average });

        let is_short = ratio > 1.0 && !groups.unready.is_empty();
        if !is_short && groups.missing.is_empty() {
            return proposal(if self.tolerances.has(ratio) { current } else { ceil(ratio * groups.ready as f64) });
        }
        // Those of which nothing is known speak against a change.
        let assumed = |value| Sample { at: now, window: SignedDuration::ZERO, value };
        for name in groups.missing {
            if ratio < 1.0 {
                let value = self.full(requests.get(name).copied().unwrap_or(0));
                samples.insert(name.to_owned(), assumed(value));
            } else if ratio > 1.0 {
                samples.insert(name.to_owned(), assumed(0));
            }
        }
        if is_short {
            samples.extend(groups.unready.into_iter().map(|name| (name.to_owned(), assumed(0))));
        }
        let (careful, ..) = self.measure(&samples, &requests)?;
        let turns = (ratio < 1.0 && careful > 1.0) || (ratio > 1.0 && careful < 1.0);
        if self.tolerances.has(careful) || turns {
            return proposal(current);
        }
        let replicas = ceil(careful * samples.len() as f64);
        let turns = (careful < 1.0 && replicas > current) || (careful > 1.0 && replicas < current);
        proposal(if turns { current } else { replicas })
    }

    fn requests<'a>(&self, pods: &'a [Worker]) -> Result<BTreeMap<&'a str, i64>, String> {
        pods.iter().map(|pod| Ok((pod.name(), pod.request(self.resource, self.container)?))).collect()
    }

    /// What a pod is taken to use that nothing is known of when others use little.
    fn full(&self, request: i64) -> i64 {
        match self.target {
            Target::Utilization(target) => request.saturating_mul(i64::from(target.max(100))) / 100,
            Target::Average(target) => target,
        }
    }

    /// Usage as a part of the target, in percent of requests, and on the average.
    fn measure(&self, samples: &Samples, requests: &BTreeMap<&str, i64>) -> Result<(f64, Option<i32>, i64), String> {
        let sum = |values: &mut dyn Iterator<Item = i64>| values.fold(0_i64, i64::saturating_add);
        match self.target {
            Target::Average(target) => {
                let average = sum(&mut samples.values().map(|sample| sample.value)) / count(samples.len());
                Ok((average as f64 / target as f64, None, average))
            }
            Target::Utilization(target) => {
                let known = || samples.iter().filter_map(|(name, one)| Some((one.value, *requests.get(&**name)?)));
                let (used, asked) = (sum(&mut known().map(|one| one.0)), sum(&mut known().map(|one| one.1)));
                if asked == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let percent = i32::try_from(used.saturating_mul(100) / asked).unwrap_or(i32::MAX);
                let ratio = f64::from(percent) / f64::from(target);
                Ok((ratio, Some(percent), used / count(known().count())))
            }
        }
    }
}

fn count(many: usize) -> i64 {
    i64::try_from(many.max(1)).unwrap_or(i64::MAX)
}

/// The next whole number; one that is too large is the largest.
fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

/// Pods by what is known of them.
struct Groups<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// Sorts pods, and takes away what was measured of those that don't count.
    fn of(pods: &'a [Worker], samples: &mut Samples, resource: &str, now: Timestamp) -> Groups<'a> {
        let mut groups = Groups { ready: 0, unready: BTreeSet::new(), missing: BTreeSet::new() };
        let mut out = Vec::new();
        for pod in pods {
            if pod.is_ignored() {
                out.push(pod.name());
            } else if pod.is_pending() {
                groups.unready.insert(pod.name());
            } else {
                match samples.get(pod.name()) {
                    None => drop(groups.missing.insert(pod.name())),
                    Some(sample) if resource == "cpu" && pod.is_starting(sample, now) => {
                        groups.unready.insert(pod.name());
                    }
                    Some(_) => groups.ready += 1,
                }
            }
        }
        for name in out.iter().chain(&groups.unready) {
            samples.remove(*name);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// Pods of 1 CPU each, by words: a number is what a ready one uses in thousandths.
    fn check(current: i32, target: Target, pods: &str, wanted: Result<i32, &str>) {
        let now: Timestamp = NOW.parse().unwrap();
        let (mut workers, mut samples) = (Vec::new(), Samples::new());
        for (index, word) in pods.split_whitespace().enumerate() {
            let name = format!("p{index}");
            let phase = match word {
                "pending" => "Pending",
                "failed" => "Failed",
                _ => "Running",
            };
            let status = if word == "unready" { "False" } else { "True" };
            let requests = json!({"cpu": "1"});
            workers.push(serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
                "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z",
                    "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:01Z"}]},
            })).unwrap());
            let value = word.parse().ok().or((word == "unready").then_some(100));
            if let Some(value) = value {
                samples.insert(name, Sample { at: now, window: SignedDuration::from_secs(60), value });
            }
        }
        let metric = Metric { resource: "cpu", container: None, target, tolerances: Tolerances::of(None) };
        let found = metric.propose(current, &workers, samples, now);
        assert_eq!(found.as_ref().map(|found| found.replicas).map_err(|why| &**why), wanted, "{pods}");
    }

    #[test]
    fn there_should_be_as_many_pods_as_their_use_is_times_the_target() {
        let half = Target::Utilization(50);
        check(2, half, "500 500", Ok(2));
        check(2, half, "900 1000", Ok(4));
        check(4, half, "100 100 100 100", Ok(1));
        check(2, half, "540 540", Ok(2));
        check(3, Target::Average(300), "600 600 600", Ok(6));
        check(3, Target::Average(300), "310 310 310", Ok(3));
    }

    #[test]
    fn pods_that_nothing_is_known_of_speak_against_a_change() {
        let half = Target::Utilization(50);
        // Taken to use nothing when there should be more, and all when there should be fewer.
        check(3, half, "1000 1000 missing", Ok(4));
        check(2, half, "1000 pending", Ok(2));
        check(4, half, "100 100 100 missing", Ok(3));
        check(4, half, "1000 1000 unready unready", Ok(4));
        check(3, half, "1000 1000 failed", Ok(4));
        check(3, Target::Average(300), "100 100 missing", Ok(2));
    }

    #[test]
    fn without_anything_known_there_is_no_answer() {
        let half = Target::Utilization(50);
        check(1, half, "", Err("no pods returned by selector while calculating replica count"));
        check(1, half, "pending", Err("did not receive metrics for targeted pods (pods might be unready)"));
    }
}
