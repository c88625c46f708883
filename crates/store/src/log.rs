//! The seam between what orders and keeps changes, and everything that reads them.

use std::future::Future;
use std::pin::Pin;

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

    /// Why the log has stopped, once it has.
    fn stopped(&self) -> watch::Receiver<Option<String>>;

    /// Counters since it was opened.
    fn figures(&self) -> Figures;
}
