//! The embedded log: current state in memory; on disk a segmented append-only log and checkpoints.
//!
//! Start at [`writer`] for how a write becomes durable, then [`recovery`] for how it comes back.

mod backup;
mod checkpoint;
mod directory;
mod needed;
mod record;
mod recovery;
mod writer;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use setpoint_api::Revision;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use backup::{RESTORE_JUMP, backup, create_from, read_backup, restore};
pub use directory::{FORMAT, Identity, OpenError};
pub(crate) use record::place;
use recovery::Scope;
pub use recovery::{Report, TornTail};

use crate::change::{CommitError, Committed, Transaction};
use crate::disk::Disk;
use crate::facts::Fields;
use crate::head::Head;
use crate::log::{Figures, Log};
use crate::seal::{Closed, Seal};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::window::WindowBounds;
use checkpoint::CheckpointHeader;
use writer::{Request, Writer};

/// Most transactions that wait for the writer; more wait at the door.
const WAITING_MAX: usize = 4096;

/// How an embedded log behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The identity of a new data directory. Chance is passed in: choose it at random.
    pub identity: Identity,
    /// Size of a segment, reserved when it is made so that a sync writes no metadata.
    pub segment_bytes: u64,
    /// No checkpoint before the log has this size.
    pub checkpoint_bytes: u64,
    /// Most revisions that may be visible and not yet durable. After a crash so many revisions are passed over.
    pub relaxed_max: u32,
    /// How much of the past watchers can resume from.
    pub window: WindowBounds,
    /// Keeps chosen objects unreadable on the disk.
    pub seal: Option<Arc<dyn Seal>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            identity: Identity::default(),
            segment_bytes: 16 * 1024 * 1024,
            checkpoint_bytes: 64 * 1024 * 1024,
            relaxed_max: 4096,
            window: WindowBounds::default(),
            seal: None,
        }
    }
}

/// Counters of the log's work.
#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) commits: Meter,
    pub(crate) bytes: Meter,
    pub(crate) syncs: Meter,
    pub(crate) checkpoints: Meter,
}

#[derive(Default)]
pub(crate) struct Meter(AtomicU64);

impl Meter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The log of one data directory, with the task that writes it.
pub(crate) struct EmbeddedLog {
    requests: mpsc::Sender<Request>,
    stopped: watch::Sender<Option<String>>,
    meters: Arc<Meters>,
    /// Ends by itself once it is closed or has failed.
    _writer: JoinHandle<()>,
}

impl EmbeddedLog {
    /// Opens a data directory, making a new one where there is none, and starts its writer.
    pub(crate) async fn open(
        disk: Arc<dyn Disk>,
        fields: &dyn Fields,
        options: Options,
    ) -> Result<(EmbeddedLog, Arc<State>, Report), OpenError> {
        let lock = lock(&*disk).await?;
        if directory::read(&*disk).await?.is_none() {
            create(&*disk, options.identity, Snapshot::new(Head::default()), None).await?;
        }
        let found = directory::read(&*disk).await?.ok_or_else(|| directory::damaged("format", 0, "it vanished"))?;
        let recovered = recovery::recover(&*disk, found, fields, &options, Scope::Present).await?;
        if let Some(torn) = &recovered.report.torn {
            let (file, offset) = (&torn.file, torn.offset);
            tracing::warn!(file, offset, "a write that a crash cut short was dropped; it had not been acknowledged");
        }
        make_durable(&*disk, &recovered).await?;
        for file in &recovered.obsolete {
            directory::remove_if_there(&*disk, file).await?;
        }
        let state = Arc::new(recovered.state);
        let meters = Arc::new(Meters::default());
        let stopped = watch::Sender::new(None);
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        let writer = Writer::new(
            disk,
            Arc::clone(&state),
            recovered.position,
            options,
            Arc::clone(&meters),
            stopped.clone(),
            lock,
        );
        let writer = tokio::spawn(writer.run(receiver));
        Ok((EmbeddedLog { requests, stopped, meters, _writer: writer }, state, recovered.report))
    }
}

/// What was read may so far only be in the operating system's memory, where a killed process left it: nobody sees it, builds on it
/// or removes what it replaces before it is on the disk.
async fn make_durable(disk: &dyn Disk, recovered: &recovery::Recovered) -> io::Result<()> {
    if recovered.report.segments > 0 {
        disk.sync(&directory::segment_name(recovered.position.sequence - 1)).await?;
    }
    disk.sync_directory().await
}

/// Reads and checks every record of a data directory that nobody has open. Without what opens them, sealed objects are only
/// checked against their checksums.
pub async fn verify(disk: &dyn Disk, fields: &dyn Fields, seal: Option<Arc<dyn Seal>>) -> Result<Report, OpenError> {
    let _lock = lock(disk).await?;
    match directory::read(disk).await? {
        Some(found) => {
            let options = Options { seal: seal.or_else(|| Some(Arc::new(Closed))), ..Options::default() };
            Ok(recovery::recover(disk, found, fields, &options, Scope::Everything).await?.report)
        }
        None => Err(OpenError::Foreign("nothing".into())),
    }
}

async fn lock(disk: &dyn Disk) -> Result<crate::disk::Lock, OpenError> {
    disk.lock().await.map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked,
        _ => OpenError::Io(error),
    })
}

/// Makes a new data directory that begins with a snapshot.
async fn create(
    disk: &dyn Disk,
    identity: Identity,
    snapshot: Snapshot,
    seal: Option<&dyn Seal>,
) -> Result<(), OpenError> {
    let name = directory::checkpoint_name(1);
    let chain = crc32c::crc32c(&identity);
    let header = CheckpointHeader { identity, segment: 1, chain, revision: snapshot.revision() };
    checkpoint::write(disk, &name, header, &snapshot, seal).await?;
    Ok(directory::initialize(disk, identity).await?)
}

impl Log for EmbeddedLog {
    fn commit(
        &self,
        transaction: Transaction,
    ) -> Pin<Box<dyn Future<Output = Result<Committed, CommitError>> + Send + '_>> {
        Box::pin(async move {
            let stopped =
                || CommitError::Stopped(self.stopped.borrow().clone().unwrap_or_else(|| "it was closed".into()));
            let (reply, answer) = oneshot::channel();
            self.requests.send(Request::Commit(transaction, reply)).await.map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())?
        })
    }

    fn rewrite(&self) -> Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send + '_>> {
        Box::pin(async move {
            let (done, rewritten) = oneshot::channel();
            let stopped =
                || CommitError::Stopped(self.stopped.borrow().clone().unwrap_or_else(|| "it was closed".into()));
            self.requests.send(Request::Rewrite(done)).await.map_err(|_| stopped())?;
            rewritten.await.map_err(|_| stopped())?.map_err(CommitError::Full)
        })
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let (done, closed) = oneshot::channel();
            if self.requests.send(Request::Close(done)).await.is_ok() {
                let _ = closed.await;
            }
        })
    }

    fn stopped(&self) -> watch::Receiver<Option<String>> {
        self.stopped.subscribe()
    }

    fn figures(&self) -> Figures {
        Figures {
            commits: self.meters.commits.get(),
            bytes_written: self.meters.bytes.get(),
            syncs: self.meters.syncs.get(),
            checkpoints: self.meters.checkpoints.get(),
        }
    }
}

/// The revision that a snapshot restored from a backup begins with.
pub(crate) fn jumped(revision: Revision) -> Revision {
    Revision::new(revision.get() + RESTORE_JUMP)
}
