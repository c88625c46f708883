//! What a simulated container would have written: a pure function of its pod and the time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::behaviour;

/// How often a container that runs says so.
const PERIOD: u64 = 10;

/// Most lines of that sort: what is older was rotated away.
const LINES_MAX: u64 = 1_000;

/// What a container wrote, oldest first. No two lines have the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// When, and what.
    pub lines: Vec<(Timestamp, String)>,
    /// Whether more may come.
    pub is_open: bool,
}

/// The log of a container at a moment, or of the one before its last start. Refusals are worded as a node's agent words them.
pub fn log(pod: &Pod, container: &str, previous: bool, now: Timestamp) -> Result<Log, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let run = Run::of(pod, name, container, previous)?;
    let spec = containers(pod).find(|it| it.name == container);
    let until = run.ended.map_or(now, |(ended, _)| within_second(ended).min(now)).max(run.started);
    let mut lines = Vec::new();
    let place = format!("{}/{name}", pod.metadata.namespace.as_deref().unwrap_or_default());
    let image = spec.and_then(|it| it.image.as_deref()).unwrap_or_default();
    let first = format!("simulated: container {container:?} of pod {place} would run {image} here; nothing runs");
    lines.push((run.started, first));
    let said = said(pod, container, run.number);
    lines.extend(said.into_iter().map(|(after, text)| (later(run.started, after), text)));
    let ran = u64::try_from(until.duration_since(run.started).as_secs()).unwrap_or(0);
    let periods = ran / PERIOD;
    for period in periods.saturating_sub(LINES_MAX) + 1..=periods {
        let span = period * PERIOD;
        let text = format!("simulated: container {container:?} has been running for {span}s");
        lines.push((later(run.started, Duration::from_secs(span)), text));
    }
    lines.retain(|(at, _)| *at <= until);
    lines.sort_by_key(|(at, _)| *at);
    if let Some((ended, code)) = run.ended {
        lines.push((ended, format!("simulated: container {container:?} ended with exit code {code}")));
    }
    Ok(Log { lines: apart(lines), is_open: run.ended.is_none() })
}

/// The distance of two lines that would have the same time.
const MOMENT: SignedDuration = SignedDuration::from_micros(1);

/// Lines with times of their own, so that a reader can say which it has seen.
fn apart(mut lines: Vec<(Timestamp, String)>) -> Vec<(Timestamp, String)> {
    let mut least = Timestamp::MIN;
    for (at, _) in &mut lines {
        *at = least.max(*at);
        least = at.checked_add(MOMENT).unwrap_or(Timestamp::MAX);
    }
    lines
}

/// One run of a container.
struct Run {
    /// How many there were before it.
    number: u32,
    started: Timestamp,
    /// When, and with which code.
    ended: Option<(Timestamp, i32)>,
}

impl Run {
    fn of(pod: &Pod, name: &str, container: &str, previous: bool) -> Result<Run, String> {
        let unknown = || format!("container {container:?} in pod {name:?} is not available");
        let status = statuses(pod).find(|it| it.name == container).ok_or_else(unknown)?;
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let state = status.state.clone().unwrap_or_default();
        let restarts = u32::try_from(status.restart_count).unwrap_or_default();
        let ended = match (previous, &state.running, state.terminated, last) {
            (true, _, _, None) => {
                return Err(format!("previous terminated container {container:?} in pod {name:?} not found"));
            }
            (true, _, _, Some(last)) => last.clone(),
            (false, Some(running), ..) => {
                return Ok(Run { number: restarts, started: moment(running.started_at.as_ref()), ended: None });
            }
            (false, None, Some(ended), _) => ended,
            (false, None, None, Some(last)) => last.clone(),
            (false, None, None, None) => {
                let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
                let why = match &*reason {
                    "ErrImagePull" => "image can't be pulled",
                    "ImagePullBackOff" => "trying and failing to pull image",
                    other => other,
                };
                return Err(format!("container {container:?} in pod {name:?} is waiting to start: {why}"));
            }
        };
        let finished = moment(ended.finished_at.as_ref());
        let number = if previous { restarts.saturating_sub(1) } else { restarts };
        Ok(Run { number, started: moment(ended.started_at.as_ref()), ended: Some((finished, ended.exit_code)) })
    }
}

/// The last moment of a second: times of a status have lost what came behind it, and what was said before the end is not lost with it.
fn within_second(time: Timestamp) -> Timestamp {
    later(time, Duration::from_nanos(999_999_999))
}

/// What the commands of a container print by themselves in their n-th run.
fn said(pod: &Pod, container: &str, number: u32) -> Vec<(Duration, String)> {
    let view = serde_json::to_value(pod).and_then(serde_json::from_value::<super::pod::Pod>);
    let Ok(view) = view else { return Vec::new() };
    let mut containers = view.spec.containers.iter().chain(&view.spec.init_containers);
    let found = containers.find(|it| *it.name == *container);
    found.map(|found| behaviour::said(&view, found, number)).unwrap_or_default()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let all = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
        all.into_iter().flatten().flatten()
    })
}

fn moment(time: Option<&Time>) -> Timestamp {
    time.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn later(from: Timestamp, span: Duration) -> Timestamp {
    from.saturating_add(SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(command: Value, status: Value, previous: bool, expected: Result<&[&str], &str>) {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [{"name": "c", "image": "busybox", "command": command}]},
            "status": {"containerStatuses": [status]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found = log(&pod, "c", previous, "2026-01-01T00:00:25Z".parse().unwrap());
        let found = found.map(|log| {
            assert!(log.lines.is_sorted_by(|one, other| one.0 < other.0), "{log:?}");
            let line = |(at, text): (Timestamp, String)| format!("{} {}", at.as_second() % 60, text);
            log.lines.into_iter().map(line).collect::<Vec<_>>()
        });
        assert_eq!(
            found,
            expected.map(|lines| lines.iter().map(|it| (*it).to_owned()).collect()).map_err(str::to_owned)
        );
    }

    fn status(state: Value, last: Value) -> Value {
        json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": last})
    }

    const HEAD: &str = "0 simulated: container \"c\" of pod shop/p would run busybox here; nothing runs";

    #[test]
    fn a_running_container_says_so_again_and_again() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let tens = [
            "10 simulated: container \"c\" has been running for 10s",
            "20 simulated: container \"c\" has been running for 20s",
        ];
        check(json!(["nginx"]), status(running, json!({})), false, Ok(&[HEAD, tens[0], tens[1]]));
    }

    #[test]
    fn commands_print_what_they_plainly_print() {
        let ended = json!({"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:02Z"}});
        let lines = [HEAD, "0 hello world", "2 done", "2 simulated: container \"c\" ended with exit code 3"];
        let quick = json!(["sh", "-c", "sleep 2; for i in $(seq 2); do echo $i; sleep 0.3; done; sleep 9; echo late"]);
        let said = [HEAD, "2 1", "2 2", "2 simulated: container \"c\" ended with exit code 3"];
        check(quick, status(ended.clone(), json!({})), false, Ok(&said));
        let command = json!(["sh", "-c", "echo 'hello world'; sleep 2; echo done; echo $HOME; exit 3"]);
        check(command.clone(), status(ended.clone(), json!({})), false, Ok(&lines));
        check(command.clone(), status(json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended), false, Ok(&lines));
    }

    #[test]
    fn refusals_are_those_of_an_agent() {
        let waiting = |reason: &str| status(json!({"waiting": {"reason": reason}}), json!({}));
        let none = json!([]);
        let prefix = "container \"c\" in pod \"p\" is waiting to start: ";
        check(none.clone(), waiting("ErrImagePull"), false, Err(&format!("{prefix}image can't be pulled")));
        check(
            none.clone(),
            waiting("ImagePullBackOff"),
            false,
            Err(&format!("{prefix}trying and failing to pull image")),
        );
        check(none.clone(), waiting("PodInitializing"), false, Err(&format!("{prefix}PodInitializing")));
        check(
            none,
            waiting("ContainerCreating"),
            true,
            Err("previous terminated container \"c\" in pod \"p\" not found"),
        );
    }
}
