//! A schema as validation sees it: a type of the tree, or a schema that only restricts values of another.

use super::rules::{Nested, Rules};
use super::tree::{JsonType, Place};

/// A schema to check a value against.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    /// A type.
    Place(Place<'a>),
    /// A restriction.
    Nested(&'a Nested),
}

impl<'a> Part<'a> {
    pub(super) fn ty(self) -> JsonType {
        match self {
            Self::Place(place) => place.node().ty,
            Self::Nested(nested) => nested.ty,
        }
    }

    pub(super) fn nullable(self) -> bool {
        match self {
            Self::Place(place) => place.node().nullable,
            Self::Nested(nested) => nested.nullable,
        }
    }

    pub(super) fn rules(self) -> Option<&'a Rules> {
        match self {
            Self::Place(place) => place.facet().map(|facet| &facet.rules),
            Self::Nested(nested) => Some(&nested.rules),
        }
    }

    /// The schema of a field that it declares. Of metadata only what the definition says counts.
    pub(super) fn property(self, name: &str) -> Option<Part<'a>> {
        match self {
            Self::Place(place) if place.node().embedded && name == "metadata" => {
                place.facet()?.metadata.as_deref().map(Part::Nested)
            }
            Self::Place(place) => place.field(name).map(Part::Place),
            Self::Nested(nested) => {
                let at = nested.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
                Some(Part::Nested(&nested.properties[at].1))
            }
        }
    }

    /// The schema of fields that it doesn't declare.
    pub(super) fn additional(self) -> Option<Part<'a>> {
        match self {
            Self::Place(place) => place.additional().filter(|inner| !inner.node().unknown).map(Part::Place),
            Self::Nested(nested) => nested.additional.as_deref().map(Part::Nested),
        }
    }

    /// The schema of items.
    pub(super) fn item(self) -> Option<Part<'a>> {
        match self {
            Self::Place(place) => place.item().filter(|inner| !inner.node().unknown).map(Part::Place),
            Self::Nested(nested) => nested.items.as_deref().map(Part::Nested),
        }
    }
}
