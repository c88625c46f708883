//! The state that the next change is checked against: ahead of what readers see by the changes under way.

use std::sync::Arc;

use setpoint_api::Revision;

use crate::change::{Change, CommitError, Condition, Expectation, Transaction};
use crate::key::Key;
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
        transaction.conditions.iter().try_for_each(|condition| self.check_condition(condition))?;
        transaction.changes.iter().try_for_each(|change| self.check_one(change))
    }

    fn check_condition(&self, condition: &Condition) -> Result<(), CommitError> {
        let actual = self.tables.get(&condition.key);
        match (condition.holds)(actual.map(|object| &**object)) {
            true => Ok(()),
            false => Err(CommitError::Unmet { key: condition.key.clone(), actual: actual.cloned() }),
        }
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
        let next = change.next.map(|d| Arc::new(Object::new(&d.plain, d.insert_at, d.facts, revision)));
        self.set(revision, change.key, next)
    }

    /// The same for an object that is made already.
    pub(crate) fn set(&mut self, revision: Revision, key: Key, next: Option<Arc<Object>>) -> Arc<Event> {
        debug_assert!(revision >= self.revision);
        self.revision = revision;
        let previous = self.tables.set(&key, next.clone());
        Arc::new(Event { key, revision, previous, next })
    }
}

#[cfg(test)]
mod tests {
    use setpoint_api::GroupResource;

    use super::*;
    use crate::facts::NoFields;

    #[test]
    fn a_condition_on_another_object_is_judged_at_the_commit() {
        let key = |name: &str| Key::cluster(GroupResource::new("", "things"), name);
        let put = |name: &str| {
            let json = br#"{"metadata":{"name":"a"}}"#.to_vec();
            Change::put(key(name), Expectation::Any, json, &NoFields).unwrap()
        };
        let mut head = Head::default();
        let if_there = || Transaction::of(put("b")).provided(key("a"), |found| found.is_some());
        let refused = head.check(&if_there()).unwrap_err();
        assert!(matches!(refused, CommitError::Unmet { actual: None, .. }), "{refused}");
        head.apply(Revision::new(1), put("a"));
        head.check(&if_there()).unwrap();
        let refused = head.check(&Transaction::of(put("b")).provided(key("a"), |found| found.is_none())).unwrap_err();
        assert!(matches!(&refused, CommitError::Unmet { actual: Some(actual), .. } if actual.revision().get() == 1));
    }
}
