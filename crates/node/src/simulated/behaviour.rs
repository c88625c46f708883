//! What a container does, by its spec and by the annotations of its pod.

use std::time::Duration;

use setpoint_runtime::cache::Pairs;

use super::command::{self, End};
use super::environment;
use super::identity::ANNOTATIONS;
use super::pod::{Container, Exec, Pod};
use super::probes::{self, Health, Kind};
use super::shell::{self, Environment, Files, Run};

/// What a container does once its pod is on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether its image can be pulled.
    pub has_image: bool,
    /// How often it had been started again when this was told.
    restarts: i32,
    /// What it does in the run that it is in, and in the one after it.
    courses: [Course; 2],
    /// How long after it was asked to end its hook lets it be told.
    pub hook: Duration,
}

/// What a container does in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// How it ends by itself; it runs on without.
    pub end: Option<End>,
    /// How it ends once it is told to; without, it doesn't listen.
    pub on_stop: Option<End>,
    pub health: Health,
    /// The probes that ask it.
    pub probes: Vec<probes::Course>,
}

impl Behaviour {
    /// What it does in the run after so many restarts.
    pub fn course(&self, restarts: i32) -> &Course {
        &self.courses[usize::from(restarts > self.restarts)]
    }

    /// Whether it never ends, and never changes, by itself.
    pub fn is_steady(&self) -> bool {
        self.courses[0].end.is_none() && self.courses[0].health.is_steady()
    }

    /// Whether it ends as soon as it is asked to.
    pub fn stops_at_once(&self) -> bool {
        self.hook.is_zero() && self.courses[0].on_stop.is_some_and(|end| end.after.is_zero())
    }
}

/// Which of the containers of a pod one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Main,
    /// It has to end well before others start.
    Init,
    /// It starts with the init containers and goes on beside the others.
    Sidecar,
}

impl Role {
    /// The role of one of the init containers.
    pub fn of_init(container: &Container) -> Role {
        if container.is_sidecar() { Role::Sidecar } else { Role::Init }
    }
}

/// Most earlier runs of a container that are gone through to know its files: a script that waits for more of them is not told from one that waits
/// for ever.
const RUNS_MAX: u32 = 16;

/// Tags that say that there is no such image.
const MISSING: [&str; 3] = ["404", "nonexistent", "non-existent"];

/// What a container of a pod does. An init container ends well unless its command says otherwise, for that is what it is there for;
/// annotations are about the main ones.
pub fn of(pod: &Pod, container: &Container, role: Role) -> Behaviour {
    let restarts = restarts(pod, container);
    let none = Pairs::default();
    let annotations = if role == Role::Main { &pod.metadata.annotations } else { &none };
    let mut runs = Runs::before(pod, container, u32::try_from(restarts).unwrap_or_default());
    let courses = [(); 2].map(|()| runs.course(annotations, role));
    Behaviour { has_image: !is_missing(&container.image), restarts, courses, hook: hook(container) }
}

/// What a container prints in the run after so many restarts, and how long after its start.
pub fn said(pod: &Pod, container: &Container, restarts: u32) -> Vec<(Duration, String)> {
    Runs::before(pod, container, restarts).next().said
}

/// Longest message that a container leaves at its end, and, if it is taken from its log, how much of that.
const LAST_WORDS_MAX: usize = 4096;
const LAST_LINES_MAX: (usize, usize) = (80, 2048);
/// Where a container leaves its message if it doesn't say.
const LAST_WORDS: &str = "/dev/termination-log";

/// What a container leaves as its message that has run for so long and ended with this code.
pub fn last_words(pod: &Pod, container: &Container, restarts: u32, ran: Duration, code: i32) -> Option<String> {
    if container.command.is_empty() && container.args.is_empty() {
        return None;
    }
    let run = Runs::before(pod, container, restarts).until(ran);
    let path = &*container.termination_message_path;
    let left = run.files.get(if path.is_empty() { LAST_WORDS } else { path }).cloned().flatten();
    let written = left.filter(|text| !text.is_empty()).map(|text| tail(&text, LAST_WORDS_MAX).to_owned());
    let falls_back = code != 0 && &*container.termination_message_policy == "FallbackToLogsOnError";
    written.or_else(|| falls_back.then(|| last_lines(&run)).filter(|text| !text.is_empty()))
}

fn last_lines(run: &Run) -> String {
    let (lines, bytes) = LAST_LINES_MAX;
    let last = &run.said[run.said.len().saturating_sub(lines)..];
    let text: String = last.iter().map(|(_, line)| format!("{line}\n")).collect();
    tail(&text, bytes).to_owned()
}

/// The last so many bytes of a text, or a few less where a letter would be cut.
fn tail(text: &str, bytes: usize) -> &str {
    let from = (text.len().saturating_sub(bytes)..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// How long it takes what is done before a container is told to stop.
fn hook(container: &Container) -> Duration {
    let Some(hook) = container.lifecycle.as_ref().and_then(|it| it.pre_stop.as_ref()) else { return Duration::ZERO };
    let slept = hook.sleep.map(|it| Duration::from_secs(u64::try_from(it.seconds).unwrap_or_default()));
    let asked = |exec: &Exec| {
        let run = command::run(&exec.command, &[], &Environment::default(), &mut Files::new());
        match run.end {
            Some(end) => end.after,
            None if run.is_known => Duration::MAX,
            None => Duration::ZERO,
        }
    };
    slept.or_else(|| hook.exec.as_ref().map(asked)).unwrap_or_default()
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
        let number = self.number;
        self.number = number.saturating_add(1);
        if self.container.command.is_empty() && self.container.args.is_empty() {
            return Run::default();
        }
        let environment = environment::of(self.pod, self.container, number);
        command::run(&self.container.command, &self.container.args, &environment, &mut self.files)
    }

    /// This run as far as it came in so much time.
    fn until(&self, age: Duration) -> Run {
        let around = environment::of(self.pod, self.container, self.number);
        let run = |around: &Environment| {
            command::run(&self.container.command, &self.container.args, around, &mut self.files.clone())
        };
        let whole = run(&around);
        // Times of statuses have whole seconds, so a run that ended has come to its end though it seems to lack a moment.
        let is_over = whole.end.is_some_and(|end| end.after.as_secs() <= age.as_secs());
        if is_over { whole } else { run(&Environment { until: Some(age), ..around }) }
    }

    /// What is to be seen of this run at an age of it; none if that isn't known.
    fn seen(&self, age: Duration) -> Option<(Environment, Files)> {
        let around = Environment { until: Some(age), ..environment::of(self.pod, self.container, self.number) };
        let run = command::run(&self.container.command, &self.container.args, &around, &mut self.files.clone());
        run.is_known.then_some((Environment { until: None, ..around }, run.files))
    }

    fn course(&mut self, annotations: &Pairs, role: Role) -> Course {
        let container = self.container;
        let probes = [
            (Kind::Startup, container.startup_probe.as_ref()),
            (Kind::Liveness, container.liveness_probe.as_ref()),
            (Kind::Readiness, container.readiness_probe.as_ref()),
        ];
        let is_asked = probes.iter().any(|(_, probe)| probe.is_some());
        let before = is_asked.then(|| Runs { files: self.files.clone(), ..*self });
        let run = self.next();
        let (mut health, probes) = match &before {
            Some(before) => probes::health(probes, &run.pauses, &|age| before.seen(age)),
            None => (Health::unasked(), Vec::new()),
        };
        match (health.ready, span(annotations, "ready-delay")) {
            _ if text(annotations, "never-ready") == Some("true") => (health.ready, health.turns) = (None, Vec::new()),
            (Some(_), Some(delay)) => health.ready = Some(delay),
            _ => {}
        }
        let on_stop = span(annotations, "stop-delay").map(|after| End { after, code: 0 });
        let end = end_by(annotations).or_else(|| own_end(container, role, &run));
        Course { end, on_stop: on_stop.or_else(|| told_to_stop(container, &run)), health, probes }
    }
}

const WELL: End = End { after: Duration::ZERO, code: 0 };

/// How a run ends by itself.
fn own_end(container: &Container, role: Role, run: &Run) -> Option<End> {
    let reads_nothing = !container.stdin && !container.tty;
    let is_own = container.command.is_empty() && container.args.is_empty();
    let end = if is_own { (reads_nothing && is_shell(&container.image)).then_some(WELL) } else { run.end };
    end.or((role == Role::Init).then_some(WELL))
}

/// How a run ends that is told to stop. The first process of a container isn't ended by a signal that it doesn't handle, and `sleep` and a shell
/// handle none; the programs of images are taken to end in order.
fn told_to_stop(container: &Container, run: &Run) -> Option<End> {
    let is_own = container.command.is_empty() && container.args.is_empty();
    match &run.trap {
        _ if is_own || !run.is_known => Some(WELL),
        Some(action) if action.contains("exit") => {
            Some(shell::run(action, false, &Environment::default(), &mut Files::new()).end.unwrap_or(WELL))
        }
        _ => None,
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
        let found = of(&pod, container, Role::Main);
        let course = found.course(0);
        let end = course.end.map(|end| (end.after.as_secs(), end.code));
        assert_eq!((found.has_image, end, course.health.ready.map(|it| it.as_secs())), expected, "{container:?}");
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
        let code =
            |pod: &Pod, restarts| of(pod, &pod.spec.containers[0], Role::Main).course(restarts).end.map(|end| end.code);
        assert_eq!((code(&pod(0), 0), code(&pod(0), 1)), (Some(1), Some(0)));
        assert_eq!((code(&pod(1), 1), code(&pod(1), 2)), (Some(0), Some(0)));
        assert_eq!(code(&pod(1_000_000), 1_000_000), Some(0));
    }
}
