//! The life of one container: from waiting to running to its end, and around again with growing pauses.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::behaviour::{self, Behaviour, Role};
use super::pod::{Container, Pod};
use super::probes::Kind;
use super::resize;
use super::status::{seconds, time_of};
use super::stop::{self, Stop};

/// The pause before the second restart; it doubles with each that follows.
const BACK_OFF: u64 = 10;
/// The longest pause between two starts.
const BACK_OFF_MAX: u64 = 300;
/// A container that ran for so long is forgiven its earlier restarts.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
/// How long the end of a container shows before its first restart.
const FIRST_PAUSE: u64 = 1;
/// How long a failed pull shows as an error before it shows as a pause.
const PULL_ERROR: u64 = 10;

/// Why a container waits whose variables can't be set.
pub const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// The code of a container that was killed, or whose end nobody saw.
pub const KILLED: i32 = 137;

/// Whether a container that ended starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub fn of(policy: &str) -> Restart {
        match policy {
            "OnFailure" => Restart::OnFailure,
            "Never" => Restart::Never,
            _ => Restart::Always,
        }
    }

    /// What a container of a pod with this policy does; it may have one of its own. An init container starts again only if it failed.
    pub fn of_container(container: &Container, role: Role, pod: Restart) -> Restart {
        let own = container.restart_policy.as_deref().map_or(pod, Restart::of);
        if role == Role::Init && own == Restart::Always { Restart::OnFailure } else { own }
    }

    /// Whether a container that ended with this code starts again, by this policy or by a rule of its own.
    pub fn again(self, container: &Container, code: i32) -> bool {
        container.restart_policy_rules.iter().any(|rule| rule.is_met(code)) || self.by_policy(code)
    }

    fn by_policy(self, code: i32) -> bool {
        match self {
            Restart::Always => true,
            Restart::OnFailure => code != 0,
            Restart::Never => false,
        }
    }
}

/// A container and how it is to be now.
pub struct Life<'a> {
    pub container: &'a Container,
    pub behaviour: Behaviour,
    pub restart: Restart,
    pub role: Role,
    pub pod: &'a Pod,
    /// What back-off messages call its pod.
    pub full_name: &'a str,
    /// When its pod came to the node.
    pub begun: Timestamp,
    /// What ran at this moment is lost.
    pub lost: Option<Timestamp>,
    /// Why its variables can't be set, if so.
    pub lacks: Option<&'a str>,
    pub now: Timestamp,
}

/// How a container is, and when it changes next by itself.
pub struct Moment {
    pub status: ContainerStatus,
    pub wake: Option<Timestamp>,
}

impl Life<'_> {
    /// A container that may not start yet.
    pub fn waiting(&self, old: Option<&ContainerStatus>, reason: &str) -> ContainerStatus {
        let mut status = self.status(old);
        status.state = Some(waiting(reason, None));
        self.finish(status)
    }

    /// The next moment of a container that may run.
    pub fn next(&self, old: Option<&ContainerStatus>) -> Moment {
        let mut status = self.status(old);
        let state = status.state.take().unwrap_or_default();
        let (state, wake) = match (state.running, state.terminated, state.waiting) {
            (Some(running), ..) => self.running(&mut status, running),
            (None, Some(ended), _) => self.ended(&mut status, ended),
            (None, None, Some(wait)) if wait.reason.as_deref() == Some("CrashLoopBackOff") => self.paused(&mut status),
            (None, None, _) if !self.behaviour.has_image => self.not_pulled(),
            // Variables could not be set: it may have run before.
            (None, None, _) if status.last_state.as_ref().is_some_and(|last| last.terminated.is_some()) => {
                self.restart(&mut status)
            }
            (None, None, _) => self.start(&mut status),
        };
        status.state = Some(state);
        let wake = wake.into_iter().chain(self.health_changes(&status)).min();
        let mut status = self.finish(status);
        resize::settle(self.pod, self.container, &mut status, self.now);
        Moment { status, wake }
    }

    /// A container that is asked to end; when it does, or did, if it ran. `turn` is when those have ended that go first.
    pub fn stopping(
        &self,
        old: Option<&ContainerStatus>,
        stop: Stop,
        turn: Timestamp,
    ) -> (ContainerStatus, Option<Timestamp>) {
        let mut status = self.status(old);
        let Some(running) = status.state.as_ref().and_then(|state| state.running.as_ref()) else {
            return (status, None);
        };
        let started = running.started_at.as_ref().map_or(self.now, |time| time.0);
        let (at, code) = self.end_of_stop(&status, started, stop, turn);
        if at <= self.now {
            let ended = self.end(&status, started, at, code);
            status.state = Some(ContainerState { terminated: Some(ended), ..ContainerState::default() });
        }
        (self.finish(status), Some(at))
    }

    fn end_of_stop(
        &self,
        status: &ContainerStatus,
        started: Timestamp,
        stop: Stop,
        turn: Timestamp,
    ) -> (Timestamp, i32) {
        let turn = Duration::try_from(turn.duration_since(stop.at)).unwrap_or_default();
        let course = self.behaviour.course(status.restart_count);
        let end = stop::end(course.on_stop, self.behaviour.hook, turn, stop.grace);
        let asked = (later(stop.at, end.after), end.code);
        self.own_end(status, started).filter(|own| own.0 <= asked.0).unwrap_or(asked)
    }

    /// A container that was never seen to end, of a pod that has.
    pub fn stopped(&self, old: Option<&ContainerStatus>) -> ContainerStatus {
        let mut status = self.status(old);
        let state = status.state.take().unwrap_or_default();
        let ended = match (state.terminated, state.running) {
            (Some(ended), _) => ended,
            (None, running) => {
                let started = running.as_ref().and_then(|it| it.started_at.as_ref()).map_or(self.now, |time| time.0);
                let code = if running.is_some() { 0 } else { KILLED };
                self.end(&status, started, self.now, code)
            }
        };
        status.state = Some(ContainerState { terminated: Some(ended), ..ContainerState::default() });
        self.finish(status)
    }

    fn status(&self, old: Option<&ContainerStatus>) -> ContainerStatus {
        old.cloned().unwrap_or_else(|| ContainerStatus {
            name: self.container.name.to_string(),
            image: self.container.image.to_string(),
            ..ContainerStatus::default()
        })
    }

    fn start(&self, status: &mut ContainerStatus) -> (ContainerState, Option<Timestamp>) {
        if let Some(why) = self.lacks {
            return (waiting(CONFIG_ERROR, Some(why.to_owned())), None);
        }
        status.container_id = Some(format!(
            "simulated://{}",
            digest(&[&self.pod.metadata.uid, &status.name, &status.restart_count.to_string()])
        ));
        status.image_id = format!("simulated/{}@sha256:{}", self.container.image, digest(&[&self.container.image]));
        resize::start(self.pod, self.container, status);
        let running = ContainerStateRunning { started_at: Some(time_of(self.now)) };
        self.running(status, running)
    }

    fn running(
        &self,
        status: &mut ContainerStatus,
        running: ContainerStateRunning,
    ) -> (ContainerState, Option<Timestamp>) {
        let started = running.started_at.as_ref().map_or(self.now, |time| time.0);
        let own = self.own_end(status, started);
        let resized = self.resized(status, started);
        let killed = self.killed(status, started).into_iter().chain(resized).min_by_key(|(at, _)| *at);
        let killed = killed.filter(|(at, _)| own.is_none_or(|own| *at < own.0));
        match killed.or(own) {
            Some((at, code)) if at <= self.now => {
                let ended = self.end(status, started, at, code);
                let is_resized = killed.is_some() && killed == resized;
                if is_resized || killed.is_some() && self.starts_at_once(status, at) {
                    status.last_state = Some(ContainerState { terminated: Some(ended), ..ContainerState::default() });
                    return self.restart(status);
                }
                self.ended(status, ended)
            }
            end => {
                let state = ContainerState { running: Some(running), ..ContainerState::default() };
                (state, end.map(|(at, _)| at))
            }
        }
    }

    /// When and how a run ends by itself, or with its node.
    fn own_end(&self, status: &ContainerStatus, started: Timestamp) -> Option<(Timestamp, i32)> {
        let end = self.behaviour.course(status.restart_count).end;
        let end = end.map(|end| (later(started, end.after), end.code));
        let lost = self.lost.filter(|lost| started < *lost).map(|lost| (seconds(lost), KILLED));
        end.into_iter().chain(lost).min_by_key(|(at, _)| *at)
    }

    /// When and how a run ends that a probe gives up.
    fn killed(&self, status: &ContainerStatus, started: Timestamp) -> Option<(Timestamp, i32)> {
        let (at, kind) = self.behaviour.course(status.restart_count).health.killed?;
        let probe = match kind {
            Kind::Startup => &self.container.startup_probe,
            Kind::Liveness => &self.container.liveness_probe,
            Kind::Readiness => &None,
        };
        let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
        let grace =
            own.and_then(|it| u64::try_from(it).ok()).map_or_else(|| stop::grace(self.pod), Duration::from_secs);
        let at = later(started, at);
        Some(self.end_of_stop(status, started, Stop { at, grace }, at))
    }

    /// When and how a run ends that has to, so that the container is given more or less.
    fn resized(&self, status: &ContainerStatus, started: Timestamp) -> Option<(Timestamp, i32)> {
        let at = resize::granted(self.pod, &self.pod.status)?;
        let stop = Stop { at, grace: stop::grace(self.pod) };
        resize::restarts(self.container, status).then(|| self.end_of_stop(status, started, stop, at))
    }

    /// Whether a container that a probe gave up starts without a pause: it does unless it is in the pause after the end before.
    fn starts_at_once(&self, status: &ContainerStatus, ended: Timestamp) -> bool {
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let before = last.and_then(|last| last.finished_at.as_ref()).map(|time| time.0);
        let is_over = before.is_none_or(|before| later(before, pause(status.restart_count)) <= ended);
        is_over && self.restart != Restart::Never
    }

    fn ended(
        &self,
        status: &mut ContainerStatus,
        ended: ContainerStateTerminated,
    ) -> (ContainerState, Option<Timestamp>) {
        let finished = ended.finished_at.as_ref().map_or(self.now, |time| time.0);
        let shown = ContainerState { terminated: Some(ended.clone()), ..ContainerState::default() };
        if !self.restart.again(self.container, ended.exit_code) {
            return (shown, None);
        }
        if status.restart_count == 0 {
            let again = later(finished, Duration::from_secs(FIRST_PAUSE));
            if self.now < again {
                return (shown, Some(again));
            }
            status.last_state = Some(shown);
            return self.restart(status);
        }
        status.last_state = Some(shown);
        self.paused(status)
    }

    fn paused(&self, status: &mut ContainerStatus) -> (ContainerState, Option<Timestamp>) {
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let time =
            |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map_or(self.now, |it| it.0);
        let finished = time(last.and_then(|last| last.finished_at.as_ref()));
        let ran = finished.duration_since(time(last.and_then(|last| last.started_at.as_ref())));
        let forgiven = ran >= SignedDuration::try_from(FORGIVEN_AFTER).unwrap_or(SignedDuration::MAX);
        let pause = pause(if forgiven { 1 } else { status.restart_count });
        let again = later(finished, pause);
        if self.now >= again {
            return self.restart(status);
        }
        let name = &self.container.name;
        let message =
            format!("back-off {} restarting failed container={name} pod={}", go_span(pause.as_secs()), self.full_name);
        (waiting("CrashLoopBackOff", Some(message)), Some(again))
    }

    fn restart(&self, status: &mut ContainerStatus) -> (ContainerState, Option<Timestamp>) {
        if self.lacks.is_none() {
            status.restart_count = status.restart_count.saturating_add(1);
        }
        self.start(status)
    }

    fn not_pulled(&self) -> (ContainerState, Option<Timestamp>) {
        let image = &self.container.image;
        let pauses = later(self.begun, Duration::from_secs(PULL_ERROR));
        if self.now < pauses {
            let message = format!("failed to pull and unpack image \"{image}\": {image}: not found");
            return (waiting("ErrImagePull", Some(message)), Some(pauses));
        }
        let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {image}: not found");
        (waiting("ImagePullBackOff", Some(message)), None)
    }

    fn end(
        &self,
        status: &ContainerStatus,
        started: Timestamp,
        finished: Timestamp,
        code: i32,
    ) -> ContainerStateTerminated {
        ContainerStateTerminated {
            container_id: status.container_id.clone(),
            exit_code: code,
            finished_at: Some(time_of(finished)),
            message: self.last_words(status, finished.duration_since(started), code),
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: Some(time_of(started)),
            ..ContainerStateTerminated::default()
        }
    }

    fn last_words(&self, status: &ContainerStatus, ran: SignedDuration, code: i32) -> Option<String> {
        let ran = Duration::try_from(ran).unwrap_or_default();
        let run = u32::try_from(status.restart_count).unwrap_or_default();
        behaviour::last_words(self.pod, self.container, run, ran, code)
    }

    /// How long a container has been running, if it is.
    fn age(&self, status: &ContainerStatus) -> Option<(Timestamp, Duration)> {
        let started = status.state.as_ref()?.running.as_ref()?.started_at.as_ref().map_or(self.now, |time| time.0);
        Some((started, Duration::try_from(self.now.duration_since(started)).unwrap_or_default()))
    }

    /// When its probes come to another verdict.
    fn health_changes(&self, status: &ContainerStatus) -> Option<Timestamp> {
        let (started, age) = self.age(status)?;
        self.behaviour.course(status.restart_count).health.next(age).map(|at| later(started, at))
    }

    /// Sets what follows from the state.
    fn finish(&self, mut status: ContainerStatus) -> ContainerStatus {
        let health = &self.behaviour.course(status.restart_count).health;
        let age = self.age(&status).map(|(_, age)| age);
        let has_succeeded =
            status.state.as_ref().and_then(|state| state.terminated.as_ref()).is_some_and(|ended| ended.exit_code == 0);
        status.ready = match self.role {
            Role::Init => has_succeeded,
            Role::Main | Role::Sidecar => age.is_some_and(|age| health.is_ready(age)),
        };
        status.started = Some(age.is_some_and(|age| health.has_started(age)));
        status
    }
}

/// The pause after so many restarts.
fn pause(restarts: i32) -> Duration {
    let restarts = u32::try_from(restarts).unwrap_or(1).clamp(1, 10);
    Duration::from_secs((BACK_OFF << (restarts - 1)).min(BACK_OFF_MAX))
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn later(from: Timestamp, span: Duration) -> Timestamp {
    from.saturating_add(SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)).map_or(Timestamp::MAX, seconds)
}

/// A span as Go writes it: `1m20s`.
fn go_span(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// 64 hexadecimal digits that depend on the parts and on nothing else.
fn digest(parts: &[&str]) -> String {
    (1..=4).map(|salt| format!("{:016x}", mixed(parts, salt))).collect()
}

/// A number that depends on the parts and the salt, and on nothing else.
pub fn mixed(parts: &[&str], salt: u64) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325_u64 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
