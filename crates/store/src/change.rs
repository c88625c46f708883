//! What a writer asks for, under which condition, and what it is told.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use setpoint_api::Revision;

use crate::facts::{Facts, FactsError, Fields};
use crate::key::Key;
use crate::object::Object;

/// Largest JSON of one object. A request body is at most 3 MiB; fields added on the way in fit into the rest.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most changes in one transaction. Transactions join an object with what must appear beside it (a Service and its
/// addresses); bulk work is many transactions.
pub const CHANGES_MAX: usize = 64;

/// What must be true of a key for its change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// There is no such object.
    Absent,
    /// The object is there and was last changed at this revision.
    Unchanged(Revision),
    /// Whatever is there.
    Any,
}

/// Whether a change must be on the disk before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged and visible only once it is durable.
    #[default]
    Synced,
    /// Needs no sync of its own: written and visible at once, durable with the next sync. A power cut may lose it; a crash of
    /// the process does not. For Events.
    Relaxed,
}

/// One put or delete of one key.
pub struct Change {
    pub(crate) key: Key,
    pub(crate) expectation: Expectation,
    pub(crate) next: Option<Draft>,
}

/// An object that has not got its revision yet.
pub(crate) struct Draft {
    pub(crate) plain: Vec<u8>,
    pub(crate) insert_at: usize,
    pub(crate) facts: Facts,
}

impl Draft {
    pub(crate) fn read(key: &Key, plain: Vec<u8>, fields: &dyn Fields) -> Result<Draft, FactsError> {
        let (facts, insert_at) = crate::facts::read(key.resource(), &plain, fields)?;
        Ok(Draft { plain, insert_at, facts })
    }

    /// The same for what is known to be the JSON of an object, because it was stored.
    pub(crate) fn stored(key: &Key, plain: Vec<u8>, fields: &dyn Fields) -> Result<Draft, FactsError> {
        let (facts, insert_at) = crate::facts::read_stored(key.resource(), &plain, fields)?;
        Ok(Draft { plain, insert_at, facts })
    }
}

impl Change {
    /// Stores `json` under `key`. The JSON has `metadata` without a resourceVersion: the store writes it.
    pub fn put(key: Key, expectation: Expectation, json: Vec<u8>, fields: &dyn Fields) -> Result<Change, FactsError> {
        let draft = Draft::read(&key, json, fields)?;
        Ok(Change { key, expectation, next: Some(draft) })
    }

    /// The same for an object whose facts are at hand, so that its JSON needn't be read again. `insert_at` is right behind the
    /// brace with which `metadata` begins; there is something in it, and no resourceVersion.
    pub fn put_known(key: Key, expectation: Expectation, json: Vec<u8>, insert_at: usize, facts: Facts) -> Change {
        assert!(insert_at > 0 && json[insert_at - 1] == b'{' && json[insert_at] == b'"', "not inside of metadata");
        Change { key, expectation, next: Some(Draft { plain: json, insert_at, facts }) }
    }

    /// Removes the object under `key`.
    pub fn delete(key: Key, expectation: Expectation) -> Change {
        Change { key, expectation, next: None }
    }
}

/// What must be true of an object that a transaction doesn't change, for it to happen.
pub(crate) struct Condition {
    pub(crate) key: Key,
    pub(crate) holds: Holds,
}

/// Judges the object under a key at the moment of the commit; none if there is none.
type Holds = Box<dyn Fn(Option<&Object>) -> bool + Send + Sync>;

/// Changes that happen together or not at all, at one revision. The keys are distinct.
#[derive(Default)]
pub struct Transaction {
    pub(crate) changes: Vec<Change>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) durability: Durability,
    pub(crate) kept_for: Option<Duration>,
}

impl Transaction {
    /// One change.
    pub fn of(change: Change) -> Transaction {
        Transaction { changes: vec![change], ..Transaction::default() }
    }

    /// Adds a change.
    pub fn and(mut self, change: Change) -> Transaction {
        self.changes.push(change);
        self
    }

    /// Makes it happen only if this holds of the object under `key` when it is committed: no change comes in between.
    /// `holds` runs where all commits queue, so it must be quick.
    pub fn provided(
        mut self,
        key: Key,
        holds: impl Fn(Option<&Object>) -> bool + Send + Sync + 'static,
    ) -> Transaction {
        self.conditions.push(Condition { key, holds: Box::new(holds) });
        self
    }

    /// The same transaction with this durability.
    pub fn durability(mut self, durability: Durability) -> Transaction {
        self.durability = durability;
        self
    }

    /// What it puts needs to be kept for this time only. A log that [expires](crate::Store::expires) objects removes them then.
    pub fn kept_for(mut self, time: Duration) -> Transaction {
        self.kept_for = Some(time);
        self
    }

    /// Checks the transaction against its bounds.
    pub(crate) fn check(&self) -> Result<(), CommitError> {
        let distinct = self.changes.iter().enumerate().all(|(i, c)| self.changes[..i].iter().all(|d| d.key != c.key));
        if self.changes.is_empty() || self.changes.len() > CHANGES_MAX || !distinct {
            return Err(CommitError::Malformed("a transaction has 1 to 64 changes of distinct keys"));
        }
        match self.changes.iter().find(|c| c.next.as_ref().is_some_and(|d| d.plain.len() > OBJECT_BYTES_MAX)) {
            Some(change) => Err(CommitError::TooLarge { key: change.key.clone(), limit: OBJECT_BYTES_MAX }),
            None => Ok(()),
        }
    }
}

/// A transaction that happened.
#[derive(Debug)]
pub struct Committed {
    /// Its revision.
    pub revision: Revision,
    /// For each change in order: the object as stored, or for a delete the object that was removed (none was there: `None`).
    pub objects: Vec<Option<Arc<Object>>>,
}

/// Why a transaction did not happen.
#[derive(Debug)]
pub enum CommitError {
    /// Expected at one revision, found at another.
    Conflict {
        /// The key that did not meet its expectation.
        key: Key,
        /// What was expected.
        expected: Revision,
        /// The object as it is now.
        actual: Arc<Object>,
    },
    /// Expected absent, found there.
    Exists {
        /// The key.
        key: Key,
        /// The object that is there.
        actual: Arc<Object>,
    },
    /// Expected there, found absent.
    Missing {
        /// The key.
        key: Key,
    },
    /// A condition on an object beside those that change doesn't hold.
    Unmet {
        /// The key of that object.
        key: Key,
        /// The object as it is now, if there is one.
        actual: Option<Arc<Object>>,
    },
    /// The object is larger than the store takes.
    TooLarge {
        /// The key.
        key: Key,
        /// The limit in bytes.
        limit: usize,
    },
    /// The transaction itself is wrong.
    Malformed(&'static str),
    /// No space left: nothing was written, reads go on, and writes do again as soon as there is space.
    Full(io::Error),
    /// The log refuses it, in words that clients of etcd know: there is no space left, or a request has too many operations.
    Refused(String),
    /// The log can't be reached. Nothing was written.
    Unavailable(String),
    /// The log was lost while it wrote. Whether this transaction happened is unknown.
    Unknown(String),
    /// The log has stopped, by request or because the disk failed. Whether this transaction is durable is unknown until the
    /// next start.
    Stopped(String),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Conflict { key, expected, actual } => {
                write!(f, "{key} was expected at revision {expected} and is at {}", actual.revision())
            }
            CommitError::Exists { key, .. } => write!(f, "{key} already exists"),
            CommitError::Missing { key } => write!(f, "{key} does not exist"),
            CommitError::Unmet { key, .. } => write!(f, "{key} is not as the transaction needs it"),
            CommitError::TooLarge { key, limit } => write!(f, "{key} is larger than {limit} bytes"),
            CommitError::Malformed(why) => f.write_str(why),
            CommitError::Full(error) => write!(f, "no space left for the store: {error}"),
            CommitError::Refused(why) => f.write_str(why),
            CommitError::Unavailable(why) => write!(f, "the store can't be reached: {why}"),
            CommitError::Unknown(why) => write!(f, "the write may or may not have happened: {why}"),
            CommitError::Stopped(why) => write!(f, "the store has stopped: {why}"),
        }
    }
}

impl std::error::Error for CommitError {}
