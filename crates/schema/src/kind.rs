//! A kind as the server sees it: its names, its verbs, its type and its [`Behaviour`].

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::{FieldError, GroupKind, GroupResource, GroupVersionKind};

use crate::behaviour::{Behaviour, Context, Generation};
use crate::edit::Edit;
use crate::emptied::Emptied;
use crate::equality;
use crate::errors::Errors;
use crate::facts::BUILTIN;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::normal::{normalize, normalize_next};
use crate::types::{Schema, Text, TypeId, TypeRef};

/// One kind in one version. The same description serves built-in and custom kinds.
#[derive(Debug, Clone)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: Text,
    /// API version.
    pub version: Text,
    /// Name of the kind: `ConfigMap`.
    pub kind: Text,
    /// Name of its lists: `ConfigMapList`.
    pub list_kind: Text,
    /// Name in URLs: `configmaps`.
    pub plural: Text,
    /// Singular name: `configmap`.
    pub singular: Text,
    /// Short names: `cm`.
    pub short_names: Vec<Text>,
    /// Categories such as `all`.
    pub categories: Vec<Text>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What may be done with it.
    pub verbs: Vec<Text>,
    /// Parts with their own URL.
    pub subresources: Vec<Subresource>,
    /// Where the types are.
    pub types: Types,
    /// Type of an object.
    pub root: TypeId,
    /// What it decides for itself.
    pub behaviour: Arc<dyn Behaviour>,
}

/// A part of an object with its own URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale` ...
    pub name: Text,
    /// Group of the body's kind.
    pub group: Text,
    /// Version of the body's kind.
    pub version: Text,
    /// Kind of the body.
    pub kind: Text,
    /// What may be done with it.
    pub verbs: Vec<Text>,
    /// Type of the body.
    pub root: TypeId,
}

/// An arena of types: the built-in one, or one of a custom kind.
#[derive(Debug, Clone)]
pub enum Types {
    /// All built-in kinds.
    Builtin,
    /// A custom kind's own.
    Own(Arc<Schema>),
}

impl Kind {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Group, version and kind.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(&*self.group, &*self.version, &*self.kind)
    }

    /// Group and kind, as errors name it. Events of both groups are the same objects and go by one name.
    pub fn group_kind(&self) -> GroupKind {
        let group = if self.group == "events.k8s.io" { "" } else { &*self.group };
        GroupKind::new(group, &*self.kind)
    }

    /// Group and resource, as storage and authorization name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.group, &*self.plural)
    }

    /// Whether `verb` is served.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Type of an object.
    pub fn root_type(&self) -> TypeRef<'_> {
        let schema = match &self.types {
            Types::Builtin => &BUILTIN,
            Types::Own(schema) => schema,
        };
        schema.get(self.root)
    }

    /// A cursor at the root of an object of this kind.
    pub fn node<'a>(&'a self, object: &'a Value) -> Node<'a> {
        Node::root(object, self.root_type())
    }

    /// Sets what a user may not choose on creation.
    pub fn prepare_create(&self, object: &mut Value, context: &Context) {
        self.behaviour.prepare_create(object, context);
        if self.behaviour.generation() != Generation::Never {
            object.ensure("metadata").set("generation", 1);
        }
        self.normalize(object);
    }

    /// Takes from `old` what a write to the object (`""`) or to one of its subresources can't change, and moves the
    /// generation if what counts has changed.
    pub fn prepare_update(&self, subresource: &str, new: &mut Value, old: &Value, context: &Context) {
        let generation = old.find(&["metadata", "generation"]).cloned();
        new.ensure("metadata").set_or_remove("generation", generation);
        match subresource {
            "" => self.behaviour.prepare_update(new, old, context),
            "status" => self.behaviour.prepare_status_update(new, old, context),
            other => self.behaviour.prepare_subresource_update(other, new, old, context),
        }
        normalize_next(new, old, self.root_type());
        if subresource != "status" {
            self.move_generation(new, old);
        }
        metadata::keep_system_fields(new, old);
    }

    /// What is wrong with a new object; empty if nothing.
    pub fn check_create(&self, object: &Value) -> Vec<FieldError> {
        let node = self.node(object);
        let mut errs = Errors::new();
        self.behaviour.check_create(self, &node, &mut errs);
        if errs.is_empty() {
            metadata::validate_generic(&node, self.namespaced, NameRule::PATH_SEGMENT, &mut errs);
        }
        errs.into_vec()
    }

    /// What is wrong with a write to the object (`""`) or to one of its subresources; empty if nothing.
    pub fn check_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        self.judge_update(subresource, new, old).0
    }

    /// The same, and what the user is warned of because it was wrong before: it is forgiven.
    pub fn judge_update(&self, subresource: &str, new: &Value, old: &Value) -> (Vec<FieldError>, Vec<String>) {
        let (new, old) = (self.node(new), self.node(old));
        let mut errs = Errors::new();
        metadata::validate_generic(&new, self.namespaced, NameRule::PATH_SEGMENT, &mut errs);
        metadata::validate_generic_update(&new, &old, &mut errs);
        match subresource {
            "" => self.behaviour.check_update(self, &new, &old, &mut errs),
            "status" => self.behaviour.check_status_update(self, &new, &old, &mut errs),
            other => self.behaviour.check_subresource_update(other, self, &new, &old, &mut errs),
        }
        errs.into_parts()
    }

    /// Brings an object into the form in which it is stored: zero values out, fields that are always printed in.
    pub fn normalize(&self, object: &mut Value) {
        normalize(object, self.root_type());
    }

    /// The value of every field that a field selector may name.
    pub fn selectable_fields(&self, object: &Value) -> Vec<(Text, String)> {
        let metadata = &object["metadata"];
        let mut fields = vec![(Text::Borrowed("metadata.name"), metadata.text("name").to_owned())];
        if self.namespaced {
            fields.push((Text::Borrowed("metadata.namespace"), metadata.text("namespace").to_owned()));
        }
        fields.extend(self.behaviour.selectable().iter().map(|s| (s.name.clone(), s.value(object))));
        fields
    }

    /// Moves the generation where all that differs is a list or map that was given empty, for kinds to which it does.
    pub fn count_emptied(&self, new: &mut Value, old: &Value, emptied: &[Emptied]) {
        let Generation::On(fields) = self.behaviour.generation() else { return };
        if !self.behaviour.tells_empty_from_absent() || new["metadata"]["generation"] != old["metadata"]["generation"] {
            return;
        }
        let mut given = new.clone();
        emptied.iter().for_each(|one| one.restore(&mut given));
        if fields.iter().any(|name| given[*name] != new[*name]) {
            raise_generation(new, old);
        }
    }

    fn move_generation(&self, new: &mut Value, old: &Value) {
        let root = self.root_type();
        let changed = match self.behaviour.generation() {
            Generation::Never => false,
            Generation::On(fields) => {
                fields.iter().any(|name| !equality::semantic(&new[*name], &old[*name], root.child(name)))
            }
            Generation::OnAllButMetadata => differ_but_metadata(new, old),
        };
        if changed {
            raise_generation(new, old);
        }
    }
}

fn raise_generation(new: &mut Value, old: &Value) {
    let before = old.find(&["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
    new.ensure("metadata").set("generation", before + 1);
}

/// Whether two objects differ in anything but metadata.
fn differ_but_metadata(new: &Value, old: &Value) -> bool {
    let fields = |object: &'_ Value| object.as_object().map_or(0, |fields| fields.len());
    let has_metadata = |object: &Value| usize::from(object.get("metadata").is_some());
    let same_count = fields(new) - has_metadata(new) == fields(old) - has_metadata(old);
    let mut rest = new.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
    !same_count || rest.any(|(name, value)| old.get(name) != Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Counting;

    impl Behaviour for Counting {
        fn generation(&self) -> Generation {
            Generation::On(&["spec"])
        }
    }

    fn deployment() -> Kind {
        let builtin = crate::builtin::by_plural("apps", "v1", "deployments").unwrap();
        Kind { behaviour: Arc::new(Counting), ..(**builtin).clone() }
    }

    #[test]
    fn where_empty_is_not_absent_a_list_that_is_given_empty_moves_the_generation() {
        let emptied = [Emptied::list("spec.ingress[0].from")];
        for (group, plural, expected) in
            [("networking.k8s.io", "networkpolicies", 8), ("networking.k8s.io", "ingresses", 7)]
        {
            let kind = crate::builtin::by_plural(group, "v1", plural).unwrap();
            let old = json!({"metadata": {"generation": 7}, "spec": {"ingress": [{"ports": [{"port": 1}]}]}});
            let mut new = old.clone();
            kind.count_emptied(&mut new, &old, &emptied);
            assert_eq!(new["metadata"]["generation"], expected, "{plural}");
            assert_eq!(new["spec"], old["spec"]);
            kind.count_emptied(&mut new, &old, &emptied);
            assert_eq!(new["metadata"]["generation"], expected, "{plural}");
        }
    }

    #[test]
    fn the_generation_moves_with_the_meaning_of_what_counts() {
        let kind = deployment();
        let mut old = json!({"metadata": {"name": "d", "generation": 7}, "spec": {"replicas": 1}});
        kind.prepare_create(&mut old, &Context::default());
        assert_eq!(old["metadata"]["generation"], 1);
        for (sub, replicas, expected) in [("", 1, 1), ("", 2, 2), ("status", 2, 1)] {
            let mut new = json!({"metadata": {"name": "d", "generation": 9}, "spec": {"replicas": replicas}});
            kind.prepare_update(sub, &mut new, &old, &Context::default());
            assert_eq!(new["metadata"]["generation"], expected, "{sub} {replicas}");
        }
    }

    #[test]
    fn an_update_keeps_identity_and_marks_of_deletion() {
        let kind = deployment();
        let marks = json!({
            "name": "d", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z",
            "deletionTimestamp": "2024-01-02T00:00:00Z", "deletionGracePeriodSeconds": 3
        });
        let mut old = json!({"metadata": marks});
        kind.normalize(&mut old);
        let mut new = json!({"metadata": {"name": "d", "creationTimestamp": "2020-01-01T00:00:00Z"}});
        kind.prepare_update("", &mut new, &old, &Context::default());
        assert_eq!(new["metadata"], marks);
    }

    #[test]
    fn a_write_to_status_leaves_the_rest() {
        let kind = deployment();
        let old = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}});
        let mut new = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": {"replicas": 3}});
        kind.prepare_update("status", &mut new, &old, &Context::default());
        assert_eq!((&new["spec"]["replicas"], &new["status"]["replicas"]), (&json!(1), &json!(3)));
    }
}
