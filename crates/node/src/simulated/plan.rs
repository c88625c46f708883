//! What a node does with a pod now: a pure function of the pod and the time.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, PodIP, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::behaviour::{self, Role};
use super::container::{Life, Moment, Restart};
use super::pod::{Container, Pod};
use super::references::{Lacks, NOTHING};
use super::resize::{self, Resize};
use super::status::{Verdict, remove, seconds, set, time_of};
use super::stop::{self, Stop};

/// What to do.
#[derive(Debug)]
pub enum Step {
    /// Nothing before something changes.
    Nothing,
    /// Nothing before this moment.
    Wait(Timestamp),
    /// Write this status, and look again at this moment.
    Write(Box<PodStatus>, Option<Timestamp>),
    /// The pod has ended and can go.
    Delete,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub host: Ipv4Addr,
    pub pod: Ipv4Addr,
    /// What ran there at this moment is lost.
    pub lost: Option<Timestamp>,
    /// What the pod refers to and isn't there.
    pub lacks: &'a Lacks,
    /// What becomes of it if it asks for something else than it has.
    pub resize: &'a Resize,
}

/// The next step for a pod at this place.
pub fn plan(pod: &Pod, place: Place<'_>, now: Timestamp) -> Step {
    // What is written has whole seconds: to compare with it, so must now.
    let now = seconds(now);
    if pod.metadata.deletion_timestamp.is_some() {
        return leave(pod, place, now);
    }
    if pod.has_ended() || pod.is_settled {
        return Step::Nothing;
    }
    let mut status = (*pod.status).clone();
    let wake = live(pod, &mut status, place, now);
    written(pod, status, wake)
}

fn written(pod: &Pod, status: PodStatus, wake: Option<Timestamp>) -> Step {
    match (status == *pod.status, wake) {
        (true, None) => Step::Nothing,
        (true, Some(wake)) => Step::Wait(wake),
        (false, wake) => Step::Write(Box::new(status), wake),
    }
}

/// The status of a pod that its node doesn't take.
pub fn reject(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    let mut status = (*pod.status).clone();
    status.phase = Some("Failed".to_owned());
    status.reason = Some(reason.to_owned());
    status.message = Some(format!("Pod was rejected: {message}"));
    status.start_time.get_or_insert_with(|| time_of(now));
    status.observed_generation = (pod.metadata.generation > 0).then_some(pod.metadata.generation);
    status
}

/// A pod that is being deleted: its containers stop, then it goes.
fn leave(pod: &Pod, place: Place<'_>, now: Timestamp) -> Step {
    let grace = pod.metadata.deletion_grace_period_seconds;
    if grace == 0 && !pod.metadata.finalizers.is_empty() && pod.has_ended() {
        return Step::Nothing;
    }
    let mut status = (*pod.status).clone();
    if let (false, Some(stop)) = (pod.has_ended(), Stop::by_deletion(pod)) {
        let wake = wind_down(&Lives::of_place(pod, place, now), &mut status, stop);
        if wake.is_some() {
            return written(pod, status, wake);
        }
    }
    if pod.has_ended() || pod.metadata.finalizers.is_empty() {
        return Step::Delete;
    }
    // Somebody waits for it, and wants to know how it ended.
    finish(pod, &mut status, now);
    Step::Write(Box::new(status), None)
}

/// Asks what still runs to end: the main containers together, then sidecars in reverse order. When the next of it ends; none once all have.
fn wind_down(lives: &Lives<'_>, status: &mut PodStatus, stop: Stop) -> Option<Timestamp> {
    let (pod, now) = (lives.pod, lives.now);
    let (mut turn, mut wakes) = (stop.at, Vec::new());
    let mut stopped = |life: Life<'_>, old: &[ContainerStatus], turn: &mut Timestamp| {
        let since = if life.role == Role::Sidecar { *turn } else { stop.at };
        let (status, end) = life.stopping(find(old, life.container), stop, since);
        *turn = end.filter(|_| life.role != Role::Init).map_or(*turn, |end| end.max(*turn));
        wakes.extend(end.filter(|end| *end > now));
        status
    };
    let old = status.container_statuses.take().unwrap_or_default();
    let main: Vec<_> = pod.spec.containers.iter().map(|it| stopped(lives.of(it), &old, &mut turn)).collect();
    let old = status.init_container_statuses.take().unwrap_or_default();
    let mut init: Vec<_> =
        pod.spec.init_containers.iter().rev().map(|it| stopped(lives.init(it), &old, &mut turn)).collect();
    init.reverse();
    let is_open = status.conditions.iter().flatten().any(|it| it.type_ == "Initialized" && it.status == "True");
    let wake = wakes.into_iter().min();
    if wake.is_some() {
        conclude(pod, status, init, main, is_open, now);
    } else {
        status.init_container_statuses = (!init.is_empty()).then_some(init);
        status.container_statuses = Some(main);
    }
    wake
}

/// Sets how a pod is whose containers have stopped before they were done.
fn finish(pod: &Pod, status: &mut PodStatus, now: Timestamp) {
    let lives = Lives::new(pod, now);
    let old = status.container_statuses.take().unwrap_or_default();
    let stopped = pod.spec.containers.iter().map(|container| lives.of(container).stopped(find(&old, container)));
    end(pod, status, stopped.collect(), now);
}

/// Sets how a pod is that lives; when it changes next by itself.
fn live(pod: &Pod, status: &mut PodStatus, place: Place<'_>, now: Timestamp) -> Option<Timestamp> {
    arrive(pod, status, place, now);
    let begun = status.start_time.as_ref().map_or(now, |time| time.0);
    let deadline = Stop::by_deadline(pod, now);
    if let Some(stop) = deadline.filter(|stop| stop.at <= now) {
        let wake = wind_down(&Lives::of_place(pod, place, now), status, stop);
        if wake.is_some() {
            return wake;
        }
        finish(pod, status, now);
        status.phase = Some("Failed".to_owned());
        status.reason = Some("DeadlineExceeded".to_owned());
        status.message = Some("Pod was active on the node longer than the specified deadline".to_owned());
        return None;
    }
    let start = after(begun, behaviour::span(&pod.metadata.annotations, "start-delay").unwrap_or_default());
    let wake = if now < start {
        wait(pod, status, now);
        Some(start)
    } else if !place.lacks.volumes.is_empty() {
        wait(pod, status, now);
        None
    } else {
        run(pod, status, place, now)
    };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    wake.into_iter().chain(deadline.map(|stop| stop.at)).min()
}

/// What a pod has as soon as it is on a node.
fn arrive(pod: &Pod, status: &mut PodStatus, place: Place<'_>, now: Timestamp) {
    let address = if pod.spec.host_network { place.host } else { place.pod }.to_string();
    let host = place.host.to_string();
    status.host_ip = Some(host.clone());
    status.host_ips = Some(vec![HostIP { ip: host }]);
    status.start_time.get_or_insert_with(|| time_of(now));
    status.observed_generation = (pod.metadata.generation > 0).then_some(pod.metadata.generation);
    if status.pod_ip.is_none() {
        status.pod_ips = Some(vec![PodIP { ip: address.clone() }]);
        status.pod_ip = Some(address);
    }
    verdict(pod, status, Verdict::holds("PodScheduled"), now);
}

/// A pod whose containers may not start yet.
fn wait(pod: &Pod, status: &mut PodStatus, now: Timestamp) {
    let lives = Lives::new(pod, now);
    let waiting = |containers: &[Container], old: Vec<ContainerStatus>, reason: &str| {
        containers
            .iter()
            .map(|container| lives.of(container).waiting(find(&old, container), reason))
            .collect::<Vec<_>>()
    };
    let reason = if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let init = waiting(&pod.spec.init_containers, status.init_container_statuses.take().unwrap_or_default(), reason);
    let main = waiting(&pod.spec.containers, status.container_statuses.take().unwrap_or_default(), reason);
    status.phase = Some("Pending".to_owned());
    verdict(pod, status, Verdict { kind: "PodReadyToStartContainers", holds: false, reason: None, message: None }, now);
    conclude(pod, status, init, main, pod.spec.init_containers.is_empty(), now);
}

/// A pod whose containers may run.
fn run(pod: &Pod, status: &mut PodStatus, place: Place<'_>, now: Timestamp) -> Option<Timestamp> {
    let lives = Lives::of_place(pod, place, now);
    if lives.over(status).is_none() {
        verdict(pod, status, Verdict::holds("PodReadyToStartContainers"), now);
        let resized = resize::apply(pod, status, place.resize, now);
        let wake = play(&lives, status);
        if lives.over(status).is_none() {
            resize::conclude(pod, status);
            return wake.into_iter().chain(resized).min();
        }
    }
    let over = lives.over(status)?;
    if has_running(status) {
        let wake = wind_down(&lives, status, Stop { at: over.at, grace: stop::grace(pod) });
        if wake.is_some() {
            status.phase.get_or_insert_with(|| "Pending".to_owned());
            return wake;
        }
    }
    let main = status.container_statuses.take().unwrap_or_default();
    end(pod, status, main, now);
    if over.has_failed {
        status.phase = Some("Failed".to_owned());
    }
    None
}

/// What every container does: init containers one after another, then all others.
fn play(lives: &Lives<'_>, status: &mut PodStatus) -> Option<Timestamp> {
    let (pod, now) = (lives.pod, lives.now);
    let old = status.init_container_statuses.take().unwrap_or_default();
    let (mut init, mut wakes, mut is_open) = (Vec::new(), Vec::new(), true);
    for container in &pod.spec.init_containers {
        let life = lives.init(container);
        if !is_open {
            init.push(life.waiting(find(&old, container), "PodInitializing"));
            continue;
        }
        let Moment { status, wake } = life.next(find(&old, container));
        wakes.extend(wake);
        is_open = if container.is_sidecar() { has_started(&status) } else { exit_code(&status) == Some(0) };
        init.push(status);
    }
    let old = status.container_statuses.take().unwrap_or_default();
    let mut main = Vec::new();
    for container in &pod.spec.containers {
        let life = lives.of(container);
        if is_open || find(&old, container).is_some_and(has_begun) {
            let Moment { status, wake } = life.next(find(&old, container));
            wakes.extend(wake);
            main.push(status);
        } else {
            main.push(life.waiting(find(&old, container), "PodInitializing"));
        }
    }
    added(pod, status, lives);
    let is_open = is_open || main.iter().any(has_begun);
    status.phase = Some(if is_open && main.iter().any(has_begun) { "Running" } else { "Pending" }.to_owned());
    conclude(pod, status, init, main, is_open, now);
    wakes.into_iter().min()
}

/// That nothing is left to do for a pod but to stop its sidecars.
#[derive(Clone, Copy)]
struct Over {
    at: Timestamp,
    /// Whether an init container failed for good.
    has_failed: bool,
}

/// Containers that were added to look inside run beside the others, and start only once.
fn added(pod: &Pod, status: &mut PodStatus, lives: &Lives<'_>) {
    let old = status.ephemeral_container_statuses.take().unwrap_or_default();
    let next = |container| Life { restart: Restart::Never, ..lives.of(container) }.next(find(&old, container)).status;
    let statuses: Vec<ContainerStatus> = pod.spec.ephemeral_containers.iter().map(next).collect();
    status.ephemeral_container_statuses = (!statuses.is_empty()).then_some(statuses);
}

/// Sets the containers of a pod and the conditions that follow from them.
fn conclude(
    pod: &Pod,
    status: &mut PodStatus,
    init: Vec<ContainerStatus>,
    main: Vec<ContainerStatus>,
    is_initialized: bool,
    now: Timestamp,
) {
    let incomplete: Vec<&str> =
        init.iter().filter(|it| exit_code(it) != Some(0) && !is_running(it)).map(|it| &*it.name).collect();
    let is_sidecar =
        |it: &&ContainerStatus| pod.spec.init_containers.iter().any(|of| *of.name == *it.name && of.is_sidecar());
    let asked = init.iter().filter(is_sidecar).chain(&main);
    let unready: Vec<&str> = asked.filter(|it| !it.ready).map(|it| &*it.name).collect();
    let initialized = match is_initialized {
        true => Verdict::holds("Initialized"),
        false => {
            let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
            Verdict::fails("Initialized", "ContainersNotInitialized", Some(message))
        }
    };
    let message = || Some(format!("containers with unready status: [{}]", unready.join(" ")));
    let (containers, ready) = match unready.is_empty() {
        true => (Verdict::holds("ContainersReady"), gates(pod, status)),
        false => (
            Verdict::fails("ContainersReady", "ContainersNotReady", message()),
            Verdict::fails("Ready", "ContainersNotReady", message()),
        ),
    };
    for it in [initialized, ready, containers] {
        verdict(pod, status, it, now);
    }
    status.init_container_statuses = (!init.is_empty()).then_some(init);
    status.container_statuses = Some(main);
}

/// Whether a pod whose containers are ready is: others may have a say.
fn gates(pod: &Pod, status: &PodStatus) -> Verdict {
    let is_true = |kind: &str| status.conditions.iter().flatten().any(|it| it.type_ == kind && it.status == "True");
    let closed: Vec<_> = pod.spec.readiness_gates.iter().filter(|gate| !is_true(&gate.condition_type)).collect();
    match closed.first() {
        None => Verdict::holds("Ready"),
        Some(gate) => {
            let kind = &gate.condition_type;
            let message = format!("the status of pod readiness gate \"{kind}\" is not \"True\", but False");
            Verdict::fails("Ready", "ReadinessGatesNotReady", Some(message))
        }
    }
}

/// Sets how a pod is whose containers have ended.
fn end(pod: &Pod, status: &mut PodStatus, main: Vec<ContainerStatus>, now: Timestamp) {
    [resize::IN_PROGRESS, resize::PENDING].into_iter().for_each(|kind| remove(status, kind));
    let succeeded = main.iter().all(|it| exit_code(it) == Some(0));
    let (phase, reason) = if succeeded { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    status.phase = Some(phase.to_owned());
    status.container_statuses = Some(main);
    let initialized = Verdict { reason: succeeded.then_some(reason), ..Verdict::holds("Initialized") };
    let sandbox = Verdict { kind: "PodReadyToStartContainers", holds: false, reason: None, message: None };
    let (ready, containers) = (Verdict::fails("Ready", reason, None), Verdict::fails("ContainersReady", reason, None));
    for it in [sandbox, initialized, ready, containers] {
        verdict(pod, status, it, now);
    }
}

fn verdict(pod: &Pod, status: &mut PodStatus, verdict: Verdict, now: Timestamp) {
    set(status, verdict, pod.metadata.generation, now);
}

/// The lives of the containers of one pod.
struct Lives<'a> {
    pod: &'a Pod,
    name: String,
    restart: Restart,
    begun: Timestamp,
    lost: Option<Timestamp>,
    lacks: &'a Lacks,
    now: Timestamp,
}

impl<'a> Lives<'a> {
    fn of_place(pod: &'a Pod, place: Place<'a>, now: Timestamp) -> Lives<'a> {
        Lives { lost: place.lost, lacks: place.lacks, ..Lives::new(pod, now) }
    }

    fn new(pod: &'a Pod, now: Timestamp) -> Lives<'a> {
        let meta = &pod.metadata;
        let name = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        let begun = pod.status.start_time.as_ref().map_or(now, |time| time.0);
        let restart = Restart::of(&pod.spec.restart_policy);
        Lives { pod, name, restart, begun, lost: None, lacks: &NOTHING, now }
    }

    /// The life of a main container.
    fn of(&'a self, container: &'a Container) -> Life<'a> {
        self.life(container, Role::Main)
    }

    fn init(&'a self, container: &'a Container) -> Life<'a> {
        self.life(container, Role::of_init(container))
    }

    fn life(&'a self, container: &'a Container, role: Role) -> Life<'a> {
        Life {
            container,
            behaviour: behaviour::of(self.pod, container, role),
            restart: Restart::of_container(container, role, self.restart),
            role,
            pod: self.pod,
            full_name: &self.name,
            begun: self.begun,
            lost: self.lost,
            lacks: self.lacks.containers.get(&container.name).map(String::as_str),
            now: self.now,
        }
    }

    /// Whether an init container failed for good, or all main containers have ended for good.
    fn over(&self, status: &PodStatus) -> Option<Over> {
        let ended = |statuses: &Option<Vec<ContainerStatus>>, container: &Container, role: Role| {
            let ended = find(statuses.as_deref()?, container)?.state.as_ref()?.terminated.as_ref()?;
            let at = ended.finished_at.as_ref().map_or(self.now, |time| time.0);
            let restart = Restart::of_container(container, role, self.restart);
            (!restart.again(container, ended.exit_code)).then_some((at, ended.exit_code))
        };
        for container in self.pod.spec.init_containers.iter().filter(|it| !it.is_sidecar()) {
            match ended(&status.init_container_statuses, container, Role::Init) {
                Some((at, code)) if code != 0 => return Some(Over { at, has_failed: true }),
                _ => {}
            }
        }
        let mut last = None;
        for container in &self.pod.spec.containers {
            let (at, _) = ended(&status.container_statuses, container, Role::Main)?;
            last = last.max(Some(at));
        }
        last.map(|at| Over { at, has_failed: false })
    }
}

fn find<'a>(statuses: &'a [ContainerStatus], container: &Container) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| *status.name == *container.name)
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn has_running(status: &PodStatus) -> bool {
    let all = [&status.init_container_statuses, &status.container_statuses];
    all.into_iter().flatten().flatten().any(is_running)
}

/// Whether it runs, and its startup probe has found that it has started.
fn has_started(status: &ContainerStatus) -> bool {
    is_running(status) && status.started == Some(true)
}

/// Whether it has been started at least once.
fn has_begun(status: &ContainerStatus) -> bool {
    let has_ended = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
    is_running(status) || exit_code(status).is_some() || has_ended || status.restart_count > 0
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn after(moment: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn pod(spec: Value, annotations: Value) -> Pod {
        let metadata =
            json!({"name": "a", "namespace": "shop", "uid": "u", "generation": 1, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// What is told of a pod second by second: its phase and, by container, state, restarts and readiness.
    fn history(mut pod: Pod, seconds: i64) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        for second in 0..=seconds {
            let now = Timestamp::from_second(1_767_225_600 + second).unwrap();
            if let Step::Write(status, _) = plan(
                &pod,
                Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing },
                now,
            ) {
                pod.status = status;
                let again = plan(
                    &pod,
                    Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing },
                    now,
                );
                assert!(!matches!(again, Step::Write(..)), "nothing changes within a moment: {again:?}");
            }
            let line = describe(&pod);
            if told.last().and_then(|last| last.split_once("s ")).map(|(_, last)| last) != Some(&line) {
                told.push(format!("{second}s {line}"));
            }
        }
        told
    }

    fn describe(pod: &Pod) -> String {
        let status = &pod.status;
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let containers: Vec<String> = containers.map(container).collect();
        format!("{} {}", status.phase.as_deref().unwrap_or_default(), containers.join(" "))
    }

    fn container(status: &ContainerStatus) -> String {
        let state = status.state.clone().unwrap_or_default();
        let state = match (state.running, state.terminated, state.waiting) {
            (Some(_), ..) => "running".to_owned(),
            (_, Some(ended), _) => format!("exit:{}", ended.exit_code),
            (_, _, waiting) => waiting.and_then(|waiting| waiting.reason).unwrap_or_default(),
        };
        let ready = if status.ready { "+" } else { "" };
        let restarts = if status.restart_count > 0 { format!("#{}", status.restart_count) } else { String::new() };
        format!("{}={state}{restarts}{ready}", status.name)
    }

    fn check(spec: Value, annotations: Value, seconds: i64, expected: &[&str]) {
        assert_eq!(history(pod(spec, annotations), seconds), expected);
    }

    #[test]
    fn a_pod_runs_and_is_ready() {
        let spec = json!({"containers": [{"name": "c", "image": "nginx"}]});
        check(spec, json!({}), 100, &["0s Running c=running+"]);
    }

    #[test]
    fn a_ready_pod_can_be_told_to_be_unready_and_back() {
        let mut told = pod(json!({"containers": [{"name": "c", "image": "nginx"}]}), json!({}));
        let place = Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing };
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        for (annotations, ready) in
            [(json!({}), "True"), (json!({"simulated.setpoint.dev/never-ready": "true"}), "False")]
        {
            told.metadata.annotations = serde_json::from_value(annotations).unwrap();
            let Step::Write(status, _) = plan(&told, place, now) else { panic!("what changed is told") };
            let found = status.conditions.iter().flatten().find(|it| it.type_ == "Ready").unwrap();
            assert_eq!(found.status, ready);
            told.status = status;
            told.settle();
            assert_eq!(told.is_settled, ready == "True");
            told.is_settled = false;
            told.spec = serde_json::from_value(json!({"containers": [{"name": "c", "image": "nginx"}]})).unwrap();
        }
    }

    #[test]
    fn delays_are_kept() {
        let spec = json!({"containers": [{"name": "c", "image": "nginx"}]});
        let delays = json!({"simulated.setpoint.dev/start-delay": "2s", "simulated.setpoint.dev/ready-delay": "3s"});
        check(spec, delays, 100, &["0s Pending c=ContainerCreating", "2s Running c=running", "5s Running c=running+"]);
    }

    #[test]
    fn a_job_ends_with_the_code_of_its_command() {
        let spec = |script: &str| json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["sh", "-c", script]}]});
        check(spec("sleep 5"), json!({}), 100, &["0s Running c=running+", "5s Succeeded c=exit:0"]);
        check(spec("sleep 2; exit 3"), json!({}), 100, &["0s Running c=running+", "2s Failed c=exit:3"]);
    }

    #[test]
    fn what_fails_starts_again_with_growing_pauses() {
        let spec = json!({"restartPolicy": "OnFailure", "containers": [{"name": "c", "command": ["false"]}]});
        check(
            spec,
            json!({}),
            75,
            &[
                "0s Running c=exit:1",
                "1s Running c=CrashLoopBackOff#1",
                "11s Running c=CrashLoopBackOff#2",
                "31s Running c=CrashLoopBackOff#3",
                "71s Running c=CrashLoopBackOff#4",
            ],
        );
    }

    #[test]
    fn init_containers_come_first_and_sidecars_stay() {
        let spec = json!({
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "image": "proxy"},
                {"name": "i", "command": ["sleep", "2"]},
            ],
            "containers": [{"name": "c", "image": "nginx"}],
        });
        check(
            spec,
            json!({}),
            50,
            &["0s Pending s=running+ i=running c=PodInitializing", "2s Running s=running+ i=exit:0+ c=running+"],
        );
    }

    #[test]
    fn an_init_container_that_fails_for_good_fails_the_pod() {
        let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i", "command": ["false"]}],
            "containers": [{"name": "c", "image": "nginx"}]});
        check(spec, json!({}), 50, &["0s Failed i=exit:1 c=PodInitializing"]);
    }

    #[test]
    fn an_image_that_is_not_there_is_not_pulled() {
        let spec = json!({"containers": [{"name": "c", "image": "nginx:404"}]});
        check(spec, json!({}), 50, &["0s Pending c=ErrImagePull", "10s Pending c=ImagePullBackOff"]);
    }

    #[test]
    fn what_a_node_loses_starts_again_or_has_failed() {
        for (policy, phase, restarts) in [("Always", "Running", 1), ("Never", "Failed", 0)] {
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "nginx"}]});
            let mut pod = pod(spec, json!({}));
            let second = |second: i64| Timestamp::from_second(1_767_225_600 + second).unwrap();
            let lost = Some(second(5));
            for now in [0, 5, 6, 7] {
                let place = Place {
                    host: HOST,
                    pod: ADDRESS,
                    lost: lost.filter(|lost| *lost <= second(now)),
                    lacks: &NOTHING,
                    resize: &Resize::Nothing,
                };
                if let Step::Write(status, _) = plan(&pod, place, second(now)) {
                    pod.status = status;
                }
            }
            let found = &pod.status.container_statuses.as_ref().unwrap()[0];
            assert_eq!((pod.phase(), found.restart_count), (phase, restarts), "{:?}", pod.status);
        }
    }

    #[test]
    fn a_container_that_was_added_runs_once() {
        let spec = json!({"containers": [{"name": "c", "image": "nginx"}],
            "ephemeralContainers": [{"name": "debug", "command": ["false"]}]});
        let mut pod = pod(spec, json!({}));
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let place = Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing };
        let Step::Write(status, None) = plan(&pod, place, now) else { panic!("it starts") };
        pod.status = status;
        let added = &pod.status.ephemeral_container_statuses.as_ref().unwrap()[0];
        assert_eq!(exit_code(added), Some(1));
        assert!(matches!(plan(&pod, place, now), Step::Nothing));
        pod.settle();
        assert!(!pod.is_settled);
    }

    #[test]
    fn sidecars_stop_in_reverse_order_once_the_main_containers_are_done() {
        let slow = json!({"preStop": {"sleep": {"seconds": 3}}});
        let spec = json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "initContainers": [
                {"name": "a", "restartPolicy": "Always", "image": "proxy"},
                {"name": "b", "restartPolicy": "Always", "image": "proxy", "lifecycle": slow},
                {"name": "d", "restartPolicy": "Always", "command": ["sleep", "1000"]},
            ],
            "containers": [{"name": "c", "command": ["sleep", "2"]}],
        });
        check(
            spec,
            json!({}),
            50,
            &[
                "0s Running a=running+ b=running+ d=running+ c=running+",
                "2s Running a=running+ b=running+ d=running+ c=exit:0",
                "7s Succeeded a=exit:0 b=exit:0 d=exit:137 c=exit:0",
            ],
        );
    }

    #[test]
    fn a_sidecar_that_ends_starts_again_beside_the_others() {
        let spec = json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always", "command": ["sleep", "5"]}],
            "containers": [{"name": "c", "image": "nginx"}],
        });
        let expected = [
            "0s Running s=running+ c=running+",
            "5s Running s=exit:0 c=running+",
            "6s Running s=running#1+ c=running+",
        ];
        check(spec, json!({}), 8, &expected);
    }

    #[test]
    fn what_fails_its_liveness_probe_starts_again() {
        let liveness = json!({"exec": {"command": ["cat", "/tmp/health"]}, "initialDelaySeconds": 5, "periodSeconds": 5, "failureThreshold": 1});
        let script = "trap 'exit 3' TERM; echo ok > /tmp/health; sleep 10; rm -rf /tmp/health; sleep 600";
        let container = json!({"name": "c", "command": ["sh", "-c", script], "livenessProbe": liveness});
        let expected = ["0s Running c=running+", "10s Running c=running#1+", "20s Running c=running#2+"];
        check(json!({"containers": [container]}), json!({}), 21, &expected);
        let fails = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2});
        let container = json!({"name": "c", "command": ["sleep", "1000"], "livenessProbe": fails});
        let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 3, "containers": [container]});
        check(spec, json!({}), 50, &["0s Running c=running+", "5s Failed c=exit:137"]);
    }

    #[test]
    fn nothing_is_ready_before_its_startup_probe_is_content() {
        let startup = |command: &str| json!({"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 2, "failureThreshold": 3});
        let started = json!({"name": "c", "command": ["sh", "-c", "sleep 3; touch /tmp/up; sleep 600"], "startupProbe": startup("[ -f /tmp/up ]")});
        check(json!({"containers": [started]}), json!({}), 50, &["0s Running c=running", "4s Running c=running+"]);
        let failing = json!({"name": "c", "image": "nginx", "startupProbe": startup("exit 1")});
        let expected = ["0s Running c=running", "4s Running c=running#1", "8s Running c=CrashLoopBackOff#1"];
        check(json!({"containers": [failing]}), json!({}), 9, &expected);
    }

    #[test]
    fn a_container_has_its_own_rules_for_starting_again() {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        let with = |code: &str| json!({"name": "c", "command": ["sh", "-c", format!("exit {code}")], "restartPolicy": "Never", "restartPolicyRules": rules});
        let spec = |code: &str| json!({"restartPolicy": "Never", "containers": [with(code)]});
        check(spec("42"), json!({}), 1, &["0s Running c=exit:42", "1s Running c=CrashLoopBackOff#1"]);
        check(spec("41"), json!({}), 1, &["0s Failed c=exit:41"]);
    }

    /// A pod that was asked to go at the second 0 with this grace.
    fn leaving(spec: Value, grace: i64) -> Pod {
        let mut leaving = pod(spec, json!({}));
        let now = Timestamp::from_second(0).unwrap();
        let place = Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing };
        let Step::Write(status, _) = plan(&leaving, place, now) else { panic!("it starts") };
        leaving.status = status;
        leaving.metadata.deletion_timestamp = Some(time_of(Timestamp::from_second(grace).unwrap()));
        leaving.metadata.deletion_grace_period_seconds = grace;
        leaving.settle();
        leaving
    }

    #[test]
    fn hooks_and_programs_that_do_not_listen_delay_the_end_of_a_pod() {
        let place = Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing };
        let check = |container: Value, grace: i64, expected: i64| {
            let leaving = leaving(json!({"containers": [container]}), grace);
            let gone = |second: i64| plan(&leaving, place, Timestamp::from_second(second).unwrap());
            let first = (0..100).find(|second| matches!(gone(*second), Step::Delete));
            assert_eq!(first, Some(expected), "{leaving:?}");
        };
        check(json!({"name": "c", "image": "nginx"}), 20, 0);
        check(json!({"name": "c", "image": "nginx", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}), 20, 5);
        let hook = json!({"preStop": {"exec": {"command": ["sleep", "7"]}}});
        check(json!({"name": "c", "image": "nginx", "lifecycle": hook}), 20, 7);
        check(json!({"name": "c", "command": ["sleep", "1000"], "lifecycle": hook}), 20, 20);
        check(json!({"name": "c", "command": ["sleep", "4"]}), 20, 4);
        check(json!({"name": "c", "command": ["sh", "-c", "trap 'sleep 3; exit 0' TERM; sleep 100"]}), 20, 3);
    }

    #[test]
    fn a_container_leaves_its_last_words() {
        let check = |script: &str, policy: &str, expected: Option<&str>| {
            let container = json!({"name": "c", "command": ["sh", "-c", script], "terminationMessagePolicy": policy});
            let mut ended = pod(json!({"restartPolicy": "Never", "containers": [container]}), json!({}));
            let now = Timestamp::from_second(0).unwrap();
            let Step::Write(status, _) = plan(
                &ended,
                Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing },
                now,
            ) else {
                panic!("it ends")
            };
            ended.status = status;
            let state = ended.status.container_statuses.unwrap().remove(0).state.unwrap();
            assert_eq!(state.terminated.unwrap().message.as_deref(), expected, "{script}");
        };
        check("echo -n done > /dev/termination-log; echo oops; exit 3", "FallbackToLogsOnError", Some("done"));
        check("printf 'done' > /dev/termination-log", "File", Some("done"));
        check("echo oops; exit 3", "FallbackToLogsOnError", Some("oops\n"));
        check("echo oops; exit 3", "File", None);
        check("echo fine", "FallbackToLogsOnError", None);
    }

    #[test]
    fn a_deadline_waits_for_what_does_not_listen() {
        let spec = json!({"activeDeadlineSeconds": 7, "terminationGracePeriodSeconds": 4, "containers": [{"name": "c", "command": ["sleep", "1000"]}]});
        check(spec, json!({}), 50, &["0s Running c=running+", "11s Failed c=exit:137"]);
    }

    #[test]
    fn a_deadline_ends_a_pod() {
        let spec = json!({"activeDeadlineSeconds": 7, "containers": [{"name": "c", "image": "nginx"}]});
        check(spec, json!({}), 50, &["0s Running c=running+", "7s Failed c=exit:0"]);
    }

    #[test]
    fn a_deleted_pod_goes_when_its_containers_have_stopped() {
        let mut leaving = pod(
            json!({"containers": [{"name": "c", "image": "nginx"}]}),
            json!({"simulated.setpoint.dev/stop-delay": "5s"}),
        );
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let place = Place { host: HOST, pod: ADDRESS, lost: None, lacks: &NOTHING, resize: &Resize::Nothing };
        let Step::Write(status, _) = plan(&leaving, place, second(0)) else { panic!("it starts") };
        leaving.status = status;
        leaving.metadata.deletion_timestamp = Some(time_of(second(30)));
        leaving.metadata.deletion_grace_period_seconds = 30;
        assert!(matches!(plan(&leaving, place, second(4)), Step::Wait(until) if until == second(5)));
        assert!(matches!(plan(&leaving, place, second(5)), Step::Delete));
        leaving.metadata.finalizers = ["somebody/waits".into()].into();
        let Step::Write(status, None) = plan(&leaving, place, second(5)) else { panic!("its end is told first") };
        leaving.status = status;
        assert!(leaving.has_ended());
        assert!(matches!(plan(&leaving, place, second(5)), Step::Delete));
        leaving.metadata.deletion_grace_period_seconds = 0;
        assert!(matches!(plan(&leaving, place, second(5)), Step::Nothing));
    }
}
