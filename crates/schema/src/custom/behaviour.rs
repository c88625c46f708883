//! What a custom kind decides for itself, which is what its definition says.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use setpoint_api::FieldError;
use setpoint_api::quote::quote;

use super::column::PrinterColumn;
use super::tree::{Place, Tree};
use super::{Versions, defaulting, embedded, pruning, validation, version};
use crate::behaviour::{Behaviour, Context, Generation, ScalePaths, keep};
use crate::columns::Column;
use crate::decode::{DecodeError, Decoded, decode_untyped};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::json::Json;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;
use crate::selectable::Selectable;
use crate::types::{TypeId, TypeRef};

/// The decisions of one version of a custom kind.
#[derive(Debug)]
pub struct Custom {
    tree: Arc<Tree>,
    root: TypeId,
    versions: Arc<Versions>,
    api_version: String,
    is_stored_version: bool,
    has_status: bool,
    scale: Option<Scale>,
    columns: Vec<PrinterColumn>,
    selectable: Vec<Selectable>,
    deprecation: Option<String>,
}

/// The scale subresource as the definition has it.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) spec_replicas: String,
    pub(super) status_replicas: String,
    pub(super) selector: Option<String>,
}

impl Custom {
    pub(super) fn new(crd: &Value, version: &Value, versions: Arc<Versions>, tree: Arc<Tree>, root: TypeId) -> Self {
        let (name, parts) = (version.text("name"), &version["subresources"]);
        let path = |field: &str| parts["scale"].text(field).to_owned();
        let scale = parts.has("scale").then(|| Scale {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: Some(path("labelSelectorPath")).filter(|path| !path.is_empty()),
        });
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let selectable = selectable.map(|field| {
            let name = field.text("jsonPath").trim_start_matches('.');
            Selectable::at(name.to_owned(), steps(name))
        });
        Self {
            tree,
            root,
            api_version: format!("{}/{name}", crd["spec"].text("group")),
            is_stored_version: versions.stored_version == name,
            versions,
            has_status: parts.has("status"),
            scale,
            columns: PrinterColumn::read_all(version),
            selectable: selectable.collect(),
            deprecation: deprecation(&crd["spec"], version),
        }
    }

    fn place(&self) -> Place<'_> {
        self.tree.place(self.root).expect("the root is no built-in type")
    }

    fn stored_place(&self) -> Place<'_> {
        self.tree.place(self.versions.stored).expect("the root is no built-in type")
    }

    /// The schema of the version that an object says it is of.
    fn own_place(&self, object: &Value) -> Place<'_> {
        self.tree.place(self.versions.root_of(object)).expect("the root is no built-in type")
    }
}

/// Drops what a version doesn't know and brings metadata inside into its usual form.
fn fit(object: &mut Value, root: Place<'_>) {
    pruning::prune(object, root);
    pruning::drop_nulls(object, Some(root));
    // What is kept was valid when it was stored; parts that are not any more stay as they are.
    let _ = embedded::coerce(object, root);
}

impl Behaviour for Custom {
    fn decode(&self, document: Json<'_>, root: TypeRef<'_>) -> Result<Decoded, DecodeError> {
        let mut decoded = self.decode_merged(document, root)?;
        pruning::drop_nulls(&mut decoded.value, Some(self.place()));
        Ok(decoded)
    }

    fn decode_merged(&self, document: Json<'_>, _root: TypeRef<'_>) -> Result<Decoded, DecodeError> {
        let Decoded { mut value, mut strict, emptied, .. } = decode_untyped(document)?;
        let root = self.place();
        let mut unknown = Vec::new();
        if let Some(object) = value.as_object_mut() {
            unknown = embedded::read_metadata(object, "metadata.")?;
        }
        unknown.extend(pruning::prune(&mut value, root));
        unknown.extend(embedded::coerce(&mut value, root).map_err(|error| DecodeError::Value(error.to_string()))?);
        strict.extend(unknown.into_iter().map(|path| format!("unknown field {}", quote(&path))));
        Ok(Decoded { value, strict, converted: Vec::new(), emptied })
    }

    fn default(&self, object: &mut Value) {
        defaulting::fill(object, self.place());
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        if self.has_status {
            object.remove("status");
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        if self.has_status {
            keep(new, old, &["status"]);
        }
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        let status = new.remove("status");
        let managed = new.get_mut("metadata").and_then(|metadata| metadata.remove("managedFields"));
        *new = old.clone();
        new.set_or_remove("status", status);
        new.ensure("metadata").set_or_remove("managedFields", managed);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        validation::check_create(object.json(), self.place(), self.scale.as_ref(), errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        validation::check_update(new.json(), old.json(), self.place(), self.scale.as_ref(), errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        validation::check_status_update(new.json(), old.json(), self.place(), self.scale.as_ref(), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        finalizer_warnings(new.json(), old.map(|old| old.json()))
    }

    fn deprecation(&self) -> Option<Cow<'_, str>> {
        self.deprecation.as_deref().map(Cow::Borrowed)
    }

    fn generation(&self) -> Generation {
        Generation::OnAllButMetadata
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ if self.has_status => &["status"],
            _ => &[],
        }
    }

    fn selectable(&self) -> &[Selectable] {
        &self.selectable
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        let own = self.columns.iter().map(PrinterColumn::column);
        std::iter::once(Column::NAME).chain(own).collect()
    }

    fn stored_version(&self) -> Option<&str> {
        (!self.is_stored_version).then_some(self.versions.stored_version.as_str())
    }

    fn to_stored(&self, object: &mut Value) {
        if self.is_stored_version {
            return;
        }
        let group = self.api_version.split('/').next().unwrap_or("");
        object.set("apiVersion", format!("{group}/{}", self.versions.stored_version));
        if self.root != self.versions.stored {
            fit(object, self.stored_place());
            // What is stored is shown as it is, so that it needs them.
            defaulting::fill(object, self.stored_place());
        }
    }

    fn read_stored(&self, object: &mut Value) {
        let own = self.versions.root_of(object);
        self.read_own(object);
        object.set("apiVersion", self.api_version.as_str());
        if self.root != own {
            fit(object, self.place());
        }
    }

    fn read_own(&self, object: &mut Value) {
        let own = self.own_place(object);
        fit(object, own);
        defaulting::fill(object, own);
    }

    fn fit_converted(&self, object: &mut Value) -> Result<(), FieldError> {
        let own = self.own_place(object);
        pruning::prune(object, own);
        pruning::drop_nulls(object, Some(own));
        embedded::coerce(object, own).map(drop)
    }

    fn scale(&self) -> Option<ScalePaths> {
        let scale = self.scale.as_ref()?;
        Some(ScalePaths {
            spec_replicas: steps(&scale.spec_replicas),
            status_replicas: steps(&scale.status_replicas),
            selector: scale.selector.as_deref().map(steps),
        })
    }
}

/// `.spec.replicas` as the names of its fields.
pub(super) fn steps(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
}

/// What to say on every request for a version that has had its day.
fn deprecation(spec: &Value, served: &Value) -> Option<String> {
    if !served.flag("deprecated") {
        return None;
    }
    if served.has("deprecationWarning") {
        return Some(served.text("deprecationWarning").to_owned());
    }
    let (group, kind, name) = (spec.text("group"), spec["names"].text("kind"), served.text("name"));
    let others = spec["versions"].as_array().into_iter().flatten();
    let newer = others.filter(|other| other.flag("served") && !other.flag("deprecated"));
    let newer = newer.map(|other| other.text("name")).filter(|other| version::compare(name, other).is_lt());
    let mut message = format!("{group}/{name} {kind} is deprecated");
    if let Some(best) = newer.max_by(|a, b| version::compare(a, b)) {
        message.push_str(&format!("; use {group}/{best} {kind}"));
    }
    Some(message)
}

/// Finalizers that were added should say whose they are.
fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let finalizers = |object: &Value| -> Vec<String> {
        let found = object.find(&["metadata", "finalizers"]).and_then(Value::as_array);
        found.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = old.map(finalizers).unwrap_or_default();
    let mut added: Vec<String> = finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in &added {
        let mut warn = |what: &str| warnings.push(format!("metadata.finalizers: {}: {what}", quote(name)));
        setpoint_api::name::qualified_name(name).iter().for_each(|complaint| warn(complaint));
        if !name.contains('/') && !STANDARD.contains(&name.as_str()) {
            let including = if name.contains('.') { " including a path (/)" } else { "" };
            warn(&format!(
                "prefer a domain-qualified finalizer name{including} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}
