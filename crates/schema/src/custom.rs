//! Custom kinds: from a stored CustomResourceDefinition to kinds that are served like built-in ones.
//!
//! Start at [`kinds`]. A definition becomes one [`Tree`](tree::Tree) for all its versions: an arena of types, in which
//! equal schemas are one type, and beside each type what its schema asks of values. The way of a write is that of every
//! kind; what differs is in [`Custom`]: bodies are not checked against types when they are read but validated after.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::FieldError;

use crate::cel::Budget;
use crate::edit::Edit;
use crate::facts;
use crate::kind::{Kind, Subresource, Types};
use crate::types::{Text, TypeId};

mod behaviour;
mod builder;
mod check;
mod column;
mod correlation;
mod defaulting;
mod duplicates;
mod embedded;
mod expressions;
mod format;
mod json_path;
mod part;
mod pruning;
mod reading;
mod rules;
mod size;
mod tree;
mod validation;
mod version;

pub use behaviour::Custom;
pub use reading::ObjectSchema;
pub use version::compare as compare_versions;

/// What may be done with custom objects.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// What may be done with their subresources.
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// The kinds that a definition brings: one for each version that is served, the one that clients should prefer first. A
/// schema that isn't structural is an error that says why.
pub fn kinds(crd: &Value) -> Result<Vec<Kind>, String> {
    let spec = &crd["spec"];
    let versions = spec["versions"].as_array().map_or(&[] as &[Value], |versions| versions);
    let storage = versions.iter().find(|version| version.flag("storage"));
    let storage = storage.ok_or("the definition has no storage version")?;
    let mut builder = builder::Builder::default();
    let stored = (storage.text("name"), builder.root(&storage["schema"]["openAPIV3Schema"])?);
    let mut roots = Vec::with_capacity(versions.len());
    let mut all = Vec::with_capacity(versions.len());
    for version in versions {
        let root = builder.root(&version["schema"]["openAPIV3Schema"]);
        if version.flag("served") {
            roots.push((version, root.clone()?));
        }
        // One that isn't served is only looked at where objects are still kept in it.
        all.extend(root.ok().map(|root| (Box::from(version.text("name")), root)));
    }
    let tree = Arc::new(builder.finish());
    let all = Arc::new(Versions { stored: stored.1, stored_version: stored.0.to_owned(), all });
    roots.sort_by(|(a, _), (b, _)| version::compare(b.text("name"), a.text("name")));
    Ok(roots.into_iter().map(|(version, root)| kind(crd, version, &all, &tree, root)).collect())
}

/// The schemas of all versions of a definition, served or not.
#[derive(Debug)]
struct Versions {
    /// The one in which objects are kept.
    stored: TypeId,
    stored_version: String,
    all: Vec<(Box<str>, TypeId)>,
}

impl Versions {
    /// The schema of the version that an object says it is of; of the one that is stored, if there is none.
    fn root_of(&self, object: &Value) -> TypeId {
        let version = object.text("apiVersion").rsplit('/').next().unwrap_or("");
        self.all.iter().find(|(name, _)| **name == *version).map_or(self.stored, |(_, root)| *root)
    }
}

/// What is wrong with a default under its part of a schema; fields are named from `field` on. Rules in CEL are asked within the budget
/// if all else is right.
pub(crate) fn violations(value: &Value, schema: &Value, field: &str, budget: &mut Budget) -> Vec<FieldError> {
    let mut builder = builder::Builder::default();
    let Ok(id) = builder.part(schema) else { return Vec::new() };
    let tree = builder.finish();
    let Some(place) = tree.place(id) else { return Vec::new() };
    let found = check::check(value, part::Part::Place(place), None, field);
    if found.is_empty() { expressions::check_default(value, place, field, budget) } else { found }
}

fn kind(crd: &Value, version: &Value, versions: &Arc<Versions>, tree: &Arc<tree::Tree>, root: TypeId) -> Kind {
    let spec = &crd["spec"];
    let accepted = crd.find(&["status", "acceptedNames"]).filter(|names| !names.text("plural").is_empty());
    let names = accepted.unwrap_or(&spec["names"]);
    let own = |text: &str| Text::Owned(text.to_owned());
    let listed =
        |field: &str| names[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(own).collect();
    Kind {
        group: own(spec.text("group")),
        version: own(version.text("name")),
        kind: own(names.text("kind")),
        list_kind: own(names.text("listKind")),
        plural: own(names.text("plural")),
        singular: own(names.text("singular")),
        short_names: listed("shortNames"),
        categories: listed("categories"),
        namespaced: spec.text("scope") == "Namespaced",
        verbs: VERBS.iter().map(|verb| Text::Borrowed(verb)).collect(),
        subresources: subresources(spec, names, version, root),
        types: Types::Own(Arc::clone(&tree.schema)),
        root,
        behaviour: Arc::new(Custom::new(crd, version, Arc::clone(versions), Arc::clone(tree), root)),
    }
}

fn subresources(spec: &Value, names: &Value, version: &Value, root: TypeId) -> Vec<Subresource> {
    let verbs = || SUBRESOURCE_VERBS.iter().map(|verb| Text::Borrowed(verb)).collect();
    let own = |text: &str| Text::Owned(text.to_owned());
    let mut found = Vec::new();
    if version["subresources"].has("status") {
        found.push(Subresource {
            name: Text::Borrowed("status"),
            group: own(spec.text("group")),
            version: own(version.text("name")),
            kind: own(names.text("kind")),
            verbs: verbs(),
            root,
        });
    }
    if version["subresources"].has("scale") {
        let scale = facts::kind_type("autoscaling/v1", "Scale").expect("a built-in kind");
        found.push(Subresource {
            name: Text::Borrowed("scale"),
            group: Text::Borrowed("autoscaling"),
            version: Text::Borrowed("v1"),
            kind: Text::Borrowed("Scale"),
            verbs: verbs(),
            root: TypeId::shared(scale.id()),
        });
    }
    found
}

#[cfg(test)]
mod tests;
