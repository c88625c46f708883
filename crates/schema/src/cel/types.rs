//! Types of expressions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The type of an expression. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Known only when it is evaluated.
    Dyn,
    /// true or false.
    Bool,
    /// A whole number.
    Int,
    /// A whole number that is not negative.
    Uint,
    /// A floating-point number.
    Double,
    /// A text.
    String,
    /// Bytes.
    Bytes,
    /// Nothing.
    Null,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of one type.
    List(Arc<Type>),
    /// A map from one type to another.
    Map(Arc<(Type, Type)>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// An object with these fields and no others.
    Object(Arc<ObjectType>),
    /// A type with a name of which we know nothing else.
    Named(&'static str),
    /// A type as a value.
    Type(Arc<Type>),
    /// A type that is to be found, by its number in the expression.
    Param(usize),
    /// What a part that is wrong gives, so that it is complained about only once.
    Error,
}

/// The fields of an object.
#[derive(Debug)]
pub struct ObjectType {
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, Type>,
}

/// Two objects of one name are of one type.
impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Type {
    /// A list of these.
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// A map between these.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// Such a value, or none.
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// An object with these fields.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Self)>) -> Self {
        Self::Object(Arc::new(ObjectType { name: name.to_owned(), fields: fields.into_iter().collect() }))
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether null may stand for it.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Optional(_) | Self::Named(_) | Self::Object(_) | Self::Timestamp | Self::Duration | Self::Null
        )
    }

    /// Whether a value of it has size 1, whatever it is.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The type without being optional, and whether it was.
    pub(super) fn unwrapped(&self) -> (&Self, bool) {
        match self {
            Self::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// As messages call it.
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown(self)
    }
}

/// A type in the words of messages about wrong expressions, which differ for a few from the names of the types.
pub(super) struct Shown<'a>(&'a Type);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Null => formatter.write_str("null"),
            Type::Timestamp => formatter.write_str("timestamp"),
            Type::Duration => formatter.write_str("duration"),
            Type::List(item) => write!(formatter, "list({})", item.shown()),
            Type::Map(pair) => write!(formatter, "map({}, {})", pair.0.shown(), pair.1.shown()),
            Type::Optional(inner) => write!(formatter, "optional_type({})", inner.shown()),
            Type::Type(inner) => write!(formatter, "type({})", inner.shown()),
            other => write!(formatter, "{other}"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => formatter.write_str("dyn"),
            Self::Bool => formatter.write_str("bool"),
            Self::Int => formatter.write_str("int"),
            Self::Uint => formatter.write_str("uint"),
            Self::Double => formatter.write_str("double"),
            Self::String => formatter.write_str("string"),
            Self::Bytes => formatter.write_str("bytes"),
            Self::Null => formatter.write_str("null_type"),
            Self::Timestamp => formatter.write_str("google.protobuf.Timestamp"),
            Self::Duration => formatter.write_str("google.protobuf.Duration"),
            Self::List(item) => write!(formatter, "list({item})"),
            Self::Map(pair) => write!(formatter, "map({}, {})", pair.0, pair.1),
            Self::Optional(inner) => write!(formatter, "optional_type({inner})"),
            Self::Object(object) => formatter.write_str(&object.name),
            Self::Named(name) => formatter.write_str(name),
            Self::Type(inner) => write!(formatter, "type({inner})"),
            Self::Param(number) => write!(formatter, "_var{number}"),
            Self::Error => formatter.write_str("!error!"),
        }
    }
}
