//! The life of one container: from waiting to running to its end, and around again with growing pauses.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::behaviour::Behaviour;
use super::pod::Container;
use super::status::{seconds, time_of};

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

/// The code of a container whose end nobody saw.
const LOST_CODE: i32 = 137;

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

    pub fn again(self, code: i32) -> bool {
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
    /// Whether it has to end well before others start: it is ready then.
    pub is_init: bool,
    /// What back-off messages call its pod.
    pub pod: &'a str,
    pub uid: &'a str,
    /// When its pod came to the node.
    pub begun: Timestamp,
    /// What ran at this moment is lost.
    pub lost: Option<Timestamp>,
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
            (None, None, _) => self.start(&mut status),
        };
        status.state = Some(state);
        let ready_at = self.ready_at(&status);
        let wake = wake.into_iter().chain(ready_at.filter(|&at| at > self.now)).min();
        Moment { status: self.finish(status), wake }
    }

    /// A container that was told to stop, and did so in order.
    pub fn stopped(&self, old: Option<&ContainerStatus>) -> ContainerStatus {
        let mut status = self.status(old);
        let state = status.state.take().unwrap_or_default();
        let ended = match (state.terminated, state.running) {
            (Some(ended), _) => ended,
            (None, running) => {
                let started = running.as_ref().and_then(|it| it.started_at.as_ref()).map_or(self.now, |time| time.0);
                let code = if running.is_some() { 0 } else { 137 };
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
        status.container_id =
            Some(format!("simulated://{}", digest(&[self.uid, &status.name, &status.restart_count.to_string()])));
        status.image_id = format!("simulated/{}@sha256:{}", self.container.image, digest(&[&self.container.image]));
        let running = ContainerStateRunning { started_at: Some(time_of(self.now)) };
        self.running(status, running)
    }

    fn running(
        &self,
        status: &mut ContainerStatus,
        running: ContainerStateRunning,
    ) -> (ContainerState, Option<Timestamp>) {
        let started = running.started_at.as_ref().map_or(self.now, |time| time.0);
        let end = self.behaviour.end_of(status.restart_count).map(|end| (later(started, end.after), end.code));
        let lost = self.lost.filter(|lost| started < *lost).map(|lost| (seconds(lost), LOST_CODE));
        let end = end.into_iter().chain(lost).min_by_key(|(at, _)| *at);
        match end {
            Some((at, code)) if at <= self.now => {
                let ended = self.end(status, started, at, code);
                self.ended(status, ended)
            }
            end => {
                let state = ContainerState { running: Some(running), ..ContainerState::default() };
                (state, end.map(|(at, _)| at))
            }
        }
    }

    fn ended(
        &self,
        status: &mut ContainerStatus,
        ended: ContainerStateTerminated,
    ) -> (ContainerState, Option<Timestamp>) {
        let finished = ended.finished_at.as_ref().map_or(self.now, |time| time.0);
        let shown = ContainerState { terminated: Some(ended.clone()), ..ContainerState::default() };
        if !self.restart.again(ended.exit_code) {
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
        let restarts = if forgiven { 1 } else { u32::try_from(status.restart_count).unwrap_or(1).clamp(1, 10) };
        let pause = (BACK_OFF << (restarts - 1)).min(BACK_OFF_MAX);
        let again = later(finished, Duration::from_secs(pause));
        if self.now >= again {
            return self.restart(status);
        }
        let name = &self.container.name;
        let message = format!("back-off {} restarting failed container={name} pod={}", go_span(pause), self.pod);
        (waiting("CrashLoopBackOff", Some(message)), Some(again))
    }

    fn restart(&self, status: &mut ContainerStatus) -> (ContainerState, Option<Timestamp>) {
        status.restart_count = status.restart_count.saturating_add(1);
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
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: Some(time_of(started)),
            ..ContainerStateTerminated::default()
        }
    }

    fn ready_at(&self, status: &ContainerStatus) -> Option<Timestamp> {
        let running = status.state.as_ref()?.running.as_ref()?;
        let started = running.started_at.as_ref().map_or(self.now, |time| time.0);
        self.behaviour.ready_after.map(|after| later(started, after))
    }

    /// Sets what follows from the state.
    fn finish(&self, mut status: ContainerStatus) -> ContainerStatus {
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        let has_succeeded =
            status.state.as_ref().and_then(|state| state.terminated.as_ref()).is_some_and(|ended| ended.exit_code == 0);
        status.ready = self.ready_at(&status).is_some_and(|at| at <= self.now) || (has_succeeded && self.is_init);
        status.started = Some(is_running);
        status
    }
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
