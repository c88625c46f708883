//! One stored CustomResourceDefinition, read as far as serving its kinds needs.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::Revision;
use setpoint_schema::{Edit, Kind, custom};
use setpoint_store::Object;

use super::conditions::{Condition, ESTABLISHED, NAMES_ACCEPTED, TERMINATING, approval, find, is_true};
use super::names::{Claim, Names, Taken, claim};
use super::outline;
use crate::conversion::Converter;
use crate::objects;

/// A definition and the kinds that it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// As it is stored.
    pub(crate) object: Arc<Object>,
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) uid: String,
    generation: i64,
    wanted: Names,
    /// Names that it was given and that are stored.
    stored_names: Names,
    names_were_accepted: bool,
    /// Reason and message of the stored condition about names.
    told: Option<(String, String)>,
    was_established: bool,
    /// Being deleted: its kinds have no new objects.
    pub(crate) terminating: bool,
    /// Marked as being deleted, and the instances aren't gone yet.
    pub(crate) has_cleanup: bool,
    approval_differs: bool,
    /// The version that objects are stored in.
    pub(crate) storage_version: String,
    /// Objects stored from this revision on were stored under the schema of today.
    pub(crate) schema_since: Revision,
    /// The names as they are today, stored or about to be.
    pub(crate) claim: Claim,
    /// A kind for each served version, or why there can be none.
    pub(crate) kinds: Result<Arc<[Arc<Kind>]>, String>,
    /// The webhook that turns versions into each other.
    pub(crate) converter: Option<Arc<Converter>>,
}

impl Definition {
    /// Reads a definition. `before` is the same one at an earlier revision.
    pub(crate) fn read(object: Arc<Object>, before: Option<&Definition>) -> Definition {
        let value = outline::read(object.json());
        let metadata = &value["metadata"];
        let empty = Vec::new();
        let versions = value.find(&["spec", "versions"]).and_then(Value::as_array).unwrap_or(&empty);
        let storage = versions.iter().find(|version| version.flag("storage"));
        let uid = metadata.text("uid").to_owned();
        let generation = metadata.number("generation").unwrap_or(0);
        let before = before.filter(|before| before.uid == uid && before.generation == generation);
        let stored_names = value.find(&["status", "acceptedNames"]).map(Names::read).unwrap_or_default();
        let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
        Definition {
            name: metadata.text("name").to_owned(),
            group: value["spec"].text("group").to_owned(),
            uid,
            generation,
            wanted: value.find(&["spec", "names"]).map(Names::read).unwrap_or_default(),
            claim: Claim { accepted: stored_names.clone(), conflict: None },
            stored_names,
            names_were_accepted: is_true(&value, NAMES_ACCEPTED),
            told: find(&value, NAMES_ACCEPTED)
                .map(|condition| (condition.text("reason").to_owned(), condition.text("message").to_owned())),
            was_established: is_true(&value, ESTABLISHED),
            terminating: is_true(&value, TERMINATING),
            has_cleanup: metadata.has("deletionTimestamp")
                && finalizers.into_iter().any(|name| *name == super::FINALIZER),
            approval_differs: approval(&value).is_some_and(|approval| !approval.is_in(&value)),
            storage_version: storage.map_or("", |version| version.text("name")).to_owned(),
            schema_since: before.map_or(object.revision(), |before| before.schema_since),
            kinds: Err("not compiled yet".to_owned()),
            converter: None,
            object,
        }
    }

    /// Whether the kinds of another state of this definition fit this one: same schema, same names.
    pub(crate) fn is_compiled_as(&self, other: &Definition) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.claim.accepted == other.claim.accepted
            && other.is_served()
    }

    /// Compiles the kinds under the names that the definition was given.
    pub(crate) fn compile(&mut self) {
        self.compile_from(objects::value(&self.object));
    }

    /// Compiles the kinds of a definition that differs from the stored one.
    pub(crate) fn compile_from(&mut self, mut value: Value) {
        value.ensure("status").set("acceptedNames", self.claim.accepted.write());
        self.converter = Converter::of(&value).map(Arc::new);
        self.kinds = match custom::kinds(&value) {
            Ok(kinds) => Ok(kinds.into_iter().map(Arc::new).collect()),
            Err(error) => {
                tracing::error!(definition = self.name, %error, "its kinds can't be served");
                Err(error.to_string())
            }
        };
    }

    /// Whether its stored names are those that it wants.
    fn is_settled(&self) -> bool {
        self.wanted == self.stored_names
    }

    /// Whether requests for its kinds are answered.
    pub(crate) fn is_served(&self) -> bool {
        self.names_are_accepted() || self.was_established
    }

    fn names_are_accepted(&self) -> bool {
        self.claim.conflict.is_none()
    }

    /// Whether its stored status says what is so.
    pub(crate) fn is_told(&self) -> bool {
        let condition = self.names_condition();
        let told = self
            .told
            .as_ref()
            .is_some_and(|(reason, message)| *reason == condition.reason && *message == condition.message);
        self.claim.accepted == self.stored_names
            && told
            && self.names_are_accepted() == self.names_were_accepted
            && (self.was_established || !self.names_are_accepted())
            && !self.approval_differs
    }

    /// The definition with the status that it should have.
    pub(crate) fn tell(&self, object: &mut Value, now: &str) {
        object.ensure("status").set("acceptedNames", self.claim.accepted.write());
        self.names_condition().set(object, now);
        if self.names_are_accepted() && !self.was_established {
            let message = "the initial names have been accepted";
            Condition::new(ESTABLISHED, true, "InitialNamesAccepted", message).set(object, now);
        } else if !self.was_established {
            Condition::new(ESTABLISHED, false, "NotAccepted", "not all names are accepted").set(object, now);
        }
        if let Some(approval) = approval(object) {
            approval.set(object, now);
        }
    }

    fn names_condition(&self) -> Condition {
        match &self.claim.conflict {
            Some((reason, message)) => Condition::new(NAMES_ACCEPTED, false, reason, message.as_str()),
            None => Condition::new(NAMES_ACCEPTED, true, "NoConflicts", "no conflicts found"),
        }
    }
}

/// Gives every definition its names: who has some keeps them, the others come in the order of their revisions.
pub(crate) fn settle(definitions: &mut [Definition]) {
    let mut order: Vec<usize> = (0..definitions.len()).filter(|at| !definitions[*at].is_settled()).collect();
    order.sort_by_key(|at| definitions[*at].object.revision());
    for at in order {
        let mut taken = Taken::default();
        let (group, own) = (definitions[at].group.clone(), at);
        for (other, definition) in definitions.iter().enumerate().filter(|(_, other)| other.group == group) {
            taken.add(if other == own { &definition.stored_names } else { &definition.claim.accepted });
        }
        let definition = &mut definitions[at];
        definition.claim = claim(&definition.wanted, &definition.stored_names, &taken);
    }
}
