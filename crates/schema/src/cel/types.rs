//! Types of expressions.

use std::fmt;

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// We can't tell; fits everywhere and is never complained about.
    Unknown,
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
    List(Box<Type>),
    /// A map from one type to another.
    Map(Box<Type>, Box<Type>),
    /// A value that may be absent.
    Optional(Box<Type>),
    /// An object with these fields and no others.
    Object(String, Vec<(String, Type)>),
    /// A type with a name of which we know nothing else.
    Named(String),
}

impl Type {
    /// A type of this name.
    pub fn named(name: &str) -> Self {
        Self::Named(name.to_owned())
    }

    /// Whether it may turn out to be anything.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Unknown | Self::Dyn)
    }

    /// Whether a value of the one type may stand where the other is wanted, as far as we can tell.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (a, b) if a.is_open() || b.is_open() => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.fits(l) && v.fits(w),
            (Self::Null, other) | (other, Self::Null) => matches!(
                other,
                Self::Null | Self::Timestamp | Self::Duration | Self::Object(..) | Self::Named(_) | Self::Optional(_)
            ),
            (Self::Object(a, _), Self::Object(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    /// As messages about overloads call it, which differs for the well-known types.
    pub(super) fn in_overload(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::List(item) => format!("list({})", item.in_overload()),
            Self::Map(key, value) => format!("map({}, {})", key.in_overload(), value.in_overload()),
            Self::Optional(inner) => format!("optional_type({})", inner.in_overload()),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown | Self::Dyn => formatter.write_str("dyn"),
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
            Self::Map(key, value) => write!(formatter, "map({key}, {value})"),
            Self::Optional(inner) => write!(formatter, "optional_type({inner})"),
            Self::Object(name, _) | Self::Named(name) => formatter.write_str(name),
        }
    }
}
