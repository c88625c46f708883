//! The shape of every kind: an arena of types that refer to each other by index, so recursive types need no special care.
//!
//! One tree serves built-in kinds (static, made by the build script from `facts/`) and custom kinds (made at run time).
//! Start at [`TypeRef`]: a type together with the arena it lives in.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::facts::BUILTIN;

/// Text that is static for built-in kinds and owned for custom ones.
pub type Text = Cow<'static, str>;

/// An arena of types.
#[derive(Debug, Default)]
pub struct Schema {
    types: Cow<'static, [Type]>,
}

/// Position of a type in its [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Marks a position among the built-in types: a custom kind shares ObjectMeta and Scale instead of keeping copies.
const BUILTIN_MARK: u32 = 1 << 31;

impl TypeId {
    /// The position of a built-in type, as the arena of a custom kind refers to it.
    pub(crate) fn shared(builtin: TypeId) -> TypeId {
        TypeId(builtin.0 | BUILTIN_MARK)
    }

    /// Whether this is a built-in type that a custom kind refers to.
    pub(crate) fn is_shared(self) -> bool {
        self.0 & BUILTIN_MARK != 0
    }
}

/// One type.
#[derive(Debug, Clone)]
pub struct Type {
    /// OpenAPI name (`io.k8s.api.core.v1.PodSpec`), or the Go form for lists and maps; empty for custom kinds.
    pub name: &'static str,
    /// How Go prints this type in decoding errors (`v1.PodSpec`, `[]string`); empty for custom kinds.
    pub go: &'static str,
    /// What the type is for, as published in OpenAPI.
    pub description: &'static str,
    /// What an absent value becomes (custom kinds only).
    pub default: Option<Arc<Value>>,
    /// What values of it look like.
    pub shape: Shape,
}

/// What values of a type look like in JSON.
#[derive(Debug, Clone)]
pub enum Shape {
    /// An object with known fields.
    Struct(Struct),
    /// An object with free keys.
    Map(Map),
    /// An array.
    List(List),
    /// A string.
    String,
    /// true or false.
    Bool,
    /// A whole number that fits 32 bits.
    Int32,
    /// A whole number that fits 64 bits.
    Int64,
    /// A number.
    Float,
    /// Bytes in base64.
    Bytes,
    /// A resource quantity: `100m`, `1Gi`, or a number.
    Quantity,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A whole number or a string.
    IntOrString,
    /// Any object, kept as it is (`RawExtension`).
    Raw,
    /// Any JSON, kept as it is.
    Json,
    /// The set of fields somebody manages, kept as it is.
    FieldsV1,
    /// A JSON schema or a boolean.
    SchemaOrBool(TypeId),
    /// A JSON schema or a list of them.
    SchemaOrList(TypeId),
    /// A JSON schema or a list of strings.
    SchemaOrStrings(TypeId),
}

/// An object with known fields.
#[derive(Debug, Clone, Default)]
pub struct Struct {
    /// Sorted by name.
    pub fields: Cow<'static, [Field]>,
    /// Owned and replaced as a whole by server-side apply (`map-type=atomic`).
    pub atomic: bool,
    /// Keeps fields that it doesn't know (custom kinds only).
    pub open: bool,
}

/// An object with free keys.
#[derive(Debug, Clone)]
pub struct Map {
    /// Type of each value.
    pub value: TypeId,
    /// Owned and replaced as a whole by server-side apply.
    pub atomic: bool,
}

/// An array.
#[derive(Debug, Clone)]
pub struct List {
    /// Type of each item.
    pub item: TypeId,
    /// Whether items are pointers in Go, so that a null stays a null.
    pub item_pointer: bool,
    /// How server-side apply merges it.
    pub list_type: ListType,
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Items told apart by the values of these keys.
    Map(Cow<'static, [Text]>),
}

/// One field of a [`Struct`]. Custom kinds have many, so what only built-in ones have stands apart.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: Text,
    /// The beginning of the name as [`head`] tells it.
    pub head: u64,
    /// Type of the value.
    pub ty: TypeId,
    /// A pointer in Go: a zero value that was given is kept.
    pub pointer: bool,
    /// Left out when empty; a field without it is always printed.
    pub omit_empty: bool,
    /// Left out when it is the zero value, structs and times too.
    pub omit_zero: bool,
    /// Required by the published schema.
    pub required: bool,
    /// What Kubernetes publishes of it.
    pub published: &'static Published,
}

/// What Kubernetes publishes of a field of its own kinds, beside its type.
#[derive(Debug)]
pub struct Published {
    /// Which field of its Go struct it is, counted from 0: the order in which Kubernetes prints them.
    pub place: u16,
    /// Embedded Go structs on the way to the field, each with a dot: Go names them in errors.
    pub embedded: &'static str,
    /// What the field is for, as published in OpenAPI.
    pub description: &'static str,
    /// Default in the published schema, as JSON text.
    pub default: Option<&'static str>,
    /// How a strategic merge patch treats it.
    pub patch: Patch,
}

impl Published {
    /// Nothing: what is known of the fields of custom kinds.
    pub const NOTHING: &'static Published = &Published {
        place: 0,
        embedded: "",
        description: "",
        default: None,
        patch: Patch { merge: false, retain_keys: false, replace: false, key: "" },
    };
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// `merge`: lists are merged by [`Patch::key`], or as sets without one.
    pub merge: bool,
    /// `retainKeys`: fields that the patch doesn't name may be cleared.
    pub retain_keys: bool,
    /// `replace`: replaced although it is an object.
    pub replace: bool,
    /// Name of the field that tells list items apart; empty for none.
    pub key: &'static str,
}

/// A type and its arena.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    schema: &'a Schema,
    id: TypeId,
}

impl Schema {
    /// An arena over types made at compile time.
    pub const fn from_static(types: &'static [Type]) -> Self {
        Self { types: Cow::Borrowed(types) }
    }

    /// An arena over types made at run time. Every [`TypeId`] within must point into it.
    pub fn new(types: Vec<Type>) -> Self {
        Self { types: Cow::Owned(types) }
    }

    /// The type at `id`.
    pub fn get(&self, id: TypeId) -> TypeRef<'_> {
        if id.is_shared() {
            return BUILTIN.get(TypeId(id.0 & !BUILTIN_MARK));
        }
        assert!((id.0 as usize) < self.types.len(), "type {} of {}", id.0, self.types.len());
        TypeRef { schema: self, id }
    }

    /// All types.
    pub fn types(&self) -> impl Iterator<Item = TypeRef<'_>> {
        (0..self.types.len() as u32).map(|id| TypeRef { schema: self, id: TypeId(id) })
    }
}

impl<'a> TypeRef<'a> {
    /// The type itself.
    pub fn get(self) -> &'a Type {
        &self.schema.types[self.id.0 as usize]
    }

    /// Its place in the arena.
    pub fn id(self) -> TypeId {
        self.id
    }

    /// Its arena.
    pub fn schema(self) -> &'a Schema {
        self.schema
    }

    /// What values look like.
    pub fn shape(self) -> &'a Shape {
        &self.get().shape
    }

    /// Another type of the same arena.
    pub fn to(self, id: TypeId) -> TypeRef<'a> {
        self.schema.get(id)
    }

    /// Fields, sorted by name; none if this isn't a struct.
    pub fn fields(self) -> &'a [Field] {
        match self.shape() {
            Shape::Struct(s) => &s.fields,
            _ => &[],
        }
    }

    /// The field called `name` in JSON.
    pub fn field(self, name: &str) -> Option<&'a Field> {
        let (fields, sought) = (self.fields(), head(name));
        let order = |field: &Field| field.head.cmp(&sought).then_with(|| (*field.name).cmp(name));
        fields.binary_search_by(order).ok().map(|at| &fields[at])
    }

    /// What an absent field becomes, by the published schema or that of a custom kind.
    pub fn default_of(self, field: &Field) -> Option<Cow<'a, Value>> {
        match field.published.default {
            Some(text) => serde_json::from_str(text).ok().map(Cow::Owned),
            None => self.to(field.ty).get().default.as_deref().map(Cow::Borrowed),
        }
    }

    /// The same, and for a built-in field that Go always prints the zero it prints: the published schema says it too.
    pub fn published_default(self, field: &Field) -> Option<Cow<'a, Value>> {
        match self.default_of(field) {
            Some(default) => Some(default),
            None if field.pointer || self.is_custom() => None,
            None if self.is_loose_name(field) => Some(Cow::Owned("".into())),
            None => self.to(field.ty).published_zero(field.omit_empty).map(Cow::Owned),
        }
    }

    /// Whether it is the name in a reference within the namespace: the published schema lets it be empty, for the sake of old
    /// objects.
    pub fn is_loose_name(self, field: &Field) -> bool {
        const REFERENCE: &str = "LocalObjectReference";
        let is_reference = self.get().name.ends_with(".LocalObjectReference");
        field.name == "name" && (is_reference || field.published.embedded.trim_end_matches('.') == REFERENCE)
    }

    /// What Go has where nothing was given, if the published schema says it.
    pub fn published_zero(self, omit_empty: bool) -> Option<Value> {
        match self.shape() {
            Shape::Struct(_) => Some(Value::Object(serde_json::Map::new())),
            Shape::String if !omit_empty => Some("".into()),
            Shape::Bool if !omit_empty => Some(false.into()),
            Shape::Int32 | Shape::Int64 | Shape::Float if !omit_empty => Some(0.into()),
            _ => None,
        }
    }

    /// Type of the field called `name`, or of the values of a map.
    pub fn child(self, name: &str) -> Option<TypeRef<'a>> {
        match self.shape() {
            Shape::Map(map) => Some(self.to(map.value)),
            _ => self.field(name).map(|f| self.to(f.ty)),
        }
    }

    /// Type of the items of a list.
    pub fn item(self) -> Option<TypeRef<'a>> {
        match self.shape() {
            Shape::List(list) => Some(self.to(list.item)),
            _ => None,
        }
    }

    /// Whether it belongs to a custom kind: Go has no type for it, and nulls and empty values stay as they are.
    pub fn is_custom(self) -> bool {
        self.get().go.is_empty()
    }

    /// Whether values may be anything, so that nothing is known about what is inside.
    pub fn is_opaque(self) -> bool {
        matches!(
            self.shape(),
            Shape::Raw
                | Shape::Json
                | Shape::FieldsV1
                | Shape::SchemaOrBool(_)
                | Shape::SchemaOrList(_)
                | Shape::SchemaOrStrings(_)
        ) || matches!(self.shape(), Shape::Struct(s) if s.open)
    }
}

/// The first eight bytes of a name as a number of the same order. Most names differ in them, and to compare numbers takes no call.
pub const fn head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let (mut head, mut at) = (0, 0);
    while at < 8 {
        head = head << 8 | if at < bytes.len() { bytes[at] as u64 } else { 0 };
        at += 1;
    }
    head
}
