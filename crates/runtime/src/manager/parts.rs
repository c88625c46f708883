//! What a manager has been given, and how far each part of it is. No tasks here: only who may start and who may stop.

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id};

use super::error::ManagerError;
use super::runnable::{Lifecycle, Runnable};

/// Most parts of a manager.
const PARTS_MAX: usize = 1_000;

pub(super) struct Part {
    pub(super) name: String,
    pub(super) lifecycle: Lifecycle,
    pub(super) needs_leadership: bool,
    /// Caches are read until the last of the others has ended.
    is_cache: bool,
    after: Vec<String>,
    state: State,
    ended: watch::Sender<bool>,
}

enum State {
    Waiting(Box<dyn Runnable>),
    Running(AbortHandle),
    Ended,
}

/// In the order in which they were added. A part can only come after one that is there, so there are no circles.
#[derive(Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    pub(super) fn add(
        &mut self,
        runnable: Box<dyn Runnable>,
        after: &[&str],
        is_cache: bool,
    ) -> Result<Lifecycle, ManagerError> {
        let name = runnable.name().to_owned();
        if self.find(&name).is_some() {
            return Err(ManagerError::AlreadyAdded(name));
        }
        if let Some(missing) = after.iter().find(|other| self.find(other).is_none()) {
            return Err(ManagerError::Unknown((*missing).to_owned()));
        }
        if self.0.len() >= PARTS_MAX {
            return Err(ManagerError::TooMany);
        }
        let lifecycle = Lifecycle::new();
        self.0.push(Part {
            name,
            lifecycle: lifecycle.clone(),
            needs_leadership: runnable.needs_leadership(),
            is_cache,
            after: after.iter().map(|&name| name.to_owned()).collect(),
            state: State::Waiting(runnable),
            ended: watch::Sender::new(false),
        });
        Ok(lifecycle)
    }

    /// Takes those that may start now: what they come after is ready, and so is leadership where they need it.
    pub(super) fn take_due(&mut self, leading: bool) -> Vec<(Box<dyn Runnable>, Lifecycle)> {
        let due: Vec<usize> = (0..self.0.len()).filter(|&at| self.is_due(&self.0[at], leading)).collect();
        due.into_iter().filter_map(|at| self.0[at].take()).collect()
    }

    fn is_due(&self, part: &Part, leading: bool) -> bool {
        matches!(part.state, State::Waiting(_))
            && !part.lifecycle.is_draining()
            && (leading || !part.needs_leadership)
            && part.after.iter().all(|name| self.find(name).is_some_and(|other| other.lifecycle.is_ready()))
    }

    pub(super) fn started(&mut self, name: &str, task: AbortHandle) {
        if let Some(part) = self.0.iter_mut().find(|part| part.name == name) {
            part.state = State::Running(task);
        }
    }

    pub(super) fn name_of(&self, task: Id) -> Option<String> {
        let is_it = |part: &&Part| matches!(&part.state, State::Running(handle) if handle.id() == task);
        self.0.iter().find(is_it).map(|part| part.name.clone())
    }

    /// It has ended. Those that come after it go on: it was ready once.
    pub(super) fn ended(&mut self, name: &str) {
        if let Some(part) = self.0.iter_mut().find(|part| part.name == name) {
            part.state = State::Ended;
            part.ended.send_replace(true);
        }
    }

    /// Tells those to drain that nobody needs any more.
    pub(super) fn drain_unneeded(&mut self) {
        for part in &mut self.0 {
            if let State::Waiting(_) = part.state {
                part.state = State::Ended;
                part.ended.send_replace(true);
            }
        }
        for part in self.0.iter().filter(|part| part.is_running() && !self.is_needed(part)) {
            part.lifecycle.drain();
        }
    }

    fn is_needed(&self, part: &Part) -> bool {
        self.0
            .iter()
            .any(|other| other.is_running() && (other.after.contains(&part.name) || part.is_cache && !other.is_cache))
    }

    pub(super) fn stop_all(&self) {
        for part in &self.0 {
            part.lifecycle.stop();
        }
    }

    /// Takes one out: its line, and how to wait for its end.
    pub(super) fn remove(&mut self, name: &str) -> Result<Removed, ManagerError> {
        let part = self.find(name).ok_or_else(|| ManagerError::Unknown(name.to_owned()))?;
        let by = self.0.iter().find(|other| other.is_unfinished() && other.after.iter().any(|after| after == name));
        if let Some(by) = by {
            return Err(ManagerError::InUse { name: name.to_owned(), by: by.name.clone() });
        }
        let task = match &part.state {
            State::Running(task) => Some(task.clone()),
            State::Waiting(_) | State::Ended => None,
        };
        Ok(Removed { lifecycle: part.lifecycle.clone(), ended: part.ended.subscribe(), task })
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.retain(|part| part.name != name);
    }

    pub(super) fn find(&self, name: &str) -> Option<&Part> {
        self.0.iter().find(|part| part.name == name)
    }
}

pub(super) struct Removed {
    pub(super) lifecycle: Lifecycle,
    pub(super) ended: watch::Receiver<bool>,
    /// The task, if it was started.
    pub(super) task: Option<AbortHandle>,
}

impl Part {
    fn take(&mut self) -> Option<(Box<dyn Runnable>, Lifecycle)> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Waiting(runnable) => Some((runnable, self.lifecycle.clone())),
            state => {
                self.state = state;
                None
            }
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Running(_) | State::Waiting(_))
    }
}
