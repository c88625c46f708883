//! A transaction on its way to etcd and back.
//!
//! It is answered when the feed has brought it back, so whoever is told of a write can read it. If the answer of etcd is lost, a
//! [`Fence`] decides: either the feed has shown the transaction before it, or it never happens and is sent again. Only when etcd
//! stays away for too long, the outcome is told as unknown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use setpoint_api::Revision;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::feed::MARKER;
use super::fence::Fence;
use super::freshness;
use super::grpc::CallError;
use super::keys::{Tag, value};
use super::messages::{Compare, Operation, TXN, TxnRequest, TxnResponse, revision};
use crate::change::{CommitError, Committed, Draft, Expectation, Transaction};
use crate::head::Head;
use crate::key::Key;
use crate::object::Object;
use crate::window::Event;

/// How long a transaction may take altogether, lost answers and elections of etcd included.
const COMMIT_MAX: Duration = Duration::from_secs(20);

/// How long a member may take for one.
const CALL_MAX: Duration = Duration::from_secs(8);

/// How long it is tried to reach any member.
const REACH_MAX: Duration = Duration::from_secs(2);

/// Pause before it is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// Largest request that etcd takes unless it was told otherwise.
const REQUEST_BYTES_MAX: usize = 1536 * 1024;

/// Markers of all processes share so many keys: they are only read as they come.
const MARKERS: u8 = 64;

/// A transaction that the feed may bring back.
pub(super) struct Pending {
    transaction: Arc<Transaction>,
    done: oneshot::Sender<Committed>,
}

impl Pending {
    /// What it puts under a key.
    pub(super) fn draft(&self, key: &Key) -> Option<&Draft> {
        self.transaction.changes.iter().find(|change| change.key == *key)?.next.as_ref()
    }

    /// Whom to tell what, once it has come back as these events.
    pub(super) fn answer(self, revision: Revision, events: &[Arc<Event>]) -> (oneshot::Sender<Committed>, Committed) {
        let object = |key: &Key| {
            let event = events.iter().find(|event| event.key == *key)?;
            event.next.clone().or_else(|| event.previous.clone())
        };
        let objects = self.transaction.changes.iter().map(|change| object(&change.key)).collect();
        (self.done, Committed { revision, objects })
    }
}

/// Commits if all expectations hold.
pub(super) async fn commit(shared: &Shared, transaction: Transaction) -> Result<Committed, CommitError> {
    transaction.check()?;
    let _place = shared.under_way.acquire().await.map_err(|_| CommitError::Stopped("it was closed".into()))?;
    let began = Instant::now();
    let deadline = began + COMMIT_MAX;
    let puts = transaction.changes.iter().any(|change| change.next.is_some());
    let lease = match transaction.kept_for.filter(|_| puts) {
        Some(time) => shared.leases.of(&shared.channel, time, REACH_MAX).await.map_err(refused)?,
        None => 0,
    };
    let transaction = Arc::new(transaction);
    loop {
        if let Some(why) = &*shared.stopped.borrow() {
            return Err(CommitError::Stopped(why.clone()));
        }
        match attempt(shared, &transaction, lease, deadline).await {
            Attempt::Done(result) => return result,
            Attempt::Again => {}
            Attempt::Unreached(error) if began.elapsed() < REACH_MAX => {
                tracing::debug!(%error, "etcd could not be reached for a write");
                tokio::time::sleep(PAUSE).await;
            }
            Attempt::Unreached(error) => return Err(CommitError::Unavailable(error.to_string())),
        }
        if Instant::now() >= deadline {
            return Err(CommitError::Unavailable("etcd has too much to do".into()));
        }
    }
}

enum Attempt {
    Done(Result<Committed, CommitError>),
    /// It has not happened, and may the next time.
    Again,
    /// It was not sent.
    Unreached(CallError),
}

async fn attempt(shared: &Shared, transaction: &Arc<Transaction>, lease: i64, deadline: Instant) -> Attempt {
    let conditions = match conditions(shared, transaction).await {
        Ok(conditions) => conditions,
        Err(error) => return Attempt::Done(Err(error)),
    };
    let generation = shared.fence.generation();
    let (mut sent, tag) = Sent::new(shared, transaction);
    let request = request(shared, transaction, conditions, generation, tag, lease);
    let bytes = prost::Message::encoded_len(&request);
    let answer: Result<TxnResponse, CallError> = shared.channel.call(TXN, &request, CALL_MAX).await;
    match answer {
        Ok(answer) if answer.succeeded => {
            shared.commits.fetch_add(1, Ordering::Relaxed);
            shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            Attempt::Done(sent.seen(revision(answer.header.as_ref()), deadline).await)
        }
        Ok(answer) => judge(shared, transaction, revision(answer.header.as_ref()), deadline).await,
        Err(error) if error.is_final() => {
            Attempt::Done(Err(too_large(transaction, bytes, &error).unwrap_or(refused(error))))
        }
        Err(error) if error.is_undone() => Attempt::Unreached(error),
        Err(error) => sent.resolve(generation, &error, deadline).await,
    }
}

/// The answer for a transaction that etcd did not do: what it did not expect, as of a state that is at least as new.
async fn judge(shared: &Shared, transaction: &Transaction, at: i64, deadline: Instant) -> Attempt {
    if let Err(error) = freshness::reach(shared, at, deadline).await {
        return Attempt::Done(Err(CommitError::Unavailable(error.0)));
    }
    match shared.state.snapshot().head().check(transaction) {
        Err(error) => Attempt::Done(Err(error)),
        // It was changed back, or a fence was raised.
        Ok(()) => Attempt::Again,
    }
}

/// What must not change until the transaction is done, for its conditions to hold.
async fn conditions(shared: &Shared, transaction: &Transaction) -> Result<Vec<Compare>, CommitError> {
    if transaction.conditions.is_empty() {
        return Ok(Vec::new());
    }
    let unmet = |head: &Head| {
        transaction
            .conditions
            .iter()
            .any(|condition| !(condition.holds)(head.tables.get(&condition.key).map(|object| &**object)))
    };
    let mut snapshot = shared.state.snapshot();
    if unmet(snapshot.head()) {
        // It may only be so because the feed is behind.
        let at = freshness::newest(shared).await.map_err(|error| CommitError::Unavailable(error.to_string()))?;
        let deadline = Instant::now() + CALL_MAX;
        freshness::reach(shared, at, deadline).await.map_err(|error| CommitError::Unavailable(error.0))?;
        snapshot = shared.state.snapshot();
        for condition in &transaction.conditions {
            let actual = snapshot.head().tables.get(&condition.key);
            if !(condition.holds)(actual.map(|object| &**object)) {
                return Err(CommitError::Unmet { key: condition.key.clone(), actual: actual.cloned() });
            }
        }
    }
    let tables = &snapshot.head().tables;
    let compare = |key: &Key| {
        let at = tables.get(key).map_or(0, |object| shared.format.of_etcd(object.revision()));
        Compare::changed_at(shared.keys.of(key), at)
    };
    Ok(transaction.conditions.iter().map(|condition| compare(&condition.key)).collect())
}

fn request(
    shared: &Shared,
    transaction: &Transaction,
    mut compare: Vec<Compare>,
    generation: u64,
    tag: Tag,
    lease: i64,
) -> TxnRequest {
    compare.push(Fence::condition(shared, generation));
    let mut success = Vec::with_capacity(transaction.changes.len() + 1);
    if transaction.changes.iter().all(|change| change.next.is_none()) {
        let marker = shared.keys.own(&format!("{MARKER}{}", shared.identity[0] % MARKERS));
        success.push(Operation::put(marker, tag.bytes(), 0));
    }
    for change in &transaction.changes {
        let key = shared.keys.of(&change.key);
        match change.expectation {
            Expectation::Any => {}
            Expectation::Absent => compare.push(Compare::changed_at(key.clone(), 0)),
            Expectation::Unchanged(at) => compare.push(Compare::changed_at(key.clone(), shared.format.of_etcd(at))),
        }
        success.push(match &change.next {
            Some(draft) => {
                let value = value(&change.key, (&draft.plain, &[]), tag, shared.seal.as_deref());
                Operation::put(key, value, lease)
            }
            None => Operation::delete(key),
        });
    }
    TxnRequest { compare, success, failure: Vec::new() }
}

/// A transaction that was sent. The feed is not asked for it any more when this is dropped.
struct Sent<'a> {
    shared: &'a Shared,
    transaction: &'a Arc<Transaction>,
    /// What its keys held shortly before.
    before: Vec<Option<Arc<Object>>>,
    tag: Tag,
    done: oneshot::Receiver<Committed>,
}

impl<'a> Sent<'a> {
    fn new(shared: &'a Shared, transaction: &'a Arc<Transaction>) -> (Sent<'a>, Tag) {
        let tag = Tag::new(&shared.identity, shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, done) = oneshot::channel();
        let snapshot = shared.state.snapshot();
        let before =
            transaction.changes.iter().map(|change| snapshot.head().tables.get(&change.key).cloned()).collect();
        shared.pending().insert(tag, Pending { transaction: Arc::clone(transaction), done: sender });
        (Sent { shared, transaction, before, tag, done }, tag)
    }

    /// The answer to one that etcd did at a revision, once the feed has brought it back.
    async fn seen(&mut self, at: i64, deadline: Instant) -> Result<Committed, CommitError> {
        match timeout_at(deadline, &mut self.done).await {
            Ok(Ok(committed)) => Ok(committed),
            // The feed began anew, behind it: it is visible, but not as an event.
            Ok(Err(_)) => Ok(self.made_at(self.shared.format.revision(at))),
            Err(_) => Err(CommitError::Unknown("etcd did it, and then could not be followed".into())),
        }
    }

    /// Finds out what became of one whose answer was lost.
    async fn resolve(&mut self, generation: u64, why: &CallError, deadline: Instant) -> Attempt {
        let shared = self.shared;
        let unknown = |error: &dyn std::fmt::Display| Attempt::Done(Err(CommitError::Unknown(error.to_string())));
        tracing::debug!(%why, "the answer to a write was lost; finding out what became of it");
        let fence = match Fence::raise(shared, generation, deadline).await {
            Ok(fence) => fence,
            Err(error) => return unknown(&error),
        };
        if let Err(error) = freshness::reach(shared, fence, deadline).await {
            return unknown(&error);
        }
        if shared.pending().contains_key(&self.tag) {
            return Attempt::Again;
        }
        match timeout_at(deadline, &mut self.done).await {
            Ok(Ok(committed)) => Attempt::Done(Ok(committed)),
            Ok(Err(_)) => unknown(&"etcd has forgotten what happened"),
            Err(_) => unknown(why),
        }
    }

    /// What was committed, as far as it is known without events.
    fn made_at(&self, revision: Revision) -> Committed {
        let object = |(at, before): (usize, &Option<Arc<Object>>)| match &self.transaction.changes[at].next {
            Some(draft) => Some(Arc::new(Object::new(&draft.plain, draft.insert_at, draft.facts.clone(), revision))),
            None => before.clone(),
        };
        Committed { revision, objects: self.before.iter().enumerate().map(object).collect() }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.shared.pending().remove(&self.tag);
    }
}

/// The object that is too large for etcd, if that is what it says.
fn too_large(transaction: &Transaction, bytes: usize, error: &CallError) -> Option<CommitError> {
    if !error.says("request is too large") && !error.says("larger than max") {
        return None;
    }
    let size = |at: &usize| transaction.changes[*at].next.as_ref().map_or(0, |draft| draft.plain.len());
    let largest = (0..transaction.changes.len()).max_by_key(size)?;
    let limit = REQUEST_BYTES_MAX.min(bytes);
    Some(CommitError::TooLarge { key: transaction.changes[largest].key.clone(), limit })
}

fn refused(error: CallError) -> CommitError {
    match error.is_final() {
        true => CommitError::Refused(error.to_string()),
        false => CommitError::Unavailable(error.to_string()),
    }
}
