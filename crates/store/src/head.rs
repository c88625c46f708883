//! The state that the next change is checked against: ahead of what readers see by the changes under way.

use std::sync::Arc;

use setpoint_api::Revision;

use crate::change::{Change, CommitError, Expectation, Transaction};
use crate::object::Object;
use crate::table::Tables;
use crate::window::Event;

/// Tables with every accepted change in them, durable or not yet.
#[derive(Clone, Default)]
pub(crate) struct Head {
    pub(crate) tables: Tables,
    pub(crate) revision: Revision,
}

impl Head {
    /// Whether all expectations of a transaction hold.
    pub(crate) fn check(&self, transaction: &Transaction) -> Result<(), CommitError> {
        transaction.changes.iter().try_for_each(|change| self.check_one(change))
    }

    fn check_one(&self, change: &Change) -> Result<(), CommitError> {
        let key = || change.key.clone();
        match (change.expectation, self.tables.get(&change.key)) {
            (Expectation::Any, _) | (Expectation::Absent, None) => Ok(()),
            (Expectation::Absent, Some(actual)) => Err(CommitError::Exists { key: key(), actual: Arc::clone(actual) }),
            (Expectation::Unchanged(_), None) => Err(CommitError::Missing { key: key() }),
            (Expectation::Unchanged(expected), Some(actual)) if actual.revision() != expected => {
                Err(CommitError::Conflict { key: key(), expected, actual: Arc::clone(actual) })
            }
            (Expectation::Unchanged(_), Some(_)) => Ok(()),
        }
    }

    /// Makes the change at `revision`, which is newer than all before.
    pub(crate) fn apply(&mut self, revision: Revision, change: Change) -> Arc<Event> {
        debug_assert!(revision >= self.revision);
        self.revision = revision;
        let next = change.next.map(|d| Arc::new(Object::new(&d.plain, d.insert_at, d.facts, revision)));
        let previous = self.tables.set(&change.key, next.clone());
        Arc::new(Event { key: change.key, revision, previous, next })
    }
}
