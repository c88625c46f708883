//! The seam between what orders and keeps changes, and everything that reads them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use setpoint_api::Revision;
use tokio::sync::watch;

use crate::change::{CommitError, Committed, Transaction};

/// Counters of a log's work since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Transactions committed.
    pub commits: u64,
    /// Bytes written to the log.
    pub bytes_written: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
}

/// What is known of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdFigures {
    /// Whether it answered when it was last asked.
    pub reachable: bool,
    /// Bytes of the database of the member that was asked, and of these the ones in use: the rest goes with a defragmentation.
    pub database_bytes: u64,
    /// The bytes in use.
    pub database_bytes_in_use: u64,
    /// Alarms that are raised, by their names.
    pub alarms: Vec<&'static str>,
    /// How often the feed has begun, with the next member or the same.
    pub feed_starts: u64,
    /// Writes whose answer was lost, and whose outcome had to be found out.
    pub resolved_writes: u64,
}

/// The log can't be reached, so nobody knows what is newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store can't be reached: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Something that a log is waited for.
pub(crate) type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Puts changes in one order and makes them durable.
///
/// Its feed is the `State` that its constructor returns: the log publishes each group of commits there, in order, once it is
/// durable, and answers the committer only after that.
pub(crate) trait Log: Send + Sync + 'static {
    /// Commits if all expectations hold. The answer comes when the transaction is durable and visible.
    fn commit(
        &self,
        transaction: Transaction,
    ) -> Pin<Box<dyn Future<Output = Result<Committed, CommitError>> + Send + '_>>;

    /// Writes everything anew, and removes what was written before.
    fn rewrite(&self) -> Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send + '_>>;

    /// Answers what is waiting, then stops.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Waits until everything is visible that was committed before the call, by anybody. None where that is always so.
    fn fresh(&self) -> Option<Waiting<'_, Result<(), Unavailable>>> {
        None
    }

    /// Helps to get to a revision that was seen elsewhere, for as long as it is polled. None where there is no elsewhere.
    fn seek(&self, _: Revision) -> Option<Waiting<'_, ()>> {
        None
    }

    /// Whether it can be reached and has nothing to complain about.
    fn health(&self) -> Result<(), String> {
        match &*self.stopped().borrow() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Whether it removes what is [kept for](Transaction::kept_for) a time only.
    fn expires(&self) -> bool {
        false
    }

    /// What is known of the etcd behind it.
    fn etcd(&self) -> Option<EtcdFigures> {
        None
    }

    /// Why the log has stopped, once it has.
    fn stopped(&self) -> watch::Receiver<Option<String>>;

    /// Counters since it was opened.
    fn figures(&self) -> Figures;
}
