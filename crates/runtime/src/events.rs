//! Tells users what happened to their objects, without drowning them or the API server.
//!
//! The numbers are client-go's: the same event again becomes a series of one object, many similar ones are combined, and who says too much about
//! an object is cut off for a while. Recording never waits and never fails: an event that can't be kept is dropped.

mod correlator;
mod counted;
mod recent;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use tokio::sync::mpsc;

use crate::clock::{Chance, Clock};
use crate::manager::{Lifecycle, RunError, Runnable};
use crate::queue::Bucket;
use writer::Writer;

/// Events that wait to be written; more are dropped.
const QUEUED_MAX: usize = 1_000;

/// The longest note that the API takes, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Someone should look.
    Warning,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// How much it matters.
    pub severity: Severity,
    /// Why, in one word for programs: `FailedCreate`.
    pub reason: String,
    /// What was done or tried, in one word: `CreatePod`.
    pub action: String,
    /// A sentence for people.
    pub note: String,
}

/// Records events of one controller. Clones are the same recorder.
///
/// ```no_run
/// # fn doc(client: kube::Client, clock: setpoint_runtime::clock::Clock, chance: setpoint_runtime::clock::Chance, map: k8s_openapi::api::core::v1::ConfigMap) {
/// use setpoint_runtime::events::{self, Happening, Severity};
///
/// let (recorder, writer) = events::recorder("thermostat", "thermostat-7d9f", client, clock, chance);
/// // give `writer` to the manager, then:
/// recorder.record(events::reference(&map), Happening {
///     severity: Severity::Normal,
///     reason: "Heated".into(),
///     action: "Heat".into(),
///     note: "21 degrees".into(),
/// });
/// # drop(writer);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    controller: Arc<str>,
    instance: Arc<str>,
    clock: Clock,
    queue: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
    /// The last number in a name: two events of the same nanosecond need two names.
    last: Arc<Mutex<i128>>,
}

/// A recorder, and the part that writes what it records. The client should not be fenced: standbys have something to say too.
pub fn recorder(
    controller: &str,
    instance: &str,
    client: Client,
    clock: Clock,
    chance: Chance,
) -> (Recorder, EventWriter) {
    let (queue, events) = mpsc::channel(QUEUED_MAX);
    let recorder = Recorder {
        controller: controller.into(),
        instance: instance.into(),
        clock,
        queue,
        dropped: Arc::default(),
        last: Arc::default(),
    };
    let name = format!("events of {controller}");
    (recorder, EventWriter { name, events, writer: Writer::new(client, clock, chance) })
}

/// Refers to an object whose kind is known at compile time.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

impl Recorder {
    /// The same recorder for another instance of the same controller.
    #[must_use]
    pub fn on(&self, instance: &str) -> Recorder {
        Recorder { instance: instance.into(), ..self.clone() }
    }

    /// Records what happened to an object.
    pub fn record(&self, regarding: ObjectReference, happening: Happening) {
        self.record_related(regarding, None, happening);
    }

    /// Records what happened to an object because of another.
    pub fn record_related(&self, regarding: ObjectReference, related: Option<ObjectReference>, happening: Happening) {
        let Ok(room) = self.queue.try_reserve() else {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // Each time that they are twice as many: who is too busy to write events has no time to complain either.
            if dropped.is_power_of_two() {
                tracing::warn!(controller = %self.controller, dropped, "events were dropped: too many wait to be written");
            }
            return;
        };
        room.send(self.event(regarding, related, happening));
    }

    fn event(&self, regarding: ObjectReference, related: Option<ObjectReference>, happening: Happening) -> Event {
        let object = regarding.name.as_deref().unwrap_or_default();
        let namespace = regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
        let mut note = happening.note;
        let end = (0..=note.len().min(NOTE_BYTES_MAX)).rev().find(|&at| note.is_char_boundary(at)).unwrap_or_default();
        note.truncate(end);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object}.{:x}", self.number())),
                // Objects without a namespace have their events where `kubectl` looks first.
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(self.clock.micro_time()),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            action: Some(happening.action),
            reason: Some(happening.reason),
            regarding: Some(regarding),
            related,
            note: Some(note),
            type_: Some(match happening.severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }

    fn number(&self) -> i128 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = self.clock.wall().as_nanosecond().max(*last + 1);
        *last
    }
}

/// In which form events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As `events.k8s.io/v1` has them: the same again is a series, which is written now and then.
    #[default]
    Series,
    /// As the controllers of Kubernetes write them, in `v1`: with a source, a first and a last time and a count, which is always the
    /// newest. `kubectl get events --sort-by=.lastTimestamp` and the like look there.
    Counted,
    /// The same, and the source names the instance as its host, as nodes do.
    CountedOnHost,
}

/// Writes what a [`Recorder`] records, under a manager.
#[derive(Debug)]
pub struct EventWriter {
    name: String,
    events: mpsc::Receiver<Event>,
    writer: Writer,
}

impl EventWriter {
    /// Writes events in another form.
    #[must_use]
    pub fn form(mut self, form: Form) -> EventWriter {
        self.writer.write_as(form);
        self
    }

    /// Writes no more than the bucket has tokens for. What comes meanwhile waits, and is dropped once too many wait.
    #[must_use]
    pub fn paced(mut self, bucket: Bucket) -> EventWriter {
        self.writer.pace(bucket);
        self
    }
}

impl Runnable for EventWriter {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(mut self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            lifecycle.ready();
            tokio::select! {
                biased;
                () = lifecycle.stopping() => (),
                () = self.writer.run(&mut self.events, lifecycle.draining()) => (),
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
