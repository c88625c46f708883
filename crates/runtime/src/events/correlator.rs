//! Decides what becomes of an event: written, counted, combined with similar ones, or dropped.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::events::v1::{Event, EventSeries};
use tokio::time::Instant;

use super::recent::Recent;

/// Objects, groups and series that are remembered, each.
const REMEMBERED_MAX: usize = 4_096;
/// Events about one object that may come at once, and how long it takes until one more may.
const SPAM_BURST: f64 = 25.0;
const SPAM_REFILL: Duration = Duration::from_secs(300);
/// So many different notes of otherwise equal events within this time are combined.
const SIMILAR_MAX: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// A series without a new event for this long is over.
pub(super) const SERIES_QUIET: Duration = Duration::from_secs(6 * 60);

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// A new event.
    Create(Box<Event>),
    /// The series of an event that was written before.
    Patch(Box<Event>),
    /// Nothing: it was counted, or there were too many.
    Nothing,
}

/// Who says what about which object: type, reason, action, reporter, object, related object, and the note.
type Key = [String; 8];

#[derive(Debug)]
pub(super) struct Correlator {
    /// Whether each event of a series is told, not only that there is one.
    pub(super) tells_each: bool,
    spam: Recent<[String; 3], Bucket>,
    similar: Recent<Key, Similar>,
    series: Recent<Key, Series>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

#[derive(Debug)]
struct Similar {
    notes: BTreeSet<String>,
    last: Instant,
}

#[derive(Debug)]
struct Series {
    event: Event,
    last: Instant,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator {
            tells_each: false,
            spam: Recent::new(REMEMBERED_MAX),
            similar: Recent::new(REMEMBERED_MAX),
            series: Recent::new(REMEMBERED_MAX),
        }
    }

    pub(super) fn take(&mut self, event: Event, now: Instant) -> Verdict {
        let event = self.combine(event, now);
        let key = key(&event, false);
        let is_known = self.series.contains(&key);
        let verdict = if is_known { self.count(&key, &event, now) } else { Verdict::Nothing };
        if is_known && !self.tells_each {
            return verdict;
        }
        if self.is_spam(&event, now) {
            return Verdict::Nothing;
        }
        if is_known {
            return verdict;
        }
        self.series.entry(&key, || Series { event: event.clone(), last: now });
        Verdict::Create(Box::new(event))
    }

    /// The series that are over: they are written once more with their last count, and forgotten.
    pub(super) fn finish(&mut self, now: Instant) -> Vec<Event> {
        let over = self.series.keys_where(|series| now - series.last >= SERIES_QUIET);
        let ended = over.iter().filter_map(|key| self.series.remove(key));
        ended.map(|series| series.event).filter(|event| event.series.is_some()).collect()
    }

    /// The series that go on: written now and then, so that the server doesn't forget them.
    pub(super) fn ongoing(&self) -> Vec<Event> {
        let keys = self.series.keys_where(|series| series.event.series.is_some());
        keys.iter().filter_map(|key| self.series.get(key)).map(|series| series.event.clone()).collect()
    }

    fn combine(&mut self, mut event: Event, now: Instant) -> Event {
        let note = event.note.clone().unwrap_or_default();
        let new = || Similar { notes: BTreeSet::new(), last: now };
        let similar = self.similar.entry(&key(&event, true), new);
        if now - similar.last > SIMILAR_WITHIN {
            similar.notes.clear();
        }
        similar.last = now;
        similar.notes.insert(note.clone());
        if similar.notes.len() >= SIMILAR_MAX {
            similar.notes.pop_first();
            event.note = Some(format!("(combined from similar events): {note}"));
        }
        event
    }

    /// The second of its kind makes a series, which is told at once; later ones only count, unless each is told.
    fn count(&mut self, key: &Key, event: &Event, now: Instant) -> Verdict {
        let Some(at) = event.event_time.clone() else { return Verdict::Nothing };
        let series = self.series.entry(key, || Series { event: Event::default(), last: now });
        series.last = now;
        // That of combined ones is another each time.
        series.event.note.clone_from(&event.note);
        match &mut series.event.series {
            Some(counted) => {
                counted.count = counted.count.saturating_add(1);
                counted.last_observed_time = at;
                match self.tells_each {
                    true => Verdict::Patch(Box::new(series.event.clone())),
                    false => Verdict::Nothing,
                }
            }
            none => {
                *none = Some(EventSeries { count: 2, last_observed_time: at });
                Verdict::Patch(Box::new(series.event.clone()))
            }
        }
    }

    fn is_spam(&mut self, event: &Event, now: Instant) -> bool {
        let [kind, _, _, reporter, _, regarding, _, _] = key(event, true);
        let bucket = self.spam.entry(&[kind, reporter, regarding], || Bucket { tokens: SPAM_BURST, at: now });
        let refilled = (now - bucket.at).as_secs_f64() / SPAM_REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(SPAM_BURST);
        bucket.at = now;
        let spam = bucket.tokens < 1.0;
        if !spam {
            bucket.tokens -= 1.0;
        }
        spam
    }
}

/// Combined events are one whatever their note says, so it isn't part of their key.
fn key(event: &Event, without_note: bool) -> Key {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let note = text(&event.note);
    let combined = note.starts_with("(combined from similar events): ");
    let object = |reference: &Option<k8s_openapi::api::core::v1::ObjectReference>| {
        reference.as_ref().map_or_else(String::new, |it| {
            let parts = [&it.api_version, &it.kind, &it.namespace, &it.name, &it.uid, &it.field_path];
            parts.map(text).join("\n")
        })
    };
    [
        text(&event.type_),
        text(&event.reason),
        text(&event.action),
        text(&event.reporting_controller),
        text(&event.reporting_instance),
        object(&event.regarding),
        object(&event.related),
        match (without_note, combined) {
            (true, _) => String::new(),
            (false, true) => "combined".to_owned(),
            (false, false) => format!("={note}"),
        },
    ]
}
