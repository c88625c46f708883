//! The store: one log, and everything that reads from it.

use std::sync::Arc;

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;
use tokio::sync::watch;

use crate::change::{CommitError, Committed, Transaction};
use crate::disk::Disk;
use crate::embedded::{EmbeddedLog, OpenError, Options, Report};
use crate::etcd::{EtcdError, EtcdLog, EtcdOptions};
use crate::facts::Fields;
use crate::log::{EtcdFigures, Figures, Log, Unavailable};
use crate::snapshot::Snapshot;
use crate::state::{Expired, State};
use crate::watch::{WatchError, WatchRequest, Watcher};

/// An ordered, durable, watchable set of objects. Clones share it.
#[derive(Clone)]
pub struct Store {
    log: Arc<dyn Log>,
    state: Arc<State>,
    fields: Arc<dyn Fields>,
}

impl Store {
    /// Opens the embedded store in a data directory, making a new one where there is none.
    pub async fn open(
        disk: Arc<dyn Disk>,
        fields: Arc<dyn Fields>,
        options: Options,
    ) -> Result<(Store, Report), OpenError> {
        let (log, state, report) = EmbeddedLog::open(disk, &*fields, options).await?;
        Ok((Store { log: Arc::new(log), state, fields }, report))
    }

    /// Opens the store under a prefix of an etcd cluster, which any number of others may use too. Also says how many objects should
    /// be sealed and are not.
    pub async fn open_etcd(fields: Arc<dyn Fields>, options: EtcdOptions) -> Result<(Store, usize), EtcdError> {
        let (log, state, unsealed) = EtcdLog::open(Arc::clone(&fields), options).await?;
        Ok((Store { log: Arc::new(log), state, fields }, unsealed))
    }

    /// Commits if all expectations hold. The answer comes when the transaction is durable and visible to readers.
    pub async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.log.commit(transaction).await
    }

    /// Writes everything anew, and removes what was written before: what should be sealed is, with the present key.
    pub async fn rewrite(&self) -> Result<(), CommitError> {
        self.log.rewrite().await
    }

    /// Everything as of the newest durable revision. Costs O(1) and never waits for a writer's sync.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot()
    }

    /// Everything of one resource as it was at an earlier revision, as far back as the window or a kept root reaches.
    pub fn snapshot_at(&self, resource: &GroupResource, revision: Revision) -> Result<Snapshot, Expired> {
        self.state.snapshot_at(resource, revision)
    }

    /// Keeps a snapshot for later pages of a list that began with it.
    pub fn keep(&self, snapshot: &Snapshot) {
        self.state.keep(snapshot);
    }

    /// Follows a resource from a revision on.
    pub fn watch(&self, request: WatchRequest) -> Result<Watcher, WatchError> {
        Watcher::new(Arc::clone(&self.state), request)
    }

    /// Waits until the newest visible revision is at least `revision`.
    pub async fn reached(&self, revision: Revision) {
        let mut revisions = self.state.revisions();
        let is_there = async {
            // The sender lives as long as the state, which this borrows.
            let _ = revisions.wait_for(|newest| *newest >= revision).await;
        };
        match self.log.seek(revision) {
            None => is_there.await,
            Some(seeking) => tokio::select! {
                biased;
                () = is_there => {}
                () = seeking => {}
            },
        }
    }

    /// Waits until everything is visible that was committed before the call, by this server or another. None where others can't
    /// commit: what is visible is always the newest.
    pub fn fresh(&self) -> Option<impl Future<Output = Result<(), Unavailable>> + Send + '_> {
        self.log.fresh()
    }

    /// Whether what is behind the store can be reached and has nothing to complain about.
    pub fn health(&self) -> Result<(), String> {
        self.log.health()
    }

    /// Whether objects of transactions that are [kept for](Transaction::kept_for) a time are removed by the store itself.
    pub fn expires(&self) -> bool {
        self.log.expires()
    }

    /// What is known of the etcd behind the store, if there is one.
    pub fn etcd(&self) -> Option<EtcdFigures> {
        self.log.etcd()
    }

    /// Forgets the past up to a revision: watches and lists from before it are told that it expired.
    pub fn compact(&self, revision: Revision) {
        self.state.compact(revision);
    }

    /// What objects can be selected by.
    pub fn fields(&self) -> &dyn Fields {
        &*self.fields
    }

    /// Why the store has stopped, once it has: by request, or because the disk failed.
    pub fn stopped(&self) -> watch::Receiver<Option<String>> {
        self.log.stopped()
    }

    /// Answers what is waiting, then stops. The data directory is free when this returns.
    pub async fn close(&self) {
        self.log.close().await;
    }

    /// Counters since it was opened.
    pub fn figures(&self) -> Figures {
        self.log.figures()
    }
}
