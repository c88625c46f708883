//! The one task that writes the log: takes all that is waiting, checks it, writes it at once, syncs once, then publishes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use setpoint_api::Revision;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::checkpoint::{self, CheckpointHeader};
use super::directory::{SEGMENT_HEADER, SegmentHeader, checkpoint_name, segment_name};
use super::record::GroupWriter;
use super::recovery::Position;
use super::{Meters, Options};
use crate::change::{CommitError, Committed, Durability, Transaction};
use crate::disk::{Disk, Lock, WriteError, is_full};
use crate::head::Head;
use crate::snapshot::Snapshot;
use crate::state::{Group, State};
use crate::window::Event;

/// Most commits taken at a time.
const GROUP_COMMITS_MAX: usize = 4096;

/// A group is written once it is this large, even if more is waiting.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// After so long without a write, the log notes that it is durable.
const QUIET: Duration = Duration::from_millis(100);

/// Relaxed changes are durable at the latest after this time of steady writing.
const RELAXED_AGE_MAX: Duration = Duration::from_secs(1);

/// A checkpoint that failed for lack of space is tried again after this time.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(10);

pub(crate) type Reply = oneshot::Sender<Result<Committed, CommitError>>;

pub(crate) enum Request {
    Commit(Transaction, Reply),
    /// Everything is to be written anew.
    Rewrite(Rewritten),
    Close(oneshot::Sender<()>),
}

/// Told once everything was written anew, or that there is no space for it.
pub(crate) type Rewritten = oneshot::Sender<io::Result<()>>;

/// How the log stands: set once it has stopped.
pub(crate) type Stopped = watch::Sender<Option<String>>;

pub(crate) struct Writer {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) state: Arc<State>,
    pub(crate) options: Options,
    pub(crate) meters: Arc<Meters>,
    pub(crate) stopped: Stopped,
    /// Held until the last write is done.
    pub(crate) lock: Lock,
    head: Head,
    position: Position,
    segment: Option<Segment>,
    /// The newest revision in the log. The head is ahead of it by the group under way.
    written: Revision,
    durable: Revision,
    /// Since when written revisions wait for a sync.
    unsynced_since: Option<Instant>,
    /// The segment has bytes, be it only a mark, that wait for a sync.
    unsynced: bool,
    /// The newest revision is noted as durable in the log.
    settled: bool,
    checkpoint: Option<Checkpointing>,
    checkpoint_not_before: Option<Instant>,
    /// Who waits for a checkpoint that has not begun yet.
    rewrites: Vec<Rewritten>,
}

/// The segment being written.
struct Segment {
    name: String,
    end: u64,
    size: u64,
}

struct Checkpointing {
    task: JoinHandle<io::Result<u64>>,
    segment: u64,
    /// Who waits for it.
    rewrites: Vec<Rewritten>,
}

/// The disk failed in a way that does not go away: the log stops, and the next start recovers.
#[derive(Debug)]
struct Fatal(String);

/// A group that is being made.
struct Pending {
    group: GroupWriter,
    events: Vec<Arc<Event>>,
    replies: Vec<(Reply, Result<Committed, CommitError>)>,
    sync: bool,
    /// What to go back to if the group can't be written.
    before: Head,
}

impl Writer {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        state: Arc<State>,
        position: Position,
        options: Options,
        meters: Arc<Meters>,
        stopped: Stopped,
        lock: Lock,
    ) -> Writer {
        let head = state.snapshot().head().clone();
        let written = head.revision;
        Writer {
            disk,
            state,
            options,
            meters,
            stopped,
            lock,
            head,
            position,
            segment: None,
            written,
            durable: written,
            unsynced_since: None,
            unsynced: false,
            settled: true,
            checkpoint: None,
            checkpoint_not_before: None,
            rewrites: Vec::new(),
        }
    }

    /// Runs until it is asked to close, every sender is gone, or the disk fails.
    pub(crate) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let outcome = self.serve(&mut requests).await;
        self.abort_checkpoint().await;
        requests.close();
        let (why, closed) = match outcome {
            Ok(closed) => ("it was closed".to_owned(), closed),
            Err(Fatal(why)) => {
                tracing::error!("the store stops: {why}");
                (why, None)
            }
        };
        // Watchers and waiters learn it before any reply does, so that nobody asks again.
        self.stopped.send_replace(Some(why.clone()));
        self.state.close();
        let mut closers: Vec<_> = closed.into_iter().collect();
        while let Some(request) = requests.recv().await {
            match request {
                Request::Commit(_, reply) => drop(reply.send(Err(CommitError::Stopped(why.clone())))),
                // Who waits learns from its being dropped.
                Request::Rewrite(_) => {}
                Request::Close(done) => closers.push(done),
            }
        }
        drop(self.lock);
        for done in closers {
            let _ = done.send(());
        }
    }

    async fn serve(&mut self, requests: &mut mpsc::Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, Fatal> {
        let mut batch = Vec::new();
        loop {
            let quiet_at = Instant::now() + QUIET;
            let settled = self.settled;
            tokio::select! {
                biased;
                // First, or steady writing would keep it from ever being noticed, and old segments from being removed.
                done = wait(&mut self.checkpoint) => {
                    self.checkpoint_done(done).await?;
                    self.start_checkpoint_if_due().await?;
                    continue;
                }
                taken = requests.recv_many(&mut batch, GROUP_COMMITS_MAX) => if taken == 0 {
                    self.finish().await?;
                    return Ok(None);
                },
                () = tokio::time::sleep_until(quiet_at), if !settled => {
                    self.settle(false).await?;
                    continue;
                }
            }
            let close = self.commit_all(&mut batch).await?;
            if let Some(done) = close {
                self.finish().await?;
                return Ok(Some(done));
            }
            self.start_checkpoint_if_due().await?;
        }
    }

    /// Commits everything in the batch, in as few groups as its size allows. A close comes after what was asked before it.
    async fn commit_all(&mut self, batch: &mut Vec<Request>) -> Result<Option<oneshot::Sender<()>>, Fatal> {
        let mut pending = self.begin();
        let mut requests = std::mem::take(batch).into_iter();
        let mut close = None;
        for request in requests.by_ref() {
            match request {
                Request::Commit(transaction, reply) => self.add(&mut pending, transaction, reply),
                Request::Rewrite(done) => self.rewrites.push(done),
                Request::Close(done) => {
                    close = Some(done);
                    break;
                }
            }
            if pending.group.len() >= GROUP_BYTES_MAX {
                self.write(pending).await?;
                pending = self.begin();
            }
        }
        self.write(pending).await?;
        for request in requests {
            if let Request::Commit(_, reply) = request {
                let _ = reply.send(Err(CommitError::Stopped("it is being closed".into())));
            }
        }
        Ok(close)
    }

    fn begin(&self) -> Pending {
        Pending {
            group: GroupWriter::new(self.head.revision),
            events: Vec::new(),
            replies: Vec::new(),
            sync: false,
            before: self.head.clone(),
        }
    }

    /// Takes one transaction into the group, if its expectations hold against everything before it.
    fn add(&mut self, pending: &mut Pending, transaction: Transaction, reply: Reply) {
        if let Err(error) = transaction.check().and_then(|()| self.head.check(&transaction)) {
            pending.replies.push((reply, Err(error)));
            return;
        }
        let revision = self.head.revision.next();
        pending.group.commit(revision, &transaction.changes, self.options.seal.as_deref());
        pending.sync |= transaction.durability == Durability::Synced;
        let mut objects = Vec::with_capacity(transaction.changes.len());
        for change in transaction.changes {
            let event = self.head.apply(revision, change);
            objects.push(event.next.clone().or_else(|| event.previous.clone()));
            pending.events.push(event);
        }
        pending.replies.push((reply, Ok(Committed { revision, objects })));
    }

    /// Writes a group, makes it durable if it must be, publishes it, then answers.
    async fn write(&mut self, pending: Pending) -> Result<(), Fatal> {
        let mut bells = Vec::new();
        if pending.group.commits() > 0 {
            let commits = u64::from(pending.group.commits());
            let unsynced = self.head.revision.get() - self.durable.get();
            let sync = pending.sync
                || unsynced > u64::from(self.options.relaxed_max)
                || self.unsynced_since.is_some_and(|since| since.elapsed() >= RELAXED_AGE_MAX);
            match self.append(pending.group, sync, false).await {
                Ok(()) => {}
                Err(Failure::Full(error)) => {
                    self.head = pending.before;
                    refuse(pending.replies, &error);
                    return Ok(());
                }
                Err(Failure::Fatal(fatal)) => {
                    for (reply, _) in pending.replies {
                        let _ = reply.send(Err(CommitError::Stopped(fatal.0.clone())));
                    }
                    return Err(fatal);
                }
            }
            self.meters.commits.add(commits);
            bells = self.state.publish(Group { head: self.head.clone(), events: pending.events });
        }
        for (reply, result) in pending.replies {
            let _ = reply.send(result);
        }
        bells.iter().for_each(|bell| bell.ring());
        Ok(())
    }

    async fn append(&mut self, group: GroupWriter, sync: bool, clean: bool) -> Result<(), Failure> {
        let length = group.len() as u64 + 8;
        let fits = self.segment.as_ref().is_some_and(|segment| segment.end + length <= segment.size);
        if !fits {
            self.roll(length).await?;
        }
        let is_mark = group.commits() == 0;
        let (bytes, crc) = group.seal(self.position.chain, self.durable, clean);
        let segment = self.segment.as_mut().expect("rolled if there was none");
        let data = Bytes::from(bytes);
        let length = data.len() as u64;
        let written = if sync {
            self.disk.write_and_sync(&segment.name, segment.end, data).await
        } else {
            self.disk.write(&segment.name, segment.end, data).await.map_err(WriteError::Write)
        };
        match written {
            Ok(()) => {}
            Err(WriteError::Write(error)) if is_full(&error) => {
                // Whatever part was written lies behind the end of the log and is overwritten by the next group.
                return Err(Failure::Full(error));
            }
            Err(WriteError::Write(error)) => return Err(fatal("a write to the log failed", &error)),
            Err(WriteError::Sync(error)) => return Err(fatal("a sync of the log failed", &error)),
        }
        segment.end += length;
        self.written = self.head.revision;
        self.position.chain = crc;
        self.position.log_bytes += length;
        self.meters.bytes.add(length);
        self.unsynced = !sync;
        if sync {
            self.meters.syncs.add(1);
            self.durable = self.written;
            self.unsynced_since = None;
        } else if !is_mark && self.unsynced_since.is_none() {
            self.unsynced_since = Some(Instant::now());
        }
        self.settled = is_mark;
        Ok(())
    }

    /// Begins a new segment. Everything before it is durable.
    async fn roll(&mut self, at_least: u64) -> Result<(), Failure> {
        self.sync_relaxed().await.map_err(Failure::Fatal)?;
        let sequence = self.position.sequence;
        let name = segment_name(sequence);
        let size = self.options.segment_bytes.max(SEGMENT_HEADER as u64 + at_least);
        let previous_end = self.segment.as_ref().map_or(self.position.previous_end, |segment| segment.end);
        let header = SegmentHeader {
            identity: self.position.identity,
            sequence,
            chain: self.position.chain,
            previous_end,
            base: self.written,
        };
        let created = async {
            self.disk.create(&name, size).await?;
            self.disk.write(&name, 0, Bytes::from(header.encode())).await
        };
        if let Err(error) = created.await {
            let removed = super::directory::remove_if_there(&*self.disk, &name).await;
            return match (is_full(&error), removed) {
                (true, Ok(())) => Err(Failure::Full(error)),
                _ => Err(fatal("a segment could not be made", &error)),
            };
        }
        self.disk.sync(&name).await.map_err(|e| fatal("a sync of the log failed", &e))?;
        self.disk.sync_directory().await.map_err(|e| fatal("a sync of the directory failed", &e))?;
        self.meters.syncs.add(1);
        self.position.sequence = sequence + 1;
        self.position.previous_end = 0;
        self.position.log_bytes += SEGMENT_HEADER as u64;
        self.segment = Some(Segment { name, end: SEGMENT_HEADER as u64, size });
        Ok(())
    }

    async fn sync_relaxed(&mut self) -> Result<(), Fatal> {
        if let (true, Some(segment)) = (self.unsynced, &self.segment) {
            self.disk.sync(&segment.name).await.map_err(|e| Fatal(format!("a sync of the log failed: {e}")))?;
            self.meters.syncs.add(1);
        }
        self.unsynced = false;
        self.unsynced_since = None;
        self.durable = self.written;
        Ok(())
    }

    /// Notes in the log that all of it is durable, so that later damage can't pass for a torn tail.
    async fn settle(&mut self, clean: bool) -> Result<(), Fatal> {
        self.sync_relaxed().await?;
        match self.append(GroupWriter::new(self.head.revision), clean, clean).await {
            Ok(()) => Ok(()),
            Err(Failure::Full(_)) => {
                self.settled = true;
                Ok(())
            }
            Err(Failure::Fatal(fatal)) => Err(fatal),
        }
    }

    /// The last write: the log was closed in order.
    async fn finish(&mut self) -> Result<(), Fatal> {
        self.abort_checkpoint().await;
        if self.segment.is_some() { self.settle(true).await } else { Ok(()) }
    }

    /// Nothing is written once the lock is given back. An unfinished checkpoint is only a temporary file.
    async fn abort_checkpoint(&mut self) {
        if let Some(checkpointing) = self.checkpoint.take() {
            checkpointing.task.abort();
            let _ = checkpointing.task.await;
        }
    }

    /// Starts a checkpoint once the log is larger than what it describes: so disk and replay are bounded by live data.
    async fn start_checkpoint_if_due(&mut self) -> Result<(), Fatal> {
        let live = self.head.tables.memory() as u64;
        let asked = !self.rewrites.is_empty();
        let due = asked || self.position.log_bytes >= self.options.checkpoint_bytes.max(live);
        let held_back = !asked && self.checkpoint_not_before.is_some_and(|time| Instant::now() < time);
        if !due || held_back || self.checkpoint.is_some() {
            return Ok(());
        }
        match self.roll(0).await {
            Ok(()) => {}
            Err(Failure::Full(error)) => {
                self.checkpoint_failed(&error);
                answer(std::mem::take(&mut self.rewrites), || Err(io::Error::new(error.kind(), error.to_string())));
                return Ok(());
            }
            Err(Failure::Fatal(fatal)) => return Err(fatal),
        }
        let segment = self.position.sequence - 1;
        let header = CheckpointHeader {
            identity: self.position.identity,
            segment,
            chain: self.position.chain,
            revision: self.durable,
        };
        let (disk, snapshot) = (Arc::clone(&self.disk), Snapshot::new(self.head.clone()));
        let name = checkpoint_name(segment);
        let seal = self.options.seal.clone();
        let task =
            tokio::spawn(async move { checkpoint::write(&*disk, &name, header, &snapshot, seal.as_deref()).await });
        self.position.log_bytes = SEGMENT_HEADER as u64;
        self.checkpoint = Some(Checkpointing { task, segment, rewrites: std::mem::take(&mut self.rewrites) });
        Ok(())
    }

    async fn checkpoint_done(&mut self, result: io::Result<u64>) -> Result<(), Fatal> {
        let (segment, rewrites) = self.checkpoint.take().map_or((0, Vec::new()), |done| (done.segment, done.rewrites));
        match result {
            Ok(bytes) => {
                tracing::debug!(bytes, revision = %self.durable, "checkpoint written");
                self.meters.checkpoints.add(1);
                if let Err(error) = self.remove_before(segment).await {
                    tracing::warn!("files before a checkpoint could not be removed: {error}");
                }
                answer(rewrites, || Ok(()));
                Ok(())
            }
            Err(error) if is_full(&error) => {
                self.checkpoint_failed(&error);
                answer(rewrites, || Err(io::Error::new(error.kind(), error.to_string())));
                Ok(())
            }
            Err(error) => Err(Fatal(format!("a checkpoint could not be written: {error}"))),
        }
    }

    fn checkpoint_failed(&mut self, error: &io::Error) {
        tracing::warn!("no space for a checkpoint: {error}");
        self.position.log_bytes = self.position.log_bytes.max(self.options.checkpoint_bytes);
        self.checkpoint_not_before = Some(Instant::now() + CHECKPOINT_RETRY);
    }

    async fn remove_before(&self, segment: u64) -> io::Result<()> {
        for file in self.disk.list().await? {
            let old = |name: fn(u64) -> String| file.name.len() == name(0).len() && file.name < name(segment);
            let is = |prefix: &str| file.name.starts_with(prefix);
            if is("segment-") && old(segment_name) || is("checkpoint-") && old(checkpoint_name) {
                self.disk.remove(&file.name).await?;
            }
        }
        Ok(())
    }
}

enum Failure {
    /// There was no space; nothing has changed.
    Full(io::Error),
    Fatal(Fatal),
}

fn fatal(what: &str, error: &io::Error) -> Failure {
    Failure::Fatal(Fatal(format!("{what}: {error}")))
}

fn refuse(replies: Vec<(Reply, Result<Committed, CommitError>)>, error: &io::Error) {
    for (reply, _) in replies {
        let _ = reply.send(Err(CommitError::Full(io::Error::new(error.kind(), error.to_string()))));
    }
}

fn answer(rewrites: Vec<Rewritten>, result: impl Fn() -> io::Result<()>) {
    for rewritten in rewrites {
        // Who no longer waits needs no answer.
        let _ = rewritten.send(result());
    }
}

/// The checkpoint under way, or forever.
async fn wait(checkpoint: &mut Option<Checkpointing>) -> io::Result<u64> {
    match checkpoint {
        Some(checkpointing) => (&mut checkpointing.task).await.map_err(io::Error::other)?,
        None => std::future::pending().await,
    }
}
