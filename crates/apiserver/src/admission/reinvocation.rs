//! Whether what was asked before is asked again, because an object changed afterwards.

use std::collections::HashSet;

use serde_json::Value;

/// What one sort of plugin knows of the rounds of a request.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether this is the second round.
    second: bool,
    /// Those that were asked and want to be asked again if the object changes.
    asked: HashSet<String>,
    /// Those that are asked again.
    again: HashSet<String>,
    /// The object as they left it.
    left: Option<Value>,
}

impl Rounds {
    /// Begins the second round, with the object as it is now.
    fn begin_second(&mut self, object: &Value) {
        self.second = true;
        if self.left.as_ref().is_some_and(|left| left != object) {
            self.require();
        }
    }

    /// The object changed: who was asked before is asked again.
    pub(super) fn require(&mut self) {
        self.again.extend(self.asked.drain());
    }

    /// Whether one is asked in this round.
    pub(super) fn asks(&self, id: &str) -> bool {
        !self.second || self.again.contains(id)
    }

    /// Remembers one that wants to be asked again.
    pub(super) fn remember(&mut self, id: &str) {
        self.asked.insert(id.to_owned());
    }

    /// Remembers the object as it is left.
    pub(super) fn leave(&mut self, object: Option<&Value>) {
        self.left = object.cloned();
    }

    pub(super) fn number(&self) -> usize {
        usize::from(self.second)
    }
}

/// The rounds of a request.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Something changed the object that others may want to see.
    pub(super) wanted: bool,
    pub(super) hooks: Rounds,
    pub(super) policies: Rounds,
}

impl Reinvocation {
    /// Begins the second round, with the object as it is now.
    pub(super) fn begin_second(&mut self, object: &Value) {
        self.hooks.begin_second(object);
        self.policies.begin_second(object);
    }
}
