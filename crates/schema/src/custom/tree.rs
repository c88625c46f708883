//! Schemas as types: one arena for all versions of a definition, and what each schema asks of values beside it.
//!
//! Equal schemas are one type, descriptions apart (they are published from the definition itself), so that a large
//! definition, which repeats itself much, is kept small.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::expressions::Validations;
use super::rules::{Nested, Rules};
use crate::edit::Edit;
use crate::facts;
use crate::types::{Field, FieldDefault, List, ListType, Map, Patch, Schema, Shape, Struct, Text, Type, TypeId};

/// Deepest schema. Bodies are bounded to a smaller depth; this only keeps the walk's stack bounded.
const DEPTH_MAX: usize = 100;

static OBJECT_META: LazyLock<TypeId> = LazyLock::new(|| {
    let meta = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("a built-in type");
    TypeId::shared(meta.id())
});

/// All types of a definition.
#[derive(Debug)]
pub(super) struct Tree {
    /// The types.
    pub(super) schema: Arc<Schema>,
    /// What is asked of values of the type at the same place.
    nodes: Box<[Node]>,
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
    fn add(&mut self, other: Below) {
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
    pub(super) metadata: Option<Nested>,
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

/// Makes a tree, one root after the other.
#[derive(Default)]
pub(super) struct Builder {
    types: Vec<Type>,
    nodes: Vec<Node>,
    known: HashMap<Vec<u8>, TypeId>,
}

impl Builder {
    /// Adds the schema of a version.
    pub(super) fn root(&mut self, schema: &Value) -> Result<TypeId, String> {
        self.add(schema, true, 0)
    }

    /// All that was added.
    pub(super) fn finish(self) -> Tree {
        let mut types = self.types;
        types.shrink_to_fit();
        Tree { schema: Arc::new(Schema::new(types)), nodes: self.nodes.into_boxed_slice() }
    }

    fn add(&mut self, schema: &Value, root: bool, depth: usize) -> Result<TypeId, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the schema is nested deeper than {DEPTH_MAX} levels"));
        }
        if !schema.is_object() {
            return Err("a schema is missing".to_owned());
        }
        let ty = JsonType::of(schema);
        let embedded = root || schema.flag("x-kubernetes-embedded-resource");
        let shape = self.shape(schema, ty, embedded, depth)?;
        let rules = Rules::read(schema, ty)?;
        let validations = Validations::read(schema, embedded);
        let default = schema.get("default").filter(|value| !value.is_null()).map(|value| Arc::new(value.clone()));
        let metadata = schema["properties"].get("metadata").filter(|_| embedded).map(Nested::read).transpose()?;
        let mut below = Below {
            defaults: default.is_some(),
            embedded: embedded && !root,
            list_types: matches!(&shape, Shape::List(list) if list.list_type != ListType::Atomic),
            validations: validations.is_some(),
        };
        for id in children(&shape).filter(|id| !id.is_shared()) {
            below.add(self.nodes[id.0 as usize].below);
        }
        let rare = default.is_some() || !rules.is_empty() || validations.is_some() || metadata.is_some();
        let node = Node {
            ty,
            nullable: schema.flag("nullable"),
            embedded,
            preserves: schema.flag("x-kubernetes-preserve-unknown-fields"),
            unknown: false,
            below,
            facet: rare.then(|| Box::new(Facet { default, rules, validations, metadata })),
        };
        Ok(self.intern(key(schema, &shape, root), shape, node))
    }

    /// The type of values of which nothing is known.
    fn unknown(&mut self) -> TypeId {
        let node = Node {
            ty: JsonType::Any,
            nullable: true,
            embedded: false,
            preserves: false,
            unknown: true,
            below: Below::default(),
            facet: None,
        };
        self.intern(b"unknown".to_vec(), Shape::Json, node)
    }

    fn intern(&mut self, key: Vec<u8>, shape: Shape, node: Node) -> TypeId {
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = TypeId(u32::try_from(self.types.len()).expect("a definition is smaller than that"));
        self.types.push(Type { name: Text::default(), go: Text::default(), description: Text::default(), shape });
        self.nodes.push(node);
        self.known.insert(key, id);
        id
    }

    fn shape(&mut self, schema: &Value, ty: JsonType, embedded: bool, depth: usize) -> Result<Shape, String> {
        Ok(match ty {
            JsonType::String => Shape::String,
            JsonType::Boolean => Shape::Bool,
            JsonType::Integer if schema.text("format") == "int32" => Shape::Int32,
            JsonType::Integer => Shape::Int64,
            JsonType::Number => Shape::Float,
            JsonType::IntOrString => Shape::IntOrString,
            JsonType::Array => Shape::List(self.list(schema, depth)?),
            JsonType::Any if !schema.has("properties") && !schema.has("additionalProperties") => Shape::Json,
            JsonType::Object | JsonType::Any => match schema.get("additionalProperties").filter(|_| !embedded) {
                Some(Value::Bool(true)) => self.map(schema, None, depth)?,
                Some(inner @ Value::Object(_)) => self.map(schema, Some(inner), depth)?,
                _ => Shape::Struct(self.object(schema, embedded, depth)?),
            },
        })
    }

    fn map(&mut self, schema: &Value, value: Option<&Value>, depth: usize) -> Result<Shape, String> {
        let value = match value {
            Some(value) => self.add(value, false, depth + 1)?,
            None => self.unknown(),
        };
        Ok(Shape::Map(Map { value, atomic: schema.text("x-kubernetes-map-type") == "atomic" }))
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Result<List, String> {
        let item = match schema.get("items").filter(|items| items.is_object()) {
            Some(items) => self.add(items, false, depth + 1)?,
            None => self.unknown(),
        };
        let list_type = match schema.text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let keys = keys.filter_map(Value::as_str).map(|key| Text::Owned(key.to_owned()));
                ListType::Map(Cow::Owned(keys.collect()))
            }
            _ => ListType::Atomic,
        };
        Ok(List { item, item_pointer: true, list_type })
    }

    fn object(&mut self, schema: &Value, embedded: bool, depth: usize) -> Result<Struct, String> {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = Vec::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if embedded && name == "metadata" {
                continue;
            }
            let ty = self.add(property, false, depth + 1)?;
            let default = self.nodes[ty.0 as usize].facet.as_ref().and_then(|facet| facet.default.clone());
            let default = default.map_or(FieldDefault::None, FieldDefault::Value);
            fields.push(field(name, ty, required.contains(&name.as_str()), default));
        }
        if embedded {
            let text = self.intern_text();
            for name in ["apiVersion", "kind"].into_iter().filter(|name| !schema["properties"].has(name)) {
                fields.push(field(name, text, false, FieldDefault::None));
            }
            fields.push(field("metadata", *OBJECT_META, false, FieldDefault::None));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.shrink_to_fit();
        let atomic = schema.text("x-kubernetes-map-type") == "atomic";
        Ok(Struct { fields: Cow::Owned(fields), atomic, open: schema.flag("x-kubernetes-preserve-unknown-fields") })
    }

    /// The type of texts of which nothing is asked.
    fn intern_text(&mut self) -> TypeId {
        let node = Node {
            ty: JsonType::String,
            nullable: false,
            embedded: false,
            preserves: false,
            unknown: false,
            below: Below::default(),
            facet: None,
        };
        self.intern(b"text".to_vec(), Shape::String, node)
    }
}

fn field(name: &str, ty: TypeId, required: bool, default: FieldDefault) -> Field {
    Field {
        name: Text::Owned(name.to_owned()),
        ty,
        pointer: true,
        omit_empty: true,
        place: 0,
        omit_zero: true,
        required,
        embedded: Text::default(),
        description: Text::default(),
        default,
        patch: Patch::default(),
    }
}

fn children(shape: &Shape) -> Box<dyn Iterator<Item = TypeId> + '_> {
    match shape {
        Shape::Struct(object) => Box::new(object.fields.iter().map(|field| field.ty)),
        Shape::Map(map) => Box::new(std::iter::once(map.value)),
        Shape::List(list) => Box::new(std::iter::once(list.item)),
        _ => Box::new(std::iter::empty()),
    }
}

/// What makes two schemas the same: their children are the same types, and all else but descriptions is equal.
fn key(schema: &Value, shape: &Shape, root: bool) -> Vec<u8> {
    let mut key = vec![u8::from(root)];
    if let Shape::Struct(object) = shape {
        for field in object.fields.iter() {
            key.extend(field.name.as_bytes());
            key.push(0);
            key.extend(field.ty.0.to_le_bytes());
        }
    } else {
        children(shape).for_each(|id| key.extend(id.0.to_le_bytes()));
    }
    for (name, value) in schema.as_object().into_iter().flatten() {
        match name.as_str() {
            "properties" if root || schema.flag("x-kubernetes-embedded-resource") => {
                key.extend(value["metadata"].to_string().as_bytes());
            }
            "properties" | "items" | "description" | "title" | "example" | "externalDocs" => {}
            "additionalProperties" if value.is_object() => key.push(b'a'),
            other => {
                key.extend(other.as_bytes());
                key.extend(value.to_string().as_bytes());
            }
        }
    }
    key
}
