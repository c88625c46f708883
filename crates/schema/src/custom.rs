//! Custom kinds: from a stored CustomResourceDefinition to kinds that are served like built-in ones.
//!
//! Start at [`kinds`]. A definition becomes one [`Tree`](tree::Tree) for all its versions: an arena of types, in which
//! equal schemas are one type, and beside each type what its schema asks of values. The way of a write is that of every
//! kind; what differs is in [`Custom`]: bodies are not checked against types when they are read but validated after.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::FieldError;

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
    for version in versions.iter().filter(|version| version.flag("served")) {
        roots.push((version, builder.root(&version["schema"]["openAPIV3Schema"])?));
    }
    let tree = Arc::new(builder.finish());
    roots.sort_by(|(a, _), (b, _)| version::compare(b.text("name"), a.text("name")));
    Ok(roots.into_iter().map(|(version, root)| kind(crd, version, stored, &tree, root)).collect())
}

/// What is wrong with a value under a part of a schema; fields are named from `field` on. Rules in CEL are not asked.
pub(crate) fn violations(value: &Value, schema: &Value, field: &str) -> Vec<FieldError> {
    let mut builder = builder::Builder::default();
    let Ok(id) = builder.part(schema) else { return Vec::new() };
    let tree = builder.finish();
    tree.place(id).map_or_else(Vec::new, |place| check::check(value, part::Part::Place(place), None, field))
}

fn kind(crd: &Value, version: &Value, stored: (&str, TypeId), tree: &Arc<tree::Tree>, root: TypeId) -> Kind {
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
        behaviour: Arc::new(Custom::new(crd, version, stored, Arc::clone(tree), root)),
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
