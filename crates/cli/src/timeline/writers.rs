//! Who made each version of an object, which part of it, and when.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::bounds::{Bounds, Known, accesses, runs, version};
use super::{Instant, Subject, is_whole, list, moment, number, text};
use crate::apply::has;

/// One version and how it came about.
#[derive(Debug)]
pub struct Write {
    pub version: u64,
    pub at: Instant,
    /// Whether `at` is when a run saw it, and it came before that.
    pub is_before_its_time: bool,
    pub is_deletion: bool,
    /// The controller, where one of its runs tells so; else the manager of its fields; empty if nobody is named.
    pub who: String,
    pub detail: String,
}

/// All versions that are kept, each once, none before the one before it.
pub fn writes(subject: &Subject<'_>) -> Vec<Write> {
    let is_own = |controller: &str, run: &Value| subject.is_about(controller, run);
    let mut known = Known::of_runs(subject.traces, is_own);
    let authors = authors(subject);
    let changes: Vec<Change<'_>> = (0..subject.history.len()).map(|at| Change::of(subject, at, &authors)).collect();
    for change in &changes {
        if let Some((second, _)) = change.time() {
            known.within(change.version, second);
        }
    }
    let bounds = known.bounds();
    let mut last = moment(&subject.object["metadata"]["creationTimestamp"]).unwrap_or_default();
    let write = |(at, change): (usize, &Change<'_>)| {
        let next = changes.get(at + 1).and_then(Change::time);
        let write = change.told(&bounds, last, next);
        last = write.at;
        write
    };
    changes.iter().enumerate().map(write).collect()
}

/// The last write of each manager before the oldest version that is kept.
pub fn older(subject: &Subject<'_>) -> Vec<(Instant, String, String)> {
    if is_whole(subject.history) {
        return Vec::new();
    }
    let first = subject.history.first().unwrap_or(subject.object);
    let own = subject.history.first().and_then(|_| Change::of(subject, 0, &Authors::new()).entry);
    let entries = list(&first["metadata"]["managedFields"]).filter(|entry| Some(*entry) != own);
    let told = |entry: &Value| Some((moment(&entry["time"])?, manager(entry), part(entry)));
    entries.filter_map(told).collect()
}

/// What a version changed of the one before it.
struct Change<'a> {
    version: u64,
    before: Option<&'a Value>,
    after: &'a Value,
    /// What whoever wrote it owns now.
    entry: Option<&'a Value>,
    /// The run that wrote it.
    author: Option<Author<'a>>,
}

impl<'a> Change<'a> {
    fn of(subject: &Subject<'a>, at: usize, authors: &Authors<'a>) -> Change<'a> {
        let (history, after) = (subject.history, &subject.history[at]);
        let before = at.checked_sub(1).map(|before| &history[before]);
        let entry = match before {
            Some(before) => entries(after).find(|entry| is_news(entry, before)),
            None => entries(after).max_by_key(|entry| moment(&entry["time"])),
        };
        let version = number(after);
        Change { version, before, after, entry, author: authors.get(&version).copied() }
    }

    fn time(&self) -> Option<Instant> {
        let metadata = &self.after["metadata"];
        match moment(&metadata["deletionTimestamp"]).filter(|_| self.is_deletion()) {
            // It names the end of the grace period.
            Some((end, part)) => Some((end - metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0), part)),
            None => moment(&self.entry?["time"]),
        }
    }

    fn told(&self, bounds: &Bounds, last: Instant, next: Option<Instant>) -> Write {
        let known = self.time().into_iter().chain(bounds.earliest(self.version)).chain([last]).max().unwrap_or(last);
        let is_timed = self.author.is_some() || self.time().is_some();
        // Runs follow at once on what they look after.
        let seen = bounds
            .seen(self.version)
            .filter(|(seen, at)| !is_timed && *at >= known && (*seen == self.version || self.is_of_its_spec()));
        let at = seen.map_or(known, |(_, at)| at);
        let (who, what) = self.told_of(last);
        // What the next version is of the same second as needs no more words.
        let is_sure = is_timed || seen.is_some() || next.is_some_and(|next| next.0 == at.0);
        let or_later = if is_sure { "" } else { ", then or later" };
        Write {
            version: self.version,
            at,
            is_before_its_time: seen.is_some(),
            is_deletion: self.is_deletion(),
            who,
            detail: format!("{what}, version {}{or_later}", self.version),
        }
    }

    fn told_of(&self, last: Instant) -> (String, String) {
        let who = |other: String| self.author.map_or(other, |author| author.controller.to_owned());
        if self.is_deletion() {
            return (who(String::new()), "its end was asked for".to_owned());
        }
        match self.entry {
            Some(entry) => (who(manager(entry)), part(entry)),
            None if let Some(author) = self.author => {
                (author.controller.to_owned(), named("Update", author.subresource))
            }
            None if self.only_takes_away() => (String::new(), "fields taken away".to_owned()),
            // An entry that is as before was written within its second.
            None => {
                let recent =
                    entries(self.after).filter(|entry| moment(&entry["time"]).is_some_and(|at| at.0 >= last.0));
                let names: BTreeSet<String> = recent.map(manager).collect();
                let names: Vec<String> = names.into_iter().collect();
                (names.join(" or "), "Update".to_owned())
            }
        }
    }

    fn is_deletion(&self) -> bool {
        let is_ending = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        is_ending(self.after) && self.before.is_some_and(|before| !is_ending(before))
    }

    fn is_of_its_spec(&self) -> bool {
        self.before.is_some_and(|before| before["metadata"]["generation"] != self.after["metadata"]["generation"])
    }

    fn only_takes_away(&self) -> bool {
        let bare = |object: &Value| {
            let mut object = object.clone();
            for name in ["managedFields", "resourceVersion", "generation"] {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove(name));
            }
            object
        };
        self.before.is_some_and(|before| has(&bare(before), &bare(self.after)))
    }
}

/// A run of a controller that made a version.
#[derive(Clone, Copy)]
struct Author<'a> {
    controller: &'a str,
    subresource: &'a str,
    began: Option<Instant>,
}

type Authors<'a> = HashMap<u64, Author<'a>>;

/// Which runs made versions of the object.
fn authors<'a>(subject: &Subject<'a>) -> Authors<'a> {
    let mut authors: Authors<'a> = HashMap::new();
    for (controller, run) in runs(subject.traces) {
        let began = moment(&run["started"]);
        for write in accesses(run, "writes").filter(|write| subject.is_accessed(write)) {
            let Some(version) = version(&write["resourceVersion"]) else { continue };
            let found = Author { controller, subresource: text(&write["subresource"]), began };
            let author = authors.entry(version).or_insert(found);
            // A run that changed nothing is answered with what was there.
            if found.began < author.began {
                *author = found;
            }
        }
    }
    authors
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    list(&object["metadata"]["managedFields"])
}

/// Whether whose entry it is has written since: it is new, younger, or owns more. What others took over only makes it smaller.
fn is_news(entry: &Value, before: &Value) -> bool {
    let is_same =
        |other: &&Value| ["manager", "operation", "subresource"].iter().all(|name| entry[*name] == other[*name]);
    match entries(before).find(is_same) {
        None => true,
        Some(old) => moment(&entry["time"]) > moment(&old["time"]) || !has(&old["fieldsV1"], &entry["fieldsV1"]),
    }
}

fn manager(entry: &Value) -> String {
    text(&entry["manager"]).to_owned()
}

fn part(entry: &Value) -> String {
    named(text(&entry["operation"]), text(&entry["subresource"]))
}

fn named(operation: &str, subresource: &str) -> String {
    match subresource {
        "" => operation.to_owned(),
        part => format!("{operation} of {part}"),
    }
}
