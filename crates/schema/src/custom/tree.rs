//! Schemas as types: one arena for all versions of a definition, and what each schema asks of values beside it.
//!
//! Equal schemas are one type, descriptions apart (they are published from the definition itself), so that a large
//! definition, which repeats itself much, is kept small. Made by [`super::builder`].

use std::sync::Arc;

use serde_json::Value;

use super::expressions::Validations;
use super::rules::{Nested, Rules};
use crate::edit::Edit;
use crate::types::{Field, ListType, Schema, Shape, TypeId};

/// All types of a definition.
#[derive(Debug)]
pub(super) struct Tree {
    /// The types.
    pub(super) schema: Arc<Schema>,
    /// What is asked of values of the type at the same place.
    pub(super) nodes: Box<[Node]>,
}

/// What a schema says beside the shape of values.
#[derive(Debug)]
pub(super) struct Node {
    /// The type that values have.
    pub(super) ty: JsonType,
    /// Null is a value.
    pub(super) nullable: bool,
    /// A whole object of its own: it has `apiVersion`, `kind` and `metadata`.
    pub(super) embedded: bool,
    /// Keeps fields that it doesn't know.
    pub(super) preserves: bool,
    /// There is no schema: nothing is known, and fields of objects are dropped.
    pub(super) unknown: bool,
    /// What is here or below.
    pub(super) below: Below,
    /// The rarer things.
    pub(super) facet: Option<Box<Facet>>,
}

/// What is somewhere in a schema, so that walks pass over what has nothing for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Below {
    /// Defaults.
    pub(super) defaults: bool,
    /// Embedded objects.
    pub(super) embedded: bool,
    /// Sets and maps in lists.
    pub(super) list_types: bool,
    /// Rules in CEL.
    pub(super) validations: bool,
}

impl Below {
    pub(super) fn add(&mut self, other: Below) {
        self.defaults |= other.defaults;
        self.embedded |= other.embedded;
        self.list_types |= other.list_types;
        self.validations |= other.validations;
    }
}

/// What only some schemas have.
#[derive(Debug, Default)]
pub(super) struct Facet {
    /// What an absent value becomes.
    pub(super) default: Option<Arc<Value>>,
    /// Bounds, patterns and the like.
    pub(super) rules: Rules,
    /// Rules in CEL.
    pub(super) validations: Option<Validations>,
    /// What the schema asks of `metadata` of the object itself or of an embedded one.
    pub(super) metadata: Option<Box<Nested>>,
    /// What rules in CEL see of `metadata` of the object itself or of an embedded one.
    pub(super) seen_metadata: Option<TypeId>,
}

/// The type of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonType {
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl JsonType {
    pub(super) fn of(schema: &Value) -> Self {
        if schema.flag("x-kubernetes-int-or-string") {
            return Self::IntOrString;
        }
        match schema.text("type") {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => Self::Any,
        }
    }

    /// As messages call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

/// A schema: a type of the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    tree: &'a Tree,
    id: TypeId,
}

impl Tree {
    /// The schema of a type. None if the type is a built-in one, of which definitions say nothing.
    pub(super) fn place(&self, id: TypeId) -> Option<Place<'_>> {
        (!id.is_shared()).then_some(Place { tree: self, id })
    }
}

impl<'a> Place<'a> {
    /// Its tree.
    pub(super) fn tree(self) -> &'a Tree {
        self.tree
    }

    /// Its place in the tree.
    pub(super) fn id(self) -> TypeId {
        self.id
    }

    /// What it asks of values.
    pub(super) fn node(self) -> &'a Node {
        &self.tree.nodes[self.id.0 as usize]
    }

    /// The rarer things that it asks.
    pub(super) fn facet(self) -> Option<&'a Facet> {
        self.node().facet.as_deref()
    }

    /// What an absent value becomes.
    pub(super) fn default(self) -> Option<&'a Value> {
        self.facet()?.default.as_deref()
    }

    /// The shape of its values.
    pub(super) fn shape(self) -> &'a Shape {
        self.tree.schema.get(self.id).shape()
    }

    /// Its fields, `metadata` and the like of whole objects apart unless the schema has them.
    pub(super) fn fields(self) -> &'a [Field] {
        match self.shape() {
            Shape::Struct(object) => &object.fields,
            _ => &[],
        }
    }

    /// The schema of a field that it declares.
    pub(super) fn field(self, name: &str) -> Option<Place<'a>> {
        let fields = self.fields();
        let at = fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        self.tree.place(fields[at].ty)
    }

    /// The schema of fields that it doesn't declare.
    pub(super) fn additional(self) -> Option<Place<'a>> {
        match self.shape() {
            Shape::Map(map) => self.tree.place(map.value),
            _ => None,
        }
    }

    /// The schema of a field, declared or not.
    pub(super) fn child(self, name: &str) -> Option<Place<'a>> {
        self.field(name).or_else(|| self.additional())
    }

    /// The schema of items.
    pub(super) fn item(self) -> Option<Place<'a>> {
        match self.shape() {
            Shape::List(list) => self.tree.place(list.item),
            _ => None,
        }
    }

    /// How items of a list are told apart.
    pub(super) fn list_type(self) -> Option<&'a ListType> {
        match self.shape() {
            Shape::List(list) => Some(&list.list_type),
            _ => None,
        }
    }
}
