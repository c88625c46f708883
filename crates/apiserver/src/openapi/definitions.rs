//! Types as schemas: what a kind's objects look like, for clients that explain and check them.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};
use setpoint_schema::facts::{self, BUILTIN};
use setpoint_schema::types::{Field, List, ListType, Patch, Shape, Struct, TypeRef};
use setpoint_schema::{Edit, Kind, builtin};

use super::custom;

/// Deepest nesting of a custom kind that is described; what is deeper is told to be an object.
const DEPTH_MAX: usize = 64;

/// The body of a patch: anything.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The body of a delete: part of every group version.
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The two forms of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// Swagger 2: no `oneOf`, no defaults.
    V2,
    /// OpenAPI 3.
    V3,
}

impl Dialect {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        }
    }

    pub(super) fn reference(self, name: &str) -> Value {
        json!({"$ref": format!("{}{name}", self.prefix())})
    }
}

/// What a definition is made from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Type(TypeRef<'a>),
    /// The list of a kind, with the type that it has if the kind is built in.
    ListOf(&'a Kind, Option<TypeRef<'a>>),
    /// A custom kind in a version of its definition.
    Custom(&'a Value, &'a str),
    Patch,
}

/// The definitions that a document needs, found while it is written.
pub(super) struct Definitions<'a> {
    dialect: Dialect,
    sources: BTreeMap<String, Source<'a>>,
    waiting: VecDeque<String>,
    kinds: BTreeMap<String, Vec<Value>>,
    /// The stored definitions of custom kinds, by the names of their schemas.
    stored: BTreeMap<String, &'a Value>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(dialect: Dialect) -> Definitions<'a> {
        let mut definitions = Definitions {
            dialect,
            sources: BTreeMap::new(),
            waiting: VecDeque::new(),
            kinds: BTreeMap::new(),
            stored: BTreeMap::new(),
        };
        // A kind may be a part of another one: claims are templates in stateful sets.
        for kind in builtin::kinds() {
            definitions.tell_kind(&object_name(kind), &kind.group, &kind.version, &kind.kind);
        }
        definitions.tell_kind(&format!("{META}.Status"), "", "v1", "Status");
        definitions.tell_kind(DELETE_OPTIONS, "", "v1", "DeleteOptions");
        definitions
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Says that a type is the one of this kind.
    pub(super) fn tell_kind(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let entry = json!({"group": group, "kind": kind, "version": version});
        let kinds = self.kinds.entry(name.to_owned()).or_default();
        if !kinds.contains(&entry) {
            kinds.push(entry);
        }
    }

    /// Says which stored definition a custom kind comes from.
    pub(super) fn tell_definition(&mut self, kind: &Kind, definition: &'a Value) {
        self.stored.insert(object_name(kind), definition);
    }

    /// A reference to a kind's objects.
    pub(super) fn object(&mut self, kind: &'a Kind) -> Value {
        let name = object_name(kind);
        self.tell_kind(&name, &kind.group, &kind.version, &kind.kind);
        let source = match self.stored.get(&name) {
            Some(definition) => Source::Custom(definition, &kind.version),
            None => Source::Type(kind.root_type()),
        };
        self.add(name, source)
    }

    /// A reference to a kind's lists.
    pub(super) fn list(&mut self, kind: &'a Kind) -> Value {
        let built_in = facts::kind_type(&kind.api_version(), &kind.list_kind);
        let (name, source) = match built_in {
            Some(ty) => (ty.get().name.to_string(), Source::ListOf(kind, Some(ty))),
            None => (format!("{}List", object_name(kind)), Source::ListOf(kind, None)),
        };
        self.tell_kind(&name, &kind.group, &kind.version, &kind.list_kind);
        self.add(name, source)
    }

    /// A reference to a type with a name.
    pub(super) fn named(&mut self, ty: TypeRef<'a>) -> Value {
        self.add(ty.get().name.to_string(), Source::Type(ty))
    }

    /// A reference to one of the types that all kinds share.
    pub(super) fn shared(&mut self, name: &str) -> Value {
        match facts::type_named(&format!("{META}.{name}")) {
            Some(ty) => self.named(ty),
            None => json!({"type": "object"}),
        }
    }

    /// A reference to the body of a patch.
    pub(super) fn patch(&mut self) -> Value {
        self.add(PATCH.to_owned(), Source::Patch)
    }

    /// Encodes all definitions that were referred to, in the order of their names. Each is dropped once it is encoded:
    /// together they are large.
    pub(super) fn encode(mut self, encode: impl Fn(&str, &Value) -> Vec<u8>) -> BTreeMap<String, Vec<u8>> {
        let mut encoded = BTreeMap::new();
        while let Some(name) = self.waiting.pop_front() {
            let mut value = match self.sources[&name] {
                Source::Type(ty) => self.definition(ty),
                Source::Custom(definition, version) => {
                    let metadata = self.shared("ObjectMeta");
                    custom::schema(definition, version, self.dialect, &metadata)
                }
                Source::ListOf(kind, ty) => self.list_definition(kind, ty),
                Source::Patch => json!({
                    "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
                    "type": "object",
                }),
            };
            if let Some(kinds) = self.kinds.get(&name) {
                value.set("x-kubernetes-group-version-kind", kinds.clone());
            }
            let bytes = encode(&name, &value);
            encoded.insert(name, bytes);
        }
        encoded
    }

    fn add(&mut self, name: String, source: Source<'a>) -> Value {
        let reference = self.dialect.reference(&name);
        if !self.sources.contains_key(&name) {
            self.waiting.push_back(name.clone());
            self.sources.insert(name, source);
        }
        reference
    }

    fn definition(&mut self, ty: TypeRef<'a>) -> Value {
        let mut value = match ty.shape() {
            Shape::Struct(shape) => self.structure(ty, shape, 0),
            _ => scalar(ty.shape(), self.dialect),
        };
        describe(&mut value, ty.get().description);
        value
    }

    /// All lists look alike; what their fields mean is told by the kind's own.
    fn list_definition(&mut self, kind: &'a Kind, ty: Option<TypeRef<'a>>) -> Value {
        let mut value = match ty {
            Some(ty) => self.definition(ty),
            None => {
                let (item, mut metadata) = (self.object(kind), self.shared("ListMeta"));
                if self.dialect == Dialect::V3 {
                    metadata = json!({"allOf": [metadata]});
                }
                describe(&mut metadata, LIST_METADATA);
                let about = format!("List of {}. More info: {CONVENTIONS}", kind.plural);
                let items = json!({"type": "array", "items": item, "description": about});
                let text = |name| json!({"type": "string", "description": custom::about_type(name)});
                let (version, own) = (text("apiVersion"), text("kind"));
                let properties = json!({"apiVersion": version, "kind": own, "metadata": metadata, "items": items});
                json!({"type": "object", "properties": properties})
            }
        };
        value.default_to("description", format!("{} is a list of {}", kind.list_kind, kind.kind));
        value.set("required", vec!["items"]);
        if let Some(properties) = value.child("properties") {
            for name in ["apiVersion", "kind"] {
                let text = kind.root_type().field(name).map_or("", |field| field.published.description);
                properties.child(name).into_iter().for_each(|field| describe(field, text));
            }
            if let Some(items) = properties.child("items") {
                items.default_to("description", format!("List of {}", kind.plural));
            }
        }
        value
    }

    fn structure(&mut self, ty: TypeRef<'a>, shape: &'a Struct, depth: usize) -> Value {
        let mut value = json!({"type": "object"});
        let mut properties = Map::new();
        for field in shape.fields.iter() {
            properties.insert(field.name.to_string(), self.field(ty, field, depth));
        }
        if !properties.is_empty() {
            value.set("properties", properties);
        }
        let required = shape.fields.iter().filter(|field| field.required && !ty.is_loose_name(field));
        let required: Vec<&str> = required.map(|field| &*field.name).collect();
        if !required.is_empty() {
            value.set("required", required);
        }
        if shape.atomic {
            value.set("x-kubernetes-map-type", "atomic");
        }
        if shape.open {
            value.set("x-kubernetes-preserve-unknown-fields", true);
        }
        value
    }

    fn field(&mut self, owner: TypeRef<'a>, field: &'a Field, depth: usize) -> Value {
        let ty = owner.to(field.ty);
        let mut value = self.usage(ty, depth + 1);
        let default = self.default(owner, field);
        // OpenAPI 3 ignores what stands beside a reference.
        if self.dialect == Dialect::V3
            && value.get("$ref").is_some()
            && (default.is_some() || !field.published.description.is_empty())
        {
            value = json!({"allOf": [value]});
        }
        if let Some(default) = default {
            value.set("default", default);
        }
        describe(&mut value, field.published.description);
        tell_patch(&mut value, &field.published.patch);
        value
    }

    /// A type where it is used: a reference to it if it has a name, all of it otherwise.
    fn usage(&mut self, ty: TypeRef<'a>, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return json!({"type": "object"});
        }
        match ty.shape() {
            Shape::Struct(_) if !ty.get().name.is_empty() => self.named(ty),
            Shape::Struct(shape) => {
                let mut value = self.structure(ty, shape, depth);
                describe(&mut value, ty.get().description);
                value
            }
            Shape::Map(map) => {
                let values = self.element(ty.to(map.value), depth + 1);
                let mut value = json!({"type": "object", "additionalProperties": values});
                if map.atomic {
                    value.set("x-kubernetes-map-type", "atomic");
                }
                value
            }
            Shape::List(list) => self.array(ty, list, depth),
            Shape::Quantity
            | Shape::Time
            | Shape::MicroTime
            | Shape::IntOrString
            | Shape::Raw
            | Shape::Json
            | Shape::FieldsV1
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrList(_)
            | Shape::SchemaOrStrings(_)
                if ty.get().name.contains('.') =>
            {
                self.named(ty)
            }
            shape => scalar(shape, self.dialect),
        }
    }

    fn array(&mut self, ty: TypeRef<'a>, list: &'a List, depth: usize) -> Value {
        let item = ty.to(list.item);
        let items = if list.item_pointer { self.usage(item, depth + 1) } else { self.element(item, depth + 1) };
        let mut value = json!({"type": "array", "items": items});
        match &list.list_type {
            // What is not said is atomic.
            ListType::Atomic => {}
            ListType::Set => value.set("x-kubernetes-list-type", "set"),
            ListType::Map(keys) => {
                value.set("x-kubernetes-list-type", "map");
                value.set("x-kubernetes-list-map-keys", keys.iter().map(|key| json!(key)).collect::<Vec<_>>());
            }
        }
        value
    }

    /// An item of a list or a value of a map.
    fn element(&mut self, ty: TypeRef<'a>, depth: usize) -> Value {
        let mut value = self.usage(ty, depth);
        if self.dialect == Dialect::V2 || !is_builtin(ty) {
            return value;
        }
        if let Some(zero) = ty.published_zero(false) {
            if value.get("$ref").is_some() {
                value = json!({"allOf": [value]});
            }
            value.set("default", zero);
        }
        value
    }

    fn default(&self, owner: TypeRef<'a>, field: &Field) -> Option<Value> {
        if self.dialect == Dialect::V2 {
            return None;
        }
        if !is_builtin(owner) {
            return owner.default_of(field).map(Cow::into_owned);
        }
        owner.published_default(field).map(Cow::into_owned)
    }
}

/// The name of a kind's definition: custom kinds are named after their group.
pub(super) fn object_name(kind: &Kind) -> String {
    let ty = kind.root_type();
    if is_builtin(ty) {
        return ty.get().name.to_string();
    }
    let group = kind.group.split('.').rev().collect::<Vec<_>>().join(".");
    format!("{group}.{}.{}", kind.version, kind.kind)
}

fn is_builtin(ty: TypeRef<'_>) -> bool {
    std::ptr::eq(ty.schema(), &raw const BUILTIN)
}

fn scalar(shape: &Shape, dialect: Dialect) -> Value {
    let v3 = dialect == Dialect::V3;
    match shape {
        Shape::String => json!({"type": "string"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Float => json!({"type": "number", "format": "double"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Quantity if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::Quantity => json!({"type": "string"}),
        Shape::IntOrString if v3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Shape::IntOrString => json!({"type": "string", "format": "int-or-string"}),
        Shape::Raw | Shape::FieldsV1 | Shape::Struct(_) | Shape::Map(_) => json!({"type": "object"}),
        Shape::List(_) => json!({"type": "array"}),
        Shape::Json | Shape::SchemaOrBool(_) | Shape::SchemaOrList(_) | Shape::SchemaOrStrings(_) => json!({}),
    }
}

fn describe(value: &mut Value, text: &str) {
    if !text.is_empty() {
        value.set("description", text);
    }
}

fn tell_patch(value: &mut Value, patch: &Patch) {
    let words = [(patch.merge, "merge"), (patch.retain_keys, "retainKeys"), (patch.replace, "replace")];
    let strategy: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    if !strategy.is_empty() {
        value.set("x-kubernetes-patch-strategy", strategy.join(","));
    }
    if !patch.key.is_empty() {
        value.set("x-kubernetes-patch-merge-key", patch.key);
    }
}
