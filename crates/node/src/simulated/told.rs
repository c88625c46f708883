//! What nodes tell of their pods at moments that leave no trace in a status: probes that fail, and containers that are asked to end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::behaviour::{self, Behaviour, Role};
use super::container::Restart;
use super::events::{self, Said};
use super::pod::{Container, Pod};
use super::probes::Kind;
use super::stop::Stop;

/// How far a process looks back that has not looked at a pod before.
const PAST: SignedDuration = SignedDuration::from_secs(10);

/// Whether there can be anything to tell of a pod.
pub fn is_quiet(pod: &Pod) -> bool {
    let is_asked =
        |it: &Container| it.startup_probe.is_some() || it.liveness_probe.is_some() || it.readiness_probe.is_some();
    pod.has_ended()
        || (pod.is_settled && pod.metadata.finalizers.is_empty())
        || (pod.metadata.deletion_timestamp.is_none()
            && pod.spec.active_deadline_seconds.is_none()
            && !pod.spec.containers.iter().chain(&pod.spec.init_containers).any(is_asked))
}

/// What has happened after the last look, up to now.
pub fn since(pod: &Pod, last: Option<Timestamp>, now: Timestamp) -> Vec<Said> {
    let mut said = Vec::new();
    let is_new = |at: Timestamp| at <= now && last.is_none_or(|last| last < at);
    let deadline = Stop::by_deadline(pod, now).filter(|stop| is_new(stop.at));
    let deletion = Stop::by_deletion(pod);
    if deadline.is_some() && deletion.is_none() {
        said.push(events::deadline());
    }
    if deadline.or(deletion.filter(|stop| is_new(stop.at))).is_some() {
        said.extend(running(pod).map(|it| it.killed(None)));
    }
    if deletion.is_none() {
        let begin = last.unwrap_or_else(|| now.saturating_sub(PAST).unwrap_or(now));
        said.extend(running(pod).flat_map(|it| it.failures(begin, now)));
    }
    said
}

/// When there is something to tell next.
pub fn next(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    running(pod).filter_map(|it| it.next_failure(now)).min()
}

/// The sidecars that a pod that is done has stopped with the same change.
pub fn stopped_sidecars<'a>(pod: &'a Pod, new: &'a PodStatus) -> impl Iterator<Item = Said> + 'a {
    let is_over = matches!(new.phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_silent = pod.metadata.deletion_timestamp.is_some() || new.reason.is_some() || !is_over;
    running(pod).filter(move |it| !is_silent && it.role == Role::Sidecar).map(|it| it.killed(None))
}

/// A container that runs.
struct Running<'a> {
    pod: &'a Pod,
    container: &'a Container,
    role: Role,
    started: Timestamp,
    behaviour: Behaviour,
    restarts: i32,
}

fn running(pod: &Pod) -> impl Iterator<Item = Running<'_>> {
    let status = &pod.status;
    let init = pod.spec.init_containers.iter().map(move |it| (it, Role::of_init(it), &status.init_container_statuses));
    let main = pod.spec.containers.iter().map(move |it| (it, Role::Main, &status.container_statuses));
    init.chain(main).filter_map(move |(container, role, statuses)| {
        let status: &ContainerStatus = statuses.iter().flatten().find(|it| *it.name == *container.name)?;
        let started = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        let behaviour = behaviour::of(pod, container, role);
        Some(Running { pod, container, role, started, behaviour, restarts: status.restart_count })
    })
}

impl Running<'_> {
    fn about(&self) -> String {
        let list = if self.role == Role::Main { "containers" } else { "initContainers" };
        format!("spec.{list}{{{}}}", self.container.name)
    }

    fn killed(&self, by: Option<Kind>) -> Said {
        let name = &self.container.name;
        let who = if self.role == Role::Main { "Container" } else { "Init container" };
        let again = self.role == Role::Main && Restart::of(&self.pod.spec.restart_policy) != Restart::Never;
        let end = if again { ", will be restarted" } else { "" };
        events::killing(
            self.about(),
            match by {
                None | Some(Kind::Readiness) => format!("Stopping container {name}"),
                Some(Kind::Liveness) => format!("{who} {name} failed liveness probe{end}"),
                Some(Kind::Startup) => format!("{who} {name} failed startup probe{end}"),
            },
        )
    }

    /// What its probes told after a moment, up to now.
    fn failures(&self, last: Timestamp, now: Timestamp) -> Vec<Said> {
        let course = self.behaviour.course(self.restarts);
        let (from, until) = (self.age(last).map_or(Duration::ZERO, |age| age + Duration::from_secs(1)), self.age(now));
        let Some(until) = until else { return Vec::new() };
        let failing = course.probes.iter().filter_map(|probe| Some((probe.kind, probe.fails_after(from)?)));
        let mut said: Vec<Said> = failing
            .filter(|(_, (at, _))| *at <= until)
            .map(|(kind, (_, text))| events::unhealthy(self.about(), kind, text))
            .collect();
        said.extend(
            course.health.killed.filter(|(at, _)| (from..=until).contains(at)).map(|(_, kind)| self.killed(Some(kind))),
        );
        said
    }

    fn next_failure(&self, now: Timestamp) -> Option<Timestamp> {
        let from = self.age(now).map_or(Duration::ZERO, |age| age + Duration::from_secs(1));
        let course = self.behaviour.course(self.restarts);
        let next = course.probes.iter().filter_map(|probe| probe.fails_after(from)).map(|(at, _)| at).min()?;
        self.started.checked_add(SignedDuration::try_from(next).ok()?).ok()
    }

    /// How long it had been running at a moment; none before its start.
    fn age(&self, at: Timestamp) -> Option<Duration> {
        Duration::try_from(at.duration_since(self.started)).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(grace: Option<i64>) -> Pod {
        let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 5, "failureThreshold": 2});
        let state = json!({"running": {"startedAt": "1970-01-01T00:00:00Z"}});
        let status = json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        let mut metadata = json!({"name": "p"});
        if let Some(grace) = grace {
            metadata["deletionTimestamp"] = json!("1970-01-01T00:01:00Z");
            metadata["deletionGracePeriodSeconds"] = json!(grace);
        }
        let spec = json!({"containers": [{"name": "c", "image": "nginx", "livenessProbe": probe}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"containerStatuses": [status]}}))
            .unwrap()
    }

    #[test]
    fn failing_probes_and_ends_are_told_once() {
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let check = |pod: &Pod, last: Option<i64>, now: i64, expected: &[&str]| {
            let found = since(pod, last.map(second), second(now)).into_iter();
            let found: Vec<_> = found.map(|said| format!("{} {}", said.what.reason, said.what.note)).collect();
            assert_eq!(found, expected, "{last:?} {now}");
        };
        let (failed, killed) =
            ("Unhealthy Liveness probe failed: ", "Killing Container c failed liveness probe, will be restarted");
        check(&pod(None), None, 0, &[]);
        check(&pod(None), Some(0), 1, &[failed]);
        check(&pod(None), Some(1), 5, &[]);
        check(&pod(None), Some(5), 6, &[failed, killed]);
        check(&pod(None), Some(6), 60, &[]);
        assert_eq!([0, 1, 6].map(|now| next(&pod(None), second(now))), [Some(second(1)), Some(second(6)), None]);
        check(&pod(Some(30)), Some(29), 30, &["Killing Stopping container c"]);
        check(&pod(Some(30)), Some(30), 40, &[]);
    }
}
