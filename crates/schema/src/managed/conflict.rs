//! Why an apply was refused.

use std::collections::BTreeMap;
use std::fmt;

use setpoint_api::quote::quote;
use setpoint_api::{Status, StatusCause};

use super::element::Element;
use super::field_set::{FieldSet, path_text};
use super::managers::{Manager, Operation};

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplyError {
    /// 400: the document can't be applied at all.
    BadRequest(String),
    /// 409: others own what it would change.
    Conflicts(Conflicts),
    /// 500 without a reason: what Kubernetes answers to a document that doesn't fit its type.
    Misfit(String),
}

/// Fields that others own, by owner. Never empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conflicts {
    by_identity: BTreeMap<String, Conflict>,
}

/// What one manager owns of what an apply would change.
#[derive(Debug, Clone, PartialEq)]
struct Conflict {
    manager: Manager,
    api_version: String,
    set: FieldSet,
}

impl ApplyError {
    /// The answer to the client.
    pub fn status(&self) -> Status {
        match self {
            Self::BadRequest(message) => Status::bad_request(message.as_str()),
            Self::Conflicts(conflicts) => Status::apply_conflict(conflicts.causes(), conflicts.to_string()),
            Self::Misfit(message) => {
                Status { code: 500, reason: String::new(), ..Status::bad_request(message.as_str()) }
            }
        }
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(message) | Self::Misfit(message) => f.write_str(message),
            Self::Conflicts(conflicts) => conflicts.fmt(f),
        }
    }
}

impl std::error::Error for ApplyError {}

impl Conflicts {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_identity.is_empty()
    }

    /// Notes what a manager owns, if anything.
    pub(super) fn add(&mut self, identity: &str, manager: &Manager, api_version: &str, set: FieldSet) {
        if !set.is_empty() {
            let conflict = Conflict { manager: manager.clone(), api_version: api_version.to_owned(), set };
            self.by_identity.insert(identity.to_owned(), conflict);
        }
    }

    /// Those that are not about these fields.
    pub(super) fn without(&self, fields: &FieldSet) -> Self {
        let mut left = Self::default();
        for (identity, conflict) in &self.by_identity {
            left.add(identity, &conflict.manager, &conflict.api_version, conflict.set.difference(fields));
        }
        left
    }

    /// Each field with its owner.
    fn causes(&self) -> Vec<StatusCause> {
        let cause = |conflict: &Conflict, path: &[Element]| StatusCause {
            reason: "FieldManagerConflict".into(),
            message: format!("conflict with {}", conflict.owner()),
            field: path_text(path),
        };
        let of =
            |conflict: &Conflict| conflict.set.paths().iter().map(|path| cause(conflict, path)).collect::<Vec<_>>();
        self.by_identity.values().flat_map(of).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.by_identity.values().map(|conflict| (conflict.owner(), conflict.set.paths())).collect();
        let count: usize = all.iter().map(|(_, paths)| paths.len()).sum();
        if let ([(owner, paths)], 1) = (all.as_slice(), count) {
            return write!(f, "Apply failed with 1 conflict: conflict with {owner}: {}", path_text(&paths[0]));
        }
        let lines = all.iter().flat_map(|(owner, paths)| {
            let fields = paths.iter().map(|path| format!("- {}", path_text(path)));
            [format!("conflicts with {owner}:")].into_iter().chain(fields)
        });
        write!(f, "Apply failed with {count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Conflict {
    /// The owner as messages name it.
    fn owner(&self) -> String {
        let mut text = quote(&self.manager.name);
        if !self.manager.subresource.is_empty() {
            text += &format!(" with subresource {}", quote(&self.manager.subresource));
        }
        match self.manager.operation {
            Operation::Apply => text,
            Operation::Update => format!("{text} using {}", self.api_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(of: &[(&str, Operation, &str, &[&str])]) -> Conflicts {
        let mut all = Conflicts::default();
        for (name, operation, subresource, paths) in of {
            let manager = Manager::new(name, *operation, subresource);
            all.add(&manager.identity("v1"), &manager, "v1", FieldSet::of_fields(paths.iter().copied()));
        }
        all
    }

    #[test]
    fn conflicts_name_the_owner_and_the_field() {
        let text = |of: &[(&str, Operation, &str, &[&str])]| conflicts(of).to_string();
        assert_eq!(
            text(&[("one", Operation::Apply, "", &["data.a"])]),
            r#"Apply failed with 1 conflict: conflict with "one": .data.a"#
        );
        assert_eq!(
            text(&[("one", Operation::Update, "status", &["data.a"])]),
            r#"Apply failed with 1 conflict: conflict with "one" with subresource "status" using v1: .data.a"#
        );
        assert_eq!(
            text(&[("two", Operation::Update, "", &["data.b", "data.a"]), ("one", Operation::Apply, "", &["data.a"])]),
            "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\nconflicts with \"two\" using v1:\n- \
             .data.a\n- .data.b"
        );
    }

    #[test]
    fn the_answer_lists_every_field_as_a_cause() {
        let all = conflicts(&[("one", Operation::Apply, "", &["data.a", "data.b"])]);
        let status = ApplyError::Conflicts(all.clone()).status();
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let shown: Vec<_> = causes.iter().map(|c| (c.reason.as_str(), c.message.as_str(), c.field.as_str())).collect();
        let cause = |field| ("FieldManagerConflict", "conflict with \"one\"", field);
        assert_eq!(shown, [cause(".data.a"), cause(".data.b")]);
        assert!(all.without(&FieldSet::of_fields(["data.a", "data.b"])).is_empty());
    }
}
