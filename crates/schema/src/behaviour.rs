//! What a kind decides for itself: defaults, rules, what a user may set, how it is shown.
//!
//! Every method has the answer most kinds give; a kind overrides what it does differently.

use std::borrow::Cow;

use serde_json::{Map, Value};
use setpoint_api::FieldError;

use crate::columns::{self, Column};
use crate::decode::{self, DecodeError, Decoded};
use crate::errors::Errors;
use crate::json::Json;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::Selectable;
use crate::types::TypeRef;

/// What the request knows and a kind may need: no clock and no chance of its own.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Time of the request, in seconds since 1970.
    pub now: i64,
    /// Who asks.
    pub user: User,
    /// Whether nothing is going to be stored.
    pub dry_run: bool,
}

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Unique id; may be empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// More that the authenticator knows.
    pub extra: Vec<(String, Vec<String>)>,
}

/// When `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Never,
    /// When one of these top-level fields changes in meaning.
    On(&'static [&'static str]),
    /// When anything but metadata changes.
    OnAllButMetadata,
}

/// Where the scale subresource finds its numbers, as fields from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired count.
    pub spec_replicas: Vec<String>,
    /// Actual count.
    pub status_replicas: Vec<String>,
    /// Label selector: an object (`LabelSelector`), a map, or its text form.
    pub selector: Option<Vec<String>>,
}

/// The decisions of one kind. The order of a write is: decode, [`default`](Self::default), admission, `prepare_*`,
/// `check_*`, [`canonicalize`](Self::canonicalize), normalise, store. [`Kind`] runs the parts that are the same for all.
pub trait Behaviour: Send + Sync + std::fmt::Debug {
    /// Reads a document as an object of this kind, whose type is `root`. Every body goes through this.
    fn decode(&self, document: Json<'_>, root: TypeRef<'_>) -> Result<Decoded, DecodeError> {
        decode::decode(document, root)
    }

    /// Reads what an apply made of an object. Nulls that were applied are still there, where a body would lose them.
    fn decode_merged(&self, document: Json<'_>, root: TypeRef<'_>) -> Result<Decoded, DecodeError> {
        self.decode(document, root)
    }

    /// Whether a list or map that is given empty counts as a change of one that is absent, when the generation moves. It is stored as absent,
    /// so each write with it counts.
    fn tells_empty_from_absent(&self) -> bool {
        false
    }

    /// Fills in what the user left out. Also runs on objects read from storage, so it must not depend on when it runs.
    fn default(&self, _object: &mut Value) {}

    /// Clears or sets what a user may not choose on creation.
    fn prepare_create(&self, _object: &mut Value, _context: &Context) {}

    /// Takes from the old object what a user may not change here; `status` first of all, if it has its own way.
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _context: &Context) {}

    /// For writes to `/status`: takes everything but status and metadata from the old object.
    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but(new, old, &["status", "metadata", "kind", "apiVersion"]);
    }

    /// For writes to other subresources that take the whole object (`finalize`, `approval`, `resize` ...).
    fn prepare_subresource_update(&self, _subresource: &str, new: &mut Value, old: &Value, context: &Context) {
        self.prepare_update(new, old, context);
    }

    /// The rules for a valid object, metadata apart.
    fn validate(&self, _object: &Node<'_>, _errs: &mut Errors) {}

    /// What may not change, metadata apart. The rules of [`validate`](Self::validate) are checked too, after this.
    fn validate_update(&self, _new: &Node<'_>, _old: &Node<'_>, _errs: &mut Errors) {}

    /// The rules for a write to `/status`, metadata apart.
    fn validate_status_update(&self, _new: &Node<'_>, _old: &Node<'_>, _errs: &mut Errors) {}

    /// All rules for a creation, in upstream's order. Override only where that order differs.
    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate(object, kind.namespaced, self.name_rule(), errs);
        self.validate(object, errs);
    }

    /// All rules for an update, in upstream's order. Override only where that order differs.
    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        self.validate_update(new, old, errs);
        self.check_create(kind, new, errs);
    }

    /// All rules for a write to `/status`.
    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        self.validate_status_update(new, old, errs);
    }

    /// All rules for a write to another subresource that takes the whole object.
    fn check_subresource_update(&self, _sub: &str, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_update(kind, new, old, errs);
    }

    /// What the user should know although it is allowed. `old` is there on an update.
    fn warnings(&self, _new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        Vec::new()
    }

    /// What to say on every request for a kind that has had its day.
    fn deprecation(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The last touch before storing, after validation. What was in normal form still is.
    fn canonicalize(&self, _object: &mut Value) {}

    /// What names are allowed.
    fn name_rule(&self) -> NameRule {
        NameRule::SUBDOMAIN
    }

    /// When the generation moves.
    fn generation(&self) -> Generation {
        Generation::Never
    }

    /// Whether a `PUT` of an absent object creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Whether an update without resourceVersion is taken as it is.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// How long a deleted object stays, given what the request asked for; None deletes it at once.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether dependents are left behind when the request doesn't say.
    fn orphans_dependents(&self) -> bool {
        false
    }

    /// Fields that a write to `subresource` (`""` for the object itself) can't change, so nobody manages them through
    /// it. Dots separate the steps.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec"],
            _ => &[],
        }
    }

    /// Fields that a field selector may name, besides `metadata.name` and `metadata.namespace`.
    fn selectable(&self) -> &[Selectable] {
        &[]
    }

    /// Columns of its table.
    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        columns::DEFAULT.into()
    }

    /// Cells of a row beyond those of its columns. One kind has them upstream.
    fn cells_without_column(&self, _object: &Value, _now: i64) -> Vec<Value> {
        Vec::new()
    }

    /// Metadata as a table row carries it, where that isn't the object's own.
    fn row_metadata(&self, _metadata: &mut Value) {}

    /// Conditions of a table row, such as a pod that is done.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// The version of the same group and kind in which objects are kept, if it isn't this one: versions share objects.
    fn stored_version(&self) -> Option<&str> {
        None
    }

    /// Brings an object of this version into the form in which it is kept, after all checks.
    fn to_stored(&self, _object: &mut Value) {}

    /// Brings an object that is kept in [`stored_version`](Self::stored_version) into this version, on every read. Custom
    /// kinds need it even if that is this version, because their schema may have changed since.
    fn read_stored(&self, _object: &mut Value) {}

    /// Brings a stored object into the form of the version that it says it is of, as far as the definition still has that one.
    fn read_own(&self, _object: &mut Value) {}

    /// Brings what a webhook has made of an object into the form of the version that it says it is of.
    fn fit_converted(&self, _object: &mut Value) -> Result<(), FieldError> {
        Ok(())
    }

    /// Where the scale subresource finds its numbers.
    fn scale(&self) -> Option<ScalePaths> {
        None
    }
}

/// A kind that decides nothing for itself.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Behaviour for Plain {}

/// Replaces every top-level field of `new`, but those in `free`, by that of `old`.
pub fn keep_all_but(new: &mut Value, old: &Value, free: &[&str]) {
    let empty = Map::new();
    let old = old.as_object().unwrap_or(&empty);
    let Some(fields) = new.as_object_mut() else { return };
    fields.retain(|name, _| free.contains(&name.as_str()) || old.contains_key(name));
    for (name, value) in old.iter().filter(|(name, _)| !free.contains(&name.as_str())) {
        take(fields, name, value);
    }
}

/// Sets a field to a copy of a value. Mostly it is so already, and comparing costs less than copying.
fn take(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    if fields.get(name) != Some(value) {
        fields.insert(name.to_owned(), value.clone());
    }
}

/// Takes these top-level fields from `old`: what a user may not change through this way of writing.
pub fn keep(new: &mut Value, old: &Value, fields: &[&str]) {
    let Some(taken) = new.as_object_mut() else { return };
    for name in fields {
        match old.get(name) {
            Some(value) => take(taken, name, value),
            None => drop(taken.remove(*name)),
        }
    }
}
