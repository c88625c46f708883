//! From the schemas of a definition to its [`Tree`]: equal schemas become one type.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::expressions::Validations;
use super::rules::{Nested, Rules};
use super::tree::{Below, Facet, JsonType, Node, Tree};
use crate::cel;
use crate::edit::Edit;
use crate::facts;
use crate::types::{Field, List, ListType, Map, Published, Schema, Shape, Struct, Text, Type, TypeId, head};

/// Deepest schema. Bodies are bounded to a smaller depth; this only keeps the walk's stack bounded.
const DEPTH_MAX: usize = 100;

static OBJECT_META: LazyLock<TypeId> = LazyLock::new(|| {
    let meta = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("a built-in type");
    TypeId::shared(meta.id())
});

/// What rules see of metadata that a schema doesn't describe.
static SEEN_METADATA: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {"name": text, "generateName": text}})
});

/// Makes a tree, one root after the other.
#[derive(Default)]
pub(super) struct Builder {
    types: Vec<Type>,
    nodes: Vec<Node>,
    known: HashMap<Box<[u8]>, TypeId>,
    /// Where keys are made: most schemas are known already, and theirs are not kept.
    key: Vec<u8>,
}

impl Builder {
    /// Adds the schema of a version.
    pub(super) fn root(&mut self, schema: &Value) -> Result<TypeId, String> {
        self.add(schema, true, 0)
    }

    /// Adds a part of the schema of a version.
    pub(super) fn part(&mut self, schema: &Value) -> Result<TypeId, String> {
        self.add(schema, false, 0)
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
        let is_leaf = !root && !["properties", "items", "additionalProperties"].iter().any(|name| schema.has(name));
        if is_leaf && let Some(id) = self.find(schema, None, root) {
            return Ok(id);
        }
        let ty = JsonType::of(schema);
        let embedded = root || schema.flag("x-kubernetes-embedded-resource");
        let shape = self.shape(schema, ty, embedded, depth)?;
        if let Some(id) = self.find(schema, Some(&shape).filter(|_| !is_leaf), root) {
            return Ok(id);
        }
        let key = std::mem::take(&mut self.key);
        let rules = Rules::read(schema, ty)?;
        let validations = Validations::read(schema);
        let default = schema.get("default").filter(|value| !value.is_null()).map(|value| Arc::new(value.clone()));
        let metadata = schema["properties"].get("metadata").filter(|_| embedded);
        let seen_metadata = match (embedded, metadata.filter(|_| cel::knows_metadata(schema))) {
            (false, _) => None,
            (true, Some(known)) => Some(self.add(known, false, depth + 1)?),
            (true, None) => Some(self.add(&SEEN_METADATA, false, depth + 1)?),
        };
        let metadata = metadata.map(Nested::read).transpose()?.map(Box::new);
        let mut below = Below {
            defaults: default.is_some(),
            embedded: embedded && !root,
            list_types: matches!(&shape, Shape::List(list) if list.list_type != ListType::Atomic),
            validations: validations.is_some(),
        };
        for id in children(&shape).filter(|id| !id.is_shared()) {
            below.add(self.nodes[id.0 as usize].below);
        }
        let rare = default.is_some() || !rules.is_empty() || validations.is_some() || embedded;
        let node = Node {
            ty,
            nullable: schema.flag("nullable"),
            embedded,
            preserves: schema.flag("x-kubernetes-preserve-unknown-fields"),
            unknown: false,
            below,
            facet: rare
                .then(|| Box::new(Facet { default: default.clone(), rules, validations, metadata, seen_metadata })),
        };
        Ok(self.push(key.into_boxed_slice(), default, shape, node))
    }

    /// The type of a schema, if there is one already; else its key is left behind.
    fn find(&mut self, schema: &Value, shape: Option<&Shape>, root: bool) -> Option<TypeId> {
        self.key.clear();
        write_key(&mut self.key, schema, shape, root);
        self.known.get(&*self.key).copied()
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
        self.intern(b"unknown", Shape::Json, node)
    }

    fn intern(&mut self, key: &[u8], shape: Shape, node: Node) -> TypeId {
        match self.known.get(key) {
            Some(id) => *id,
            None => self.push(key.into(), None, shape, node),
        }
    }

    fn push(&mut self, key: Box<[u8]>, default: Option<Arc<Value>>, shape: Shape, node: Node) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("a definition is smaller than that"));
        self.types.push(Type { name: "", go: "", description: "", default, shape });
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
            fields.push(field(name, ty, required.contains(&name.as_str())));
        }
        if embedded {
            let text = self.intern_text();
            for name in ["apiVersion", "kind"].into_iter().filter(|name| !schema["properties"].has(name)) {
                fields.push(field(name, text, false));
            }
            fields.push(field("metadata", *OBJECT_META, false));
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
        self.intern(b"text", Shape::String, node)
    }
}

fn field(name: &str, ty: TypeId, required: bool) -> Field {
    Field {
        name: Text::Owned(name.to_owned()),
        head: head(name),
        ty,
        pointer: true,
        omit_empty: true,
        omit_zero: true,
        required,
        published: Published::NOTHING,
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
fn write_key(key: &mut Vec<u8>, schema: &Value, shape: Option<&Shape>, root: bool) {
    key.push(u8::from(root));
    if let Some(Shape::Struct(object)) = shape {
        for field in object.fields.iter() {
            key.extend(field.name.as_bytes());
            key.push(0);
            key.extend(field.ty.0.to_le_bytes());
        }
    } else if let Some(shape) = shape {
        children(shape).for_each(|id| key.extend(id.0.to_le_bytes()));
    }
    for (name, value) in schema.as_object().into_iter().flatten() {
        match name.as_str() {
            "properties" if root || schema.flag("x-kubernetes-embedded-resource") => {
                write_json(key, &value["metadata"]);
            }
            "properties" | "items" | "description" | "title" | "example" | "externalDocs" => {}
            "additionalProperties" if value.is_object() => key.push(b'a'),
            other => {
                key.extend(other.as_bytes());
                write_json(key, value);
            }
        }
    }
}

fn write_json(key: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(key, value).expect("writing to memory does not fail");
}
