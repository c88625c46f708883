//! How much happens while virtual time stands still: who spins never lets it pass, and would hang the test.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use setpoint_runtime::Key;
use setpoint_runtime::controller::{Listener, listen_to_runs};
use tokio::sync::watch;
use tokio::time::Instant;

/// What counts as one moment. Not less, so that whoever waits for a millisecond each time is found as well.
const MOMENT: Duration = Duration::from_secs(1);

/// Counts the steps of one moment: runs of controllers, calls, turns of a process.
pub(crate) struct Pulse {
    beats: Arc<Beats>,
    /// Held so that it is told of runs.
    _listener: Arc<Listener>,
}

struct Beats {
    steps_max: usize,
    moment: Mutex<Moment>,
    /// What spins, once something does.
    spins: watch::Sender<Option<String>>,
}

struct Moment {
    begin: Instant,
    steps: usize,
}

impl Pulse {
    /// One that lets so many steps happen in a moment. It hears of the runs of this thread's controllers.
    pub(crate) fn bounded(steps_max: usize) -> Pulse {
        let moment = Mutex::new(Moment { begin: Instant::now(), steps: 0 });
        let beats = Arc::new(Beats { steps_max, moment, spins: watch::Sender::new(None) });
        let told = Arc::clone(&beats);
        let listener: Arc<Listener> = Arc::new(move |controller: &str, key: &Key| {
            told.step(|| format!("a run of {controller} for {key}"));
        });
        listen_to_runs(&listener);
        Pulse { beats, _listener: listener }
    }

    /// Counts a step; false if there were too many, so that it must not be made.
    pub(crate) fn step(&self, what: impl FnOnce() -> String) -> bool {
        self.beats.step(what)
    }

    /// Counts each turn of a future as a step.
    pub(crate) async fn turns<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| match self.step(|| format!("a turn of {what}")) {
            true => future.as_mut().poll(context),
            false => Poll::Pending,
        })
        .await
    }

    /// Waits until something spins, and says what.
    pub(crate) async fn spins(&self) -> String {
        let mut spins = self.beats.spins.subscribe();
        // The sender lives as long as `self`.
        let found = spins.wait_for(Option::is_some).await.ok().and_then(|what| what.clone());
        match found {
            Some(what) => what,
            None => std::future::pending().await,
        }
    }
}

impl Beats {
    fn step(&self, what: impl FnOnce() -> String) -> bool {
        let mut moment = self.moment.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.saturating_duration_since(moment.begin) >= MOMENT {
            *moment = Moment { begin: now, steps: 0 };
        }
        moment.steps += 1;
        if moment.steps == self.steps_max + 1 {
            let (most, moment) = (self.steps_max, MOMENT.as_secs());
            let what = what();
            self.spins.send_replace(Some(format!(
                "something spins: there are more than {most} runs, calls and turns within {moment} s of virtual time, the last was {what}"
            )));
        }
        moment.steps <= self.steps_max
    }
}
