//! What happens in etcd, as it comes: one watch of everything under the prefix, from the revision that was read on.
//!
//! A watch that ends is begun again behind the last revision that was taken, with another member if need be: nothing is lost or doubled.
//! Only if etcd has forgotten that revision, everything is read anew, and those who watch here are told to list again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use super::commit::Pending;
use super::grpc::CallError;
use super::keys::{Place, Reader, Tag, tag_of};
use super::listing;
use super::messages::{Empty, WATCH, WatchCreate, WatchRequest, WatchResponse, WatchedEvent, Watching, revision};
use crate::change::Committed;
use crate::head::Head;
use crate::object::Object;
use crate::state::Group;
use crate::window::Event;

/// How long a member may take to begin a watch.
const BEGIN_MAX: Duration = Duration::from_secs(5);

/// Pause before a watch is begun again, and the longest such pause while etcd is away.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The name of what delete-only transactions write, so that they can be told apart when they come back.
pub(super) const MARKER: &str = "marker/";

/// Follows etcd, and publishes what it hears.
pub(super) struct Feed {
    shared: Arc<Shared>,
    reader: Reader,
    head: Head,
    /// Everything up to this revision of etcd is in the head.
    at: i64,
}

/// Why a watch has ended.
enum Ended {
    Lost(CallError),
    /// The revision to go on from is forgotten.
    Compacted,
    /// Something came that can't be read.
    Unreadable(String),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Ended {
        Ended::Lost(error)
    }
}

/// One who waits for a transaction, and what it is told.
type Answer = (oneshot::Sender<Committed>, Committed);

impl Feed {
    pub(super) fn new(shared: Arc<Shared>, reader: Reader, head: Head, at: i64) -> Feed {
        Feed { shared, reader, head, at }
    }

    /// Runs for as long as the log is open.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            let before = self.shared.figures().feed_starts;
            let Err(ended) = self.follow().await;
            // One that never began tells nothing new.
            let had_begun = self.shared.figures().feed_starts > before;
            match ended {
                Ended::Lost(error) => {
                    pause = if had_begun { PAUSE } else { (pause * 2).min(PAUSE_MAX) };
                    match had_begun {
                        true => {
                            tracing::warn!(%error, revision = self.at, "the watch of etcd ended; it goes on from here")
                        }
                        false => tracing::debug!(%error, "etcd could not be watched"),
                    }
                    tokio::time::sleep(pause).await;
                }
                Ended::Compacted => self.begin_anew().await,
                Ended::Unreadable(why) => return self.shared.stop(why),
            }
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let shared = Arc::clone(&self.shared);
        let (key, range_end) = shared.keys.range();
        let create = WatchCreate { key, range_end, start_revision: self.at + 1, progress_notify: true, fragment: true };
        let create = WatchRequest { watching: Some(Watching::Create(create)) };
        let (member, mut stream) = shared.channel.stream(WATCH, &create, BEGIN_MAX).await?;
        shared.figures().feed_starts += 1;
        let in_order = shared.asks_progress && member.version.tells_progress_in_order();
        shared.tells_progress.store(in_order, Ordering::Relaxed);
        tracing::debug!(member = member.connection.base(), revision = self.at, "following etcd");
        let mut gathered: Vec<WatchedEvent> = Vec::new();
        loop {
            let answer: Option<WatchResponse> = tokio::select! {
                biased;
                answer = stream.next(&member.connection) => answer?,
                () = shared.progress.notified(), if in_order => {
                    stream.send(&WatchRequest { watching: Some(Watching::Progress(Empty {})) })?;
                    continue;
                }
            };
            let Some(answer) = answer else { return Err(CallError::Lost("etcd ended the watch".into()).into()) };
            if answer.canceled {
                // A member that can't serve it may not be the only one.
                member.connection.close();
                return Err(match answer.compact_revision {
                    0 => CallError::Lost(format!("etcd ended the watch: {}", answer.cancel_reason)).into(),
                    _ => Ended::Compacted,
                });
            }
            let told = revision(answer.header.as_ref());
            let is_progress = answer.events.is_empty() && !answer.created && !answer.fragment;
            gathered.extend(answer.events);
            if answer.fragment {
                continue;
            }
            if is_progress && gathered.is_empty() && in_order {
                self.advance(told);
            }
            if !gathered.is_empty() {
                self.take(std::mem::take(&mut gathered))?;
            }
        }
    }

    /// Nothing of ours has happened up to a revision.
    fn advance(&mut self, told: i64) {
        if told > self.at {
            self.at = told;
            self.head.revision = self.shared.format.revision(told);
            let bells = self.shared.state.publish(Group { head: self.head.clone(), events: Vec::new() });
            bells.iter().for_each(|bell| bell.ring());
        }
    }

    /// Takes events in order, whole revisions of them, and publishes them at once.
    fn take(&mut self, events: Vec<WatchedEvent>) -> Result<(), Ended> {
        let (mut published, mut answers) = (Vec::new(), Vec::new());
        for of_one in events.chunk_by(|a, b| changed_at(a) == changed_at(b)) {
            let at = changed_at(&of_one[0]);
            if at > self.at {
                answers.extend(self.take_revision(at, of_one, &mut published)?);
                self.at = at;
            }
        }
        let bells = self.shared.state.publish(Group { head: self.head.clone(), events: published });
        for (waiting, committed) in answers {
            // Who has gone away needs no answer.
            let _ = waiting.send(committed);
        }
        bells.iter().for_each(|bell| bell.ring());
        Ok(())
    }

    fn take_revision(
        &mut self,
        at: i64,
        events: &[WatchedEvent],
        published: &mut Vec<Arc<Event>>,
    ) -> Result<Option<Answer>, Ended> {
        let revision = self.shared.format.revision(at);
        self.head.revision = revision;
        let own = events.iter().find_map(|event| self.tag(event)).and_then(|tag| self.shared.pending().remove(&tag));
        let first = published.len();
        for event in events {
            let Some(kv) = &event.kv else { continue };
            let Place::Object(key) = self.reader.place(&kv.key) else { continue };
            let next = match event.kind {
                0 => {
                    let known = own.as_ref().and_then(|pending| pending.draft(&key));
                    let object = match known {
                        // What this process has written needn't be read again.
                        Some(draft) => Object::new(&draft.plain, draft.insert_at, draft.facts.clone(), revision),
                        None => {
                            let unreadable = |why| {
                                let key = String::from_utf8_lossy(&kv.key);
                                Ended::Unreadable(format!("{key} in etcd can't be read: {why}"))
                            };
                            let draft = self.reader.draft(&key, &kv.value).map_err(unreadable)?;
                            Object::new(&draft.plain, draft.insert_at, draft.facts, revision)
                        }
                    };
                    Some(Arc::new(object))
                }
                _ => None,
            };
            published.push(self.head.set(revision, key, next));
        }
        Ok(own.map(|pending: Pending| pending.answer(revision, &published[first..])))
    }

    /// The tag of the transaction that an event is of, if it tells.
    fn tag(&mut self, event: &WatchedEvent) -> Option<Tag> {
        let kv = event.kv.as_ref().filter(|_| event.kind == 0)?;
        match self.reader.place(&kv.key) {
            Place::Object(_) => tag_of(&kv.value),
            Place::Own(name) if name.starts_with(MARKER) => Tag::read(&kv.value),
            Place::Own(_) | Place::Foreign => None,
        }
    }

    /// Reads everything as it is now.
    async fn begin_anew(&mut self) {
        tracing::warn!(revision = self.at, "etcd has forgotten where the watch was; reading everything anew");
        let shared = Arc::clone(&self.shared);
        let read = listing::read(&shared.channel, &shared.keys, &mut self.reader, shared.format).await;
        match read {
            Ok((head, at)) => {
                self.head = head;
                self.at = at;
                // Those who wait find out what became of their transactions by themselves.
                shared.pending().clear();
                shared.state.replace(self.head.clone());
            }
            Err(super::EtcdError::Unreachable(error)) => {
                tracing::warn!(error, "etcd could not be read");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => shared.stop(error.to_string()),
        }
    }
}

fn changed_at(event: &WatchedEvent) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
