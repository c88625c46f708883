//! What a container does, by its spec and by the annotations of its pod.

use std::time::Duration;

use setpoint_runtime::cache::Pairs;

use super::command::{self, End};
use super::environment;
use super::identity::ANNOTATIONS;
use super::pod::{Container, Exec, Pod};
use super::shell::{Environment, Files, Run};

/// What a container does once its pod is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether its image can be pulled.
    pub has_image: bool,
    /// How often it had been started again when this was told.
    restarts: i32,
    /// How the run ends that it is in, and the one after it; it runs on without.
    ends: [Option<End>; 2],
    /// How long after its start it is ready; never without.
    pub ready_after: Option<Duration>,
}

impl Behaviour {
    /// How the run after so many restarts ends.
    pub fn end_of(&self, restarts: i32) -> Option<End> {
        self.ends[usize::from(restarts > self.restarts)]
    }

    /// Whether it never ends by itself.
    pub fn runs_on(&self) -> bool {
        self.ends[0].is_none()
    }
}

/// Most earlier runs of a container that are gone through to know its files: a script that waits for more of them is not told from one that waits
/// for ever.
const RUNS_MAX: u32 = 16;

/// Tags that say that there is no such image.
const MISSING: [&str; 3] = ["404", "nonexistent", "non-existent"];

/// What a container of a pod does.
pub fn of(pod: &Pod, container: &Container) -> Behaviour {
    told(pod, container, &pod.metadata.annotations)
}

/// What an init container does: it ends well unless its command says otherwise, for that is what it is there for. Annotations are about the others.
pub fn of_init(pod: &Pod, container: &Container) -> Behaviour {
    let found = told(pod, container, &Pairs::default());
    match container.is_sidecar() {
        true => found,
        false => {
            let well = End { after: Duration::ZERO, code: 0 };
            Behaviour { ends: found.ends.map(|end| end.or(Some(well))), ready_after: None, ..found }
        }
    }
}

fn told(pod: &Pod, container: &Container, annotations: &Pairs) -> Behaviour {
    let restarts = restarts(pod, container);
    let ends = match (container.is_sidecar(), end_by(annotations)) {
        (true, _) => [None, None],
        (false, Some(chosen)) => [Some(chosen), Some(chosen)],
        (false, None) => ends(pod, container, u32::try_from(restarts).unwrap_or_default()),
    };
    let has_image = !is_missing(&container.image);
    Behaviour { has_image, restarts, ends, ready_after: ready_after(container, annotations) }
}

/// What a container prints in the run after so many restarts, and how long after its start.
pub fn said(pod: &Pod, container: &Container, restarts: u32) -> Vec<(Duration, String)> {
    Runs::before(pod, container, restarts).next().said
}

/// How the run after so many restarts ends, and the next.
fn ends(pod: &Pod, container: &Container, restarts: u32) -> [Option<End>; 2] {
    if container.command.is_empty() && container.args.is_empty() {
        let reads_nothing = !container.stdin && !container.tty;
        let end = (reads_nothing && is_shell(&container.image)).then_some(End { after: Duration::ZERO, code: 0 });
        return [end, end];
    }
    let mut runs = Runs::before(pod, container, restarts);
    [runs.next().end, runs.next().end]
}

/// The runs of a container one after another, with the files that each leaves to the next.
struct Runs<'a> {
    pod: &'a Pod,
    container: &'a Container,
    number: u32,
    files: Files,
}

impl Runs<'_> {
    /// All is as the runs before this one have left it.
    fn before<'a>(pod: &'a Pod, container: &'a Container, number: u32) -> Runs<'a> {
        let mut runs = Runs { pod, container, number: number.saturating_sub(RUNS_MAX), files: Files::new() };
        while runs.number < number {
            runs.next();
        }
        runs
    }

    fn next(&mut self) -> Run {
        let environment = environment::of(self.pod, self.container, self.number);
        self.number = self.number.saturating_add(1);
        command::run(&self.container.command, &self.container.args, &environment, &mut self.files)
    }
}

fn restarts(pod: &Pod, container: &Container) -> i32 {
    let status = &pod.status;
    let all = [&status.container_statuses, &status.init_container_statuses];
    let mut statuses = all.into_iter().flatten().flatten();
    statuses.find(|it| *it.name == *container.name).map_or(0, |it| it.restart_count)
}

/// A time among the annotations.
pub fn span(annotations: &Pairs, name: &str) -> Option<Duration> {
    text(annotations, name).and_then(command::span)
}

fn end_by(annotations: &Pairs) -> Option<End> {
    if text(annotations, "crash-loop") == Some("true") {
        return Some(End { after: Duration::from_secs(1), code: 1 });
    }
    let (after, code) = (span(annotations, "run-for"), text(annotations, "exit-code").and_then(|it| it.parse().ok()));
    (after.is_some() || code.is_some())
        .then(|| End { after: after.unwrap_or_default(), code: code.unwrap_or_default() })
}

fn ready_after(container: &Container, annotations: &Pairs) -> Option<Duration> {
    if text(annotations, "never-ready") == Some("true") {
        return None;
    }
    let Some(probe) = &container.readiness_probe else {
        return Some(span(annotations, "ready-delay").unwrap_or_default());
    };
    // Which files are there when it is asked is not known, so a probe that looks at files is taken to find them.
    let asked = |exec: &Exec| command::run(&exec.command, &[], &Environment::default(), &mut Files::new()).end;
    let fails = probe.exec.as_ref().and_then(asked).is_some_and(|end| end.code != 0);
    let delay = Duration::from_secs(u64::try_from(probe.initial_delay_seconds).unwrap_or_default());
    (!fails).then(|| span(annotations, "ready-delay").unwrap_or(delay))
}

fn text<'a>(annotations: &'a Pairs, name: &str) -> Option<&'a str> {
    annotations.get(&format!("{ANNOTATIONS}{name}"))
}

/// Images that run nothing but a shell unless they are told otherwise: with nothing to read, it ends.
const SHELLS: [&str; 5] = ["busybox", "alpine", "debian", "ubuntu", "fedora"];

fn is_shell(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    SHELLS.contains(&name.split([':', '@']).next().unwrap_or(name))
}

fn is_missing(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    let tag = name.split_once(':').map_or("", |(_, tag)| tag.split('@').next().unwrap_or(tag));
    MISSING.iter().any(|missing| tag.contains(missing))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(
        container: serde_json::Value,
        annotations: serde_json::Value,
        expected: (bool, Option<(u64, i32)>, Option<u64>),
    ) {
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container = &pod.spec.containers[0];
        let found = of(&pod, container);
        let end = found.end_of(0).map(|end| (end.after.as_secs(), end.code));
        assert_eq!((found.has_image, end, found.ready_after.map(|it| it.as_secs())), expected, "{container:?}");
    }

    #[test]
    fn spec_and_annotations_choose() {
        let image = |image: &str| json!({"name": "a", "image": image});
        check(image("nginx"), json!({}), (true, None, Some(0)));
        check(image("nginx:404"), json!({}), (false, None, Some(0)));
        check(image("registry:5000/nginx:non-existent-1"), json!({}), (false, None, Some(0)));
        check(image("nonexistent/nginx:1"), json!({}), (true, None, Some(0)));
        check(image("registry:5000/busybox:1.37"), json!({}), (true, Some((0, 0)), Some(0)));
        check(json!({"name": "a", "image": "busybox", "stdin": true}), json!({}), (true, None, Some(0)));
        check(json!({"name": "a", "image": "busybox", "args": ["./server"]}), json!({}), (true, None, Some(0)));
        check(json!({"image": "a", "command": ["sleep"], "args": ["5"]}), json!({}), (true, Some((5, 0)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/exit-code": "3"}), (true, Some((0, 3)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/run-for": "1m"}), (true, Some((60, 0)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/crash-loop": "true"}), (true, Some((1, 1)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/never-ready": "true"}), (true, None, None));
        let probed = |command: &str| json!({"image": "a", "readinessProbe": {"initialDelaySeconds": 7, "exec": {"command": [command]}}});
        check(probed("true"), json!({}), (true, None, Some(7)));
        check(probed("false"), json!({}), (true, None, None));
        let looks = json!({"image": "a", "readinessProbe": {"exec": {"command": ["cat", "/tmp/healthy"]}}});
        check(looks, json!({}), (true, None, Some(0)));
    }

    #[test]
    fn the_run_after_a_restart_ends_in_its_own_way() {
        let script = "if [ -f /data/a ]; then exit 0; else touch /data/a; exit 1; fi";
        let pod = |restarts: i32| -> Pod {
            let status = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts});
            let mounts = json!([{"name": "data", "mountPath": "/data"}]);
            let container = json!({"name": "c", "command": ["sh", "-c"], "args": [script], "volumeMounts": mounts});
            let spec = json!({"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]});
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"containerStatuses": [status]}}))
                .unwrap()
        };
        let code = |pod: &Pod, restarts| of(pod, &pod.spec.containers[0]).end_of(restarts).map(|end| end.code);
        assert_eq!((code(&pod(0), 0), code(&pod(0), 1)), (Some(1), Some(0)));
        assert_eq!((code(&pod(1), 1), code(&pod(1), 2)), (Some(0), Some(0)));
        assert_eq!(code(&pod(1_000_000), 1_000_000), Some(0));
    }
}
