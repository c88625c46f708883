//! Who owns what: `metadata.managedFields`, read and written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use setpoint_api::quote::quote;

use super::field_set::FieldSet;
use crate::edit::Edit;
use crate::json::Json;
use crate::patch::json_text;

/// Managers by update that an object remembers. Beyond it the oldest are merged into one.
pub const UPDATE_MANAGERS_MAX: usize = 10;
/// Who the oldest are merged into.
const ANCIENT: &str = "ancient-changes";

/// The managers of an object, by identity.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Managers {
    by_identity: BTreeMap<String, Owner>,
    /// Entries of those whom a write doesn't concern: written again as they were read.
    unread: Vec<Value>,
}

/// A manager in one of its ways of writing, and what it owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    /// Who it is.
    pub manager: Manager,
    /// In which version its fields are named.
    pub api_version: String,
    /// When its set last changed.
    pub time: Option<String>,
    /// What it owns.
    pub set: FieldSet,
}

/// Somebody who writes in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Name; `unknown` if it gave none.
    pub name: String,
    /// How it writes.
    pub operation: Operation,
    /// Through which part of the object; `""` for the object itself.
    pub subresource: String,
}

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// By apply: it says all it wants, each time.
    Apply,
    /// In any other way.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl Manager {
    /// Somebody who writes; one without a name is called `unknown`.
    pub fn new(name: &str, operation: Operation, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        Self { name: name.to_owned(), operation, subresource: subresource.to_owned() }
    }

    /// Whether an entry of `managedFields` is this one's.
    pub(super) fn wrote(&self, entry: &Value) -> bool {
        entry.text("manager") == self.name
            && entry.text("operation") == self.operation.as_str()
            && entry.text("subresource") == self.subresource
    }

    /// What tells managers of one object apart, and their order in messages. An applier is the same one in every
    /// version.
    pub fn identity(&self, api_version: &str) -> String {
        let api_version = match self.operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        let fields = [
            ("manager", self.name.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", api_version),
            ("subresource", &self.subresource),
        ];
        let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
        json_text(&Json::Object(given.map(|(name, text)| (name.into(), Json::String(text.into()))).collect()))
    }
}

impl Managers {
    /// Reads `managedFields`; absent is empty. The error says what is wrong with the first bad entry.
    pub fn decode(entries: Option<&Value>) -> Result<Self, String> {
        let mut managers = Self::default();
        let entries = match entries {
            None | Some(Value::Null) => return Ok(managers),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("managedFields must be a list".to_owned()),
        };
        for (index, entry) in entries.iter().enumerate() {
            managers.insert(Owner::decode(index, entry)?);
        }
        Ok(managers)
    }

    /// Reads those stored entries that a write concerns, and keeps the others as they are.
    pub(super) fn decode_some(entries: &[Value], concerns: impl Fn(&Value) -> bool) -> Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            match concerns(entry) {
                true => managers.insert(Owner::decode(index, entry)?),
                false => managers.unread.push(entry.clone()),
            }
        }
        Ok(managers)
    }

    /// Writes `managedFields`, appliers first, the oldest first; None if there is nothing to write.
    pub fn encode(&self) -> Option<Value> {
        fn key(entry: &Value) -> [&str; 5] {
            ["operation", "time", "manager", "apiVersion", "subresource"].map(|field| entry.text(field))
        }
        let mut entries: Vec<Value> = self.by_identity.values().map(Owner::encode).collect();
        entries.extend_from_slice(&self.unread);
        entries.sort_by(|a, b| key(a).cmp(&key(b)));
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// Whether nobody manages anything.
    pub fn is_empty(&self) -> bool {
        self.by_identity.is_empty() && self.unread.is_empty()
    }

    /// The managers with their identities, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Owner)> {
        self.by_identity.iter()
    }

    /// One manager.
    pub fn get(&self, identity: &str) -> Option<&Owner> {
        self.by_identity.get(identity)
    }

    /// Puts a manager in, in place of what is known of it.
    pub fn insert(&mut self, owner: Owner) {
        self.by_identity.insert(owner.manager.identity(&owner.api_version), owner);
    }

    /// Puts a manager in as one that it was in another version: beside what is known of it in its own.
    pub fn insert_beside(&mut self, other_version: &str, owner: Owner) {
        self.by_identity.insert(owner.manager.identity(other_version), owner);
    }

    /// Takes a manager out.
    pub fn remove(&mut self, identity: &str) -> Option<Owner> {
        self.by_identity.remove(identity)
    }

    /// Changes the set of each manager; those that are left with nothing go.
    pub fn map_sets(mut self, mut change: impl FnMut(&str, &mut Owner)) -> Self {
        self.by_identity.retain(|identity, owner| {
            change(identity, owner);
            !owner.set.is_empty()
        });
        self
    }

    /// Keeps the managers for which this holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Owner) -> bool) {
        self.by_identity.retain(|_, owner| keep(owner));
    }

    /// Merges the oldest managers by update, version by version, until there are no more than the bound.
    pub fn cap(&mut self) {
        let is_update = |owner: &&Owner| owner.manager.operation == Operation::Update;
        let mut updaters: Vec<_> = self
            .iter()
            .filter(|(_, owner)| is_update(owner))
            .map(|(id, owner)| (owner.time.clone(), id.clone()))
            .collect();
        let mut count = updaters.len();
        updaters.sort();
        let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
        for (_, identity) in updaters {
            if count <= UPDATE_MANAGERS_MAX {
                return;
            }
            let Some(version) = self.get(&identity).map(|owner| owner.api_version.clone()) else { continue };
            match first_of_version.get(&version) {
                None => drop(first_of_version.insert(version, identity)),
                Some(first) => {
                    self.bury(&identity, &first.clone(), &version);
                    count -= 1;
                }
            }
        }
    }

    /// Merges one manager into the one for ancient changes, which is made of `first` if there is none yet.
    fn bury(&mut self, identity: &str, first: &str, version: &str) {
        let manager = Manager::new(ANCIENT, Operation::Update, "");
        let bucket = manager.identity(version);
        let is_new = identity == bucket || !self.by_identity.contains_key(&bucket);
        let other = if is_new { self.remove(first) } else { self.get(&bucket).cloned() };
        let Some(latest) = self.remove(identity) else { return };
        let set = other.map_or_else(|| latest.set.clone(), |owner| latest.set.union(&owner.set));
        self.insert(Owner { manager, set, ..latest });
    }
}

impl Owner {
    fn decode(index: usize, entry: &Value) -> Result<Self, String> {
        let operation = match entry.text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if entry.text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match entry.text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => return Err(format!("invalid fieldsType {} in managed fields entry {index}", quote(other))),
        }
        let set = FieldSet::decode(entry.get("fieldsV1").unwrap_or(&Value::Null));
        let (name, subresource) = (entry.text("manager").to_owned(), entry.text("subresource").to_owned());
        Ok(Self {
            manager: Manager { name, operation, subresource },
            api_version: entry.text("apiVersion").to_owned(),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            set: set.map_err(|_| format!("error decoding versioned set of managed fields entry {index}"))?,
        })
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let texts = [
            ("manager", self.manager.name.as_str()),
            ("operation", self.manager.operation.as_str()),
            ("apiVersion", &self.api_version),
            ("time", self.time.as_deref().unwrap_or("")),
            ("subresource", &self.manager.subresource),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            entry.insert(name.to_owned(), text.into());
        }
        entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), self.set.encode());
        Value::Object(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields
        })
    }

    #[test]
    fn entries_are_read_and_written_in_order() {
        let sorted = json!([
            entry("b", "Apply", "2024-01-01T00:00:00Z", json!({"f:a": {}})),
            entry("a", "Apply", "2024-01-02T00:00:00Z", json!({})),
            entry("a", "Update", "2024-01-01T00:00:00Z", json!({"f:a": {}})),
            {"manager": "a", "operation": "Update", "apiVersion": "v1", "subresource": "status",
             "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}},
        ]);
        let mut shuffled = sorted.as_array().unwrap().clone();
        shuffled.reverse();
        assert_eq!(Managers::decode(Some(&Value::Array(shuffled))).unwrap().encode(), Some(sorted));
        assert_eq!(Managers::decode(None).unwrap().encode(), None);
    }

    #[test]
    fn bad_entries_are_named() {
        for (field, value, expected) in [
            ("operation", "Bogus", "operation must be `Apply` or `Update`"),
            ("apiVersion", "", "apiVersion must not be empty"),
            ("fieldsType", "", "missing fieldsType in managed fields entry 0"),
            ("fieldsType", "X", "invalid fieldsType \"X\" in managed fields entry 0"),
            ("fieldsV1", "X", "error decoding versioned set of managed fields entry 0"),
        ] {
            let mut bad = entry("a", "Apply", "", json!({}));
            bad[field] = json!(value);
            assert_eq!(Managers::decode(Some(&json!([bad]))).unwrap_err(), expected);
        }
        assert!(Managers::decode(Some(&json!("x"))).is_err() && Managers::decode(Some(&json!([1]))).is_err());
    }

    #[test]
    fn the_oldest_updaters_are_merged_beyond_the_bound() {
        let at = |n: usize| format!("2024-01-{:02}T00:00:00Z", n + 1);
        let updaters = (0..12).map(|n| entry(&format!("m{n}"), "Update", &at(n), json!({format!("f:{n}"): {}})));
        let applier = entry("z", "Apply", &at(0), json!({"f:z": {}}));
        let all = Value::Array(updaters.chain([applier.clone()]).collect());
        let mut managers = Managers::decode(Some(&all)).unwrap();
        managers.cap();
        let encoded = managers.encode().unwrap();
        assert_eq!(encoded.as_array().unwrap().len(), UPDATE_MANAGERS_MAX + 1);
        let ancient = entry("ancient-changes", "Update", &at(2), json!({"f:0": {}, "f:1": {}, "f:2": {}}));
        assert_eq!((&encoded[0], &encoded[1]), (&applier, &ancient));
    }
}
