//! What rules in CEL see of values under a schema of the tree: their types when rules are compiled, and how they are read
//! when rules are asked. Both come from the tree, so that nothing is kept for rules but their programs.

use std::collections::HashSet;

use serde_json::Value;

use super::builder::Builder;
use super::tree::{JsonType, Place, Tree};
use crate::cel::{Kind, Order, Reading, Readings, Type, escape, identifiers};
use crate::types::{ListType, TypeId};

/// A schema to evaluate expressions under.
#[derive(Debug)]
pub struct ObjectSchema {
    tree: Tree,
    root: TypeId,
}

impl ObjectSchema {
    /// The structural schema of whole objects.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let mut builder = Builder::default();
        let root = builder.root(schema)?;
        Ok(Self { tree: builder.finish(), root })
    }

    /// How objects are read.
    pub fn reading(&self) -> Reading<'_> {
        Reading::new(&self.tree, self.root.0)
    }
}

impl Tree {
    fn at(&self, at: u32) -> Place<'_> {
        self.place(TypeId(at)).expect("rules see no built-in types")
    }
}

impl Readings for Tree {
    fn kind(&self, at: u32) -> Kind<'_> {
        let place = self.at(at);
        match place.node().ty {
            JsonType::Any => Kind::Preserved,
            JsonType::IntOrString => Kind::IntOrString,
            JsonType::Boolean => Kind::Bool,
            JsonType::Integer => Kind::Int,
            JsonType::Number => Kind::Double,
            JsonType::String => match place.facet().and_then(|facet| facet.rules.format.as_deref()) {
                Some("byte") => Kind::Bytes,
                Some("duration") => Kind::Duration,
                Some("date") => Kind::Date,
                Some("date-time") => Kind::DateTime,
                _ => Kind::String,
            },
            JsonType::Array => Kind::List(match place.list_type() {
                Some(ListType::Set) => Order::Set,
                Some(ListType::Map(keys)) => Order::Map(keys),
                Some(ListType::Atomic) | None => Order::Atomic,
            }),
            JsonType::Object => match values(place) {
                Some(_) => Kind::Map,
                None => Kind::Object,
            },
        }
    }

    fn is_nullable(&self, at: u32) -> bool {
        self.at(at).node().nullable
    }

    fn property(&self, at: u32, name: &str) -> Option<u32> {
        property(self.at(at), name).map(|inner| inner.id().0)
    }

    fn items(&self, at: u32) -> Option<u32> {
        let place = self.at(at);
        place.item().or_else(|| values(place)).map(|inner| inner.id().0)
    }
}

/// The schema of the values of a map. An object that takes anything is none: rules see nothing of what it holds.
fn values(place: Place<'_>) -> Option<Place<'_>> {
    place.additional().filter(|inner| !inner.node().unknown)
}

/// The schema of a property as rules see it: of metadata, they see little.
fn property<'a>(place: Place<'a>, name: &str) -> Option<Place<'a>> {
    match name {
        "metadata" if place.node().embedded => place.tree().place(place.facet()?.seen_metadata?),
        _ => place.field(name),
    }
}

/// The type of values for rules with these texts: of objects, only the fields that the texts could mean.
pub(super) fn type_for<'t>(place: Place<'_>, texts: impl Iterator<Item = &'t str>) -> Type {
    let named: HashSet<&str> = texts.flat_map(identifiers).collect();
    seen_type(place, "selfType", &named).unwrap_or(Type::Dyn)
}

/// None for values that rules can't see.
fn seen_type(place: Place<'_>, name: &str, named: &HashSet<&str>) -> Option<Type> {
    Some(match place.tree().kind(place.id().0) {
        Kind::Any | Kind::IntOrString => Type::Dyn,
        Kind::Bool => Type::Bool,
        Kind::Int => Type::Int,
        Kind::Double => Type::Double,
        Kind::String => Type::String,
        Kind::Bytes => Type::Bytes,
        Kind::Duration => Type::Duration,
        Kind::Date | Kind::DateTime => Type::Timestamp,
        Kind::Preserved => return None,
        Kind::List(_) => Type::list(seen_type(place.item()?, &format!("{name}.@idx"), named)?),
        Kind::Map => Type::map(Type::String, seen_type(values(place)?, &format!("{name}.@elem"), named)?),
        Kind::Object => {
            let fields = place.fields().iter().filter_map(|field| {
                let escaped = escape(&field.name).filter(|escaped| named.contains(&**escaped))?;
                let inner = seen_type(property(place, &field.name)?, &format!("{name}.{escaped}"), named)?;
                Some((escaped.into_owned(), inner))
            });
            Type::object(name, fields)
        }
    })
}
