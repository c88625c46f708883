//! The ordered truth: every write in one order, durable before anyone sees it.
//!
//! Invariants
//! - A revision is handed to a reader or a watcher only after it is durable. The one exception is asked for by the writer
//!   ([`Durability::Relaxed`]); a revision lost that way is never used again, and who saw it is told to list again.
//! - An acknowledged write is never lost; one that was not is there whole or not at all.
//! - Readers never wait for the disk: they read persistent maps that writers swap.
//! - This crate never reads the wall clock, draws no random numbers, starts no thread, opens sockets only to the etcd that it is
//!   given, and touches files only through [`Disk`].
//!
//! Start at [`Store`], then [`Snapshot`] and [`Watcher`]; below them the two logs, `embedded` and `etcd`.

mod bell;
mod change;
mod disk;
mod embedded;
mod etcd;
mod facts;
mod head;
mod key;
mod log;
mod object;
mod seal;
mod selection;
mod snapshot;
mod state;
mod store;
mod table;
mod watch;
mod window;

pub use change::{CHANGES_MAX, Change, CommitError, Committed, Durability, Expectation, OBJECT_BYTES_MAX, Transaction};
pub use disk::{Disk, Fault, FileInfo, Io, Lock, MemoryDisk, RealDisk, WriteError};
pub use embedded::{
    FORMAT, Identity, OpenError, Options, RESTORE_JUMP, Report, TornTail, backup, create_from, read_backup, restore,
    verify,
};
pub use etcd::{COMPACT_EVERY, Endpoint, EtcdError, EtcdFiles, EtcdOptions, EtcdReport, EtcdTls, fill, verify_etcd};
pub use facts::{Facts, FactsError, FieldNames, Fields, NoFields};
pub use key::Key;
pub use log::{EtcdFigures, Figures, Unavailable};
pub use object::Object;
pub use seal::Seal;
pub use selection::Selection;
pub use snapshot::{Mark, Page, Query, Snapshot};
pub use state::{Expired, KEPT_ROOT_AGE, KEPT_ROOTS_MAX};
pub use store::Store;
pub use watch::{BATCH_EVENTS_MAX, WatchError, WatchEvent, WatchKind, WatchRequest, Watcher};
pub use window::{Event, LARGE_BYTES, WindowBounds};
