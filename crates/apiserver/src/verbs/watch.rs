//! Following a collection: every change of its objects, from a revision on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use setpoint_api::metrics::Counter;
use setpoint_api::{Revision, Status};
use setpoint_store::{Object, Query, Store, WatchError, WatchEvent, WatchRequest, Watcher};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer::{self, Answer};
use crate::body::{Body, BoxError};
use crate::call::Call;
use crate::clock::{Chance, Clock};
use crate::conversion::{self, Broken};
use crate::pieces::PIECE_BYTES;
use crate::query::ListOptions;
use crate::registry::{Following, Served};
use crate::representation::{self, Form, Include, Representation};
use crate::webhook_client::Surroundings;
use crate::{authorization, objects};

/// A watch without a time-out ends after this time and up to as much again, so that clients spread over servers.
const TIMEOUT_SECONDS_MIN: u64 = 1800;

/// How often a bookmark tells how far the stream is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// A watch that has a bookmark to come gets one so long before its end, so that the next one begins where this one ended.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// How many objects that were there are converted at once.
const CONVERTED_AT_ONCE: usize = 64;

/// Room for what stands around an object in an event.
const LINE_BYTES: usize = 64;

/// The bookmark that ends the initial events carries this annotation.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) fn run(call: &mut Call<'_>, options: &ListOptions) -> Answer {
    let representation = Representation::of(call.headers, &call.query, true)?;
    if representation.form == Form::PartialList {
        return Err(super::not_acceptable(call, "PartialObjectMetadataList", "not a list", &call.kind().kind));
    }
    let include = Include::of(&call.query)?;
    let selection = call.selection(options)?;
    let timeout =
        options.timeout_seconds.unwrap_or_else(|| TIMEOUT_SECONDS_MIN + call.server.chance.below(TIMEOUT_SECONDS_MIN));
    let served = call.served_shared();
    let writer = Writer { served, representation, include, clock: call.server.clock.clone(), headings: true };
    let start = Start::of(options)?;
    let ends = Instant::now() + Duration::from_secs(timeout);
    let stream = Stream {
        store: call.server.store.clone(),
        request: WatchRequest {
            resource: call.served.stored.clone(),
            namespace: call.namespace.map(str::to_owned),
            selection,
            from: Revision::ZERO,
        },
        writer,
        start: Some(start),
        present: None,
        over: Box::pin(over(call.server.stopping.clone(), ends)),
        ends,
        bookmark: options.bookmarks.then(|| Box::pin(sleep_until(next_bookmark(Instant::now(), ends)))),
        watcher: None,
        replaced: call.server.kinds.follow(call.served).map(|following| Box::pin(replaced(following)) as Waiting),
        revoked: authorization::revoked(call).map(|revoked| Box::pin(revoked) as Waiting),
        sent: call.server.metrics.watch_events(call.served),
        chance: call.server.chance.clone(),
    };
    let frames = stream::unfold(Some(stream), |state| async move {
        let mut stream = state?;
        let (bytes, ended) = stream.next().await?;
        let frame: Result<Frame<Bytes>, BoxError> = Ok(Frame::data(bytes));
        Some((frame, (!ended).then_some(stream)))
    });
    let mut response: Response<Body> = answer::json(StatusCode::OK, "");
    *response.body_mut() = StreamBody::new(frames).boxed_unsync();
    Ok(response)
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// With what is there, then what follows.
    Present {
        /// At least at this revision.
        at_least: Option<Revision>,
        /// A bookmark tells where what is there ends.
        marked: bool,
    },
    /// With what follows the present.
    Now,
    /// With what follows a revision.
    After(Revision),
}

impl Start {
    fn of(options: &ListOptions) -> Result<Start, Box<Status>> {
        let revision = options.revision()?;
        Ok(match (options.send_initial_events, revision) {
            (Some(true), at_least) => Start::Present { at_least, marked: options.bookmarks },
            (Some(false), None) if options.resource_version.is_empty() => Start::Now,
            // Without a word about initial events, a watch from any version has them all the same.
            (None, None) => Start::Present { at_least: None, marked: options.bookmarks },
            (Some(false), None) => Start::Present { at_least: None, marked: false },
            (_, Some(revision)) => Start::After(revision),
        })
    }
}

/// Something that is waited for as long as a watch is open.
type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is waited for between events is made once and kept: with many watchers, registering it anew for each event would
/// cost more than the event.
struct Stream {
    store: Store,
    request: WatchRequest,
    writer: Writer,
    start: Option<Start>,
    /// What was there when the watch began and isn't written yet.
    present: Option<Present>,
    /// The time is over, or the server goes down.
    over: Waiting,
    /// When the time is over.
    ends: Instant,
    /// The next bookmark is due.
    bookmark: Option<Pin<Box<Sleep>>>,
    watcher: Option<Watcher>,
    /// A custom kind isn't served any more as it was.
    replaced: Option<Waiting>,
    /// The one who watches may not any more.
    revoked: Option<Waiting>,
    sent: Arc<Counter>,
    /// Which endpoint of a conversion webhook is asked.
    chance: Chance,
}

/// The objects that a watch begins with. They are written piece by piece, as the client takes them.
struct Present {
    objects: std::vec::IntoIter<Arc<Object>>,
    /// A bookmark tells where they end, with the revision that they are of.
    mark: Option<Revision>,
}

/// What a watch has to tell.
enum News {
    Events(Vec<WatchEvent>),
    /// The events before it, so that it is never ahead of them.
    Bookmark(Vec<WatchEvent>),
    /// The events before the end, so that the deletion of the last object is seen before the end of its kind.
    Last(Vec<WatchEvent>),
}

impl Stream {
    /// The next bytes to send, and whether they are the last; `None` when the time is over.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        let mut out = Vec::new();
        if let Some(start) = self.start.take()
            && let Err(end) = self.begin(start).await
        {
            return self.end(end, out);
        }
        if let Some(present) = self.present.take() {
            if let Err(broken) = self.write_present(present, &mut out).await {
                return self.end(End::Broken(broken), out);
            }
            if !out.is_empty() {
                return Some((out.into(), false));
            }
        }
        let news = match poll_fn(|context| self.poll_news(context)).await {
            Ok(news) => news,
            Err(end) => return self.end(end, out),
        };
        let (News::Events(events) | News::Bookmark(events) | News::Last(events)) = &news;
        self.sent.add(events.len() as u64);
        out.reserve(events.iter().map(|event| event.object().json().len() + LINE_BYTES).sum());
        if self.writer.served.converter().is_some() {
            if let Err(broken) = self.write_converted(events, &mut out).await {
                return self.end(End::Broken(broken), out);
            }
        } else {
            events.iter().for_each(|event| self.writer.event(event, &mut out));
        }
        match news {
            News::Events(_) => Some((out.into(), false)),
            News::Bookmark(_) => {
                self.writer.bookmark(self.watcher.as_ref()?.revision(), false, &mut out);
                Some((out.into(), false))
            }
            News::Last(_) => (!out.is_empty()).then(|| (out.into(), true)),
        }
    }

    fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<Result<News, End>> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(End::Over));
        }
        if self.revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Err(End::Over));
        }
        let Some(watcher) = &mut self.watcher else { return Poll::Ready(Err(End::Over)) };
        if let Poll::Ready(events) = watcher.poll_next(context) {
            return Poll::Ready(events.map(News::Events).map_err(End::Failed));
        }
        if self.replaced.as_mut().is_some_and(|replaced| replaced.as_mut().poll(context).is_ready()) {
            return Poll::Ready(watcher.poll().map(News::Last).map_err(End::Failed));
        }
        let Some(bookmark) = &mut self.bookmark else { return Poll::Pending };
        ready!(bookmark.as_mut().poll(context));
        bookmark.as_mut().reset(next_bookmark(Instant::now(), self.ends));
        Poll::Ready(watcher.poll().map(News::Bookmark).map_err(End::Failed))
    }

    fn end(&self, end: End, mut out: Vec<u8>) -> Option<(Bytes, bool)> {
        match end {
            End::Failed(error @ WatchError::Expired(_)) => {
                self.writer.error(&Status::expired(error.to_string()), &mut out);
                Some((out.into(), true))
            }
            End::Broken(broken) => {
                let mut status = broken.status();
                status.reason = "InternalError".to_owned();
                self.writer.error(&status, &mut out);
                Some((out.into(), true))
            }
            End::Failed(WatchError::Future { .. } | WatchError::Closed) | End::Over => None,
        }
    }

    /// Takes the watch's first position.
    async fn begin(&mut self, start: Start) -> Result<(), End> {
        let snapshot = match start {
            Start::After(revision) => {
                self.wait_for(revision).await?;
                self.request.from = revision;
                return self.watch_from(revision);
            }
            Start::Now => self.store.snapshot(),
            Start::Present { at_least, marked } => {
                if let Some(revision) = at_least {
                    self.wait_for(revision).await?;
                }
                let snapshot = self.store.snapshot();
                let objects = snapshot.list(&self.everything()).items.into_iter();
                self.present = Some(Present { objects, mark: marked.then(|| snapshot.revision()) });
                snapshot
            }
        };
        self.watch_from(snapshot.revision())
    }

    fn watch_from(&mut self, from: Revision) -> Result<(), End> {
        let request = WatchRequest { from, ..self.request.clone() };
        self.watcher = Some(self.store.watch(request).map_err(End::Failed)?);
        Ok(())
    }

    async fn wait_for(&mut self, revision: Revision) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.store.reached(revision) => Ok(()),
            () = self.over.as_mut() => Err(End::Over),
        }
    }

    /// All objects that are watched.
    fn everything(&self) -> Query<'_> {
        Query {
            resource: &self.request.resource,
            namespace: self.request.namespace.as_deref(),
            selection: &self.request.selection,
            after: None,
            limit: None,
        }
    }

    /// Writes some of what was there, and keeps what is left for the next time.
    async fn write_present(&mut self, mut present: Present, out: &mut Vec<u8>) -> Result<(), Broken> {
        while out.len() < PIECE_BYTES {
            if self.writer.served.converter().is_some() && !present.objects.as_slice().is_empty() {
                let some: Vec<_> = present.objects.by_ref().take(CONVERTED_AT_ONCE).collect();
                let values = some.iter().map(|object| objects::value(object)).collect();
                let shown = self.converted(values).await?;
                shown.into_iter().for_each(|object| self.writer.shown_object("ADDED", object, out));
                continue;
            }
            let Some(object) = present.objects.next() else {
                if let Some(revision) = present.mark {
                    self.writer.bookmark(revision, true, out);
                }
                return Ok(());
            };
            let as_stored = self.writer.served.shows_as_stored(&object);
            let raw = |out: &mut Vec<u8>| out.extend_from_slice(object.json());
            self.writer.object("ADDED", as_stored, raw, || objects::value(&object), out);
        }
        self.present = Some(present);
        Ok(())
    }

    /// Writes events of a kind whose versions a webhook turns into each other.
    async fn write_converted(&mut self, events: &[WatchEvent], out: &mut Vec<u8>) -> Result<(), Broken> {
        let values = events.iter().map(value_of).collect();
        let shown = self.converted(values).await?;
        let kinds = events.iter().map(|event| event.kind.as_str());
        kinds.zip(shown).for_each(|(kind, object)| self.writer.shown_object(kind, object, out));
        Ok(())
    }

    async fn converted(&mut self, values: Vec<Value>) -> Result<Vec<Value>, Broken> {
        let around = Surroundings { store: &self.store, chance: &self.chance };
        conversion::shown_values(around, &self.writer.served, values).await
    }
}

/// The object of an event, as it is stored.
fn value_of(event: &WatchEvent) -> Value {
    let mut json = Vec::new();
    event.write_json(&mut json);
    serde_json::from_slice(&json).expect("what is stored was encoded by us")
}

fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let regular = now + BOOKMARK_EVERY;
    match ends.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now) {
        Some(last) => regular.min(last),
        None => regular,
    }
}

/// Waits until the kind isn't served any more as it was when the watch began: clients come again and find what is.
async fn replaced(mut following: Following) {
    following.replaced().await;
}

/// Waits until a watch has to end whatever happens.
async fn over(mut stopping: watch::Receiver<bool>, ends: Instant) {
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => {}
        () = sleep_until(ends) => {}
    }
}

/// Why a watch ends.
enum End {
    Failed(WatchError),
    /// An object could not be converted.
    Broken(Broken),
    Over,
}

/// Writes events in the form that was asked for.
struct Writer {
    served: Arc<Served>,
    representation: Representation,
    include: Include,
    clock: Clock,
    /// The next table says what its columns are.
    headings: bool,
}

impl Writer {
    fn event(&mut self, event: &WatchEvent, out: &mut Vec<u8>) {
        let as_stored = self.served.shows_as_stored(event.object());
        self.object(event.kind.as_str(), as_stored, |out| event.write_json(out), || value_of(event), out);
    }

    fn object(
        &mut self,
        kind: &str,
        as_stored: bool,
        raw: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.representation.form {
            Form::Object if as_stored => raw(out),
            Form::Partial if as_stored => {
                let mut stored = Vec::new();
                raw(&mut stored);
                if !representation::write_partial(&stored, self.representation.version, out) {
                    self.write_shown(value(), out);
                }
            }
            _ => self.write_shown(value(), out),
        }
        out.extend_from_slice(b"}\n");
    }

    /// Writes an event with an object that is as its kind shows it.
    fn shown_object(&mut self, kind: &str, object: Value, out: &mut Vec<u8>) {
        let line = json!({"type": kind, "object": self.in_form(object)});
        serde_json::to_writer(&mut *out, &line).expect("writing to memory does not fail");
        out.push(b'\n');
    }

    fn write_shown(&mut self, object: Value, out: &mut Vec<u8>) {
        let shown = self.in_form(self.served.show_stored(object));
        serde_json::to_writer(out, &shown).expect("writing to memory does not fail");
    }

    fn in_form(&mut self, object: Value) -> Value {
        let version = self.representation.version;
        match self.representation.form {
            Form::Object | Form::PartialList => object,
            Form::Partial => representation::partial(&object, version),
            Form::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let headings = std::mem::replace(&mut self.headings, false);
                let now = self.clock.seconds();
                representation::table(&self.served.kind, &[object], metadata, self.include, version, now, headings)
            }
        }
    }

    fn bookmark(&mut self, revision: Revision, initial: bool, out: &mut Vec<u8>) {
        let kind = &self.served.kind;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        kind.normalize(&mut object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|_, value| !value.is_null());
        }
        let object = match self.representation.form {
            Form::Partial => representation::partial(&object, self.representation.version),
            _ => object,
        };
        let line = json!({"type": "BOOKMARK", "object": object});
        serde_json::to_writer(&mut *out, &line).expect("writing to memory does not fail");
        out.push(b'\n');
    }

    fn error(&self, status: &Status, out: &mut Vec<u8>) {
        let line = json!({"type": "ERROR", "object": status});
        serde_json::to_writer(&mut *out, &line).expect("writing to memory does not fail");
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::body::full;
    use crate::testing::Server;

    #[tokio::test(start_paused = true)]
    async fn what_is_there_comes_in_pieces_and_is_followed_by_what_happens() {
        let server = Server::start().await;
        let path = "/api/v1/namespaces/default/configmaps";
        let object =
            |i: usize| json!({"metadata": {"name": format!("m{i:03}")}, "data": {"payload": "x".repeat(1_000)}});
        for i in 0..150 {
            assert_eq!(server.send("POST", path, object(i)).await.0, 201);
        }
        let query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
        let request = Request::get(format!("{path}?{query}")).body(full(Vec::new())).unwrap();
        let mut body = server.answer(request).await.into_body();
        let (mut seen, mut text, mut added) = (Vec::new(), String::new(), false);
        while seen.len() < 152 {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() < PIECE_BYTES + 4_000, "a piece of {} bytes", piece.len());
            if !std::mem::replace(&mut added, true) {
                assert_eq!(server.send("POST", path, object(200)).await.0, 201);
            }
            text.push_str(std::str::from_utf8(&piece).unwrap());
            while let Some((line, rest)) = text.split_once('\n') {
                let event: Value = serde_json::from_str(line).unwrap();
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                seen.push(format!("{} {name}", event["type"].as_str().unwrap()));
                text = rest.to_owned();
            }
        }
        let expected = (0..150).map(|i| format!("ADDED m{i:03}")).chain(["BOOKMARK ".into(), "ADDED m200".into()]);
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }

    /// The kinds of events of a watch to its end.
    async fn events(server: &Server, query: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/default/configmaps?watch=1&{query}");
        let text = server.text(Request::get(path).body(full(Vec::new())).unwrap()).await;
        let kind = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            let ends =
                event["object"]["metadata"]["annotations"].get(INITIAL_EVENTS_END).map_or("", |_| " of the beginning");
            format!("{}{ends}", event["type"].as_str().unwrap())
        };
        text.lines().map(kind).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_bookmark_ends_what_was_there_and_another_comes_before_the_end() {
        let server = Server::start().await;
        let made =
            server.done("POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await;
        let from = made["metadata"]["resourceVersion"].as_str().unwrap();
        let begun = ["ADDED", "BOOKMARK of the beginning"];
        assert_eq!(events(&server, "allowWatchBookmarks=1&timeoutSeconds=2").await, begun);
        assert_eq!(events(&server, "allowWatchBookmarks=1&timeoutSeconds=2&resourceVersion=0").await, begun);
        assert_eq!(events(&server, "timeoutSeconds=5").await, ["ADDED"]);
        let query = format!("allowWatchBookmarks=1&timeoutSeconds=65&resourceVersion={from}");
        assert_eq!(events(&server, &query).await, ["BOOKMARK", "BOOKMARK"]);
    }
}
