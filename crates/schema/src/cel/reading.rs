//! How values are to be read: what evaluating an expression asks of their schemas.
//!
//! Who has schemas keeps them in whatever form suits it; a [`Reading`] is one of them.

use std::fmt;

use crate::types::Text;

/// Schemas by number.
pub trait Readings: fmt::Debug + Sync {
    /// What values of a schema look like.
    fn kind(&self, at: u32) -> Kind<'_>;
    /// Whether null is a value.
    fn is_nullable(&self, at: u32) -> bool;
    /// The schema of a property that an object declares.
    fn property(&self, at: u32, name: &str) -> Option<u32>;
    /// The schema of the items of a list or of the values of a map.
    fn items(&self, at: u32) -> Option<u32>;
}

/// The schema of a value.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    readings: &'a dyn Readings,
    at: u32,
}

/// What values look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Anything at all, told by the value itself.
    Any,
    /// A whole number or a text.
    IntOrString,
    /// true or false.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Double,
    /// A text.
    String,
    /// Bytes in base64.
    Bytes,
    /// A span of time.
    Duration,
    /// A day.
    Date,
    /// A point in time.
    DateTime,
    /// A list.
    List(Order<'a>),
    /// An object with free keys.
    Map,
    /// An object with known properties.
    Object,
    /// Kept without being known; can only be compared.
    Preserved,
}

/// What the items of a list have to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order<'a> {
    /// They have an order.
    Atomic,
    /// They have no order, and none is there twice.
    Set,
    /// They are told apart by these fields.
    Map(&'a [Text]),
}

impl<'a> Reading<'a> {
    /// The schema with this number.
    pub fn new(readings: &'a dyn Readings, at: u32) -> Self {
        Self { readings, at }
    }

    /// What values look like.
    pub fn kind(self) -> Kind<'a> {
        self.readings.kind(self.at)
    }

    pub(super) fn is_any(self) -> bool {
        self.kind() == Kind::Any
    }

    pub(super) fn is_nullable(self) -> bool {
        self.readings.is_nullable(self.at)
    }

    pub(super) fn property(self, name: &str) -> Option<Self> {
        let at = self.readings.property(self.at, name)?;
        Some(Self { at, ..self })
    }

    /// The schema of items or values; of those nothing is known where nothing is known of what holds them.
    pub(super) fn items(self) -> Option<Self> {
        let at = self.readings.items(self.at)?;
        Some(Self { at, ..self })
    }

    /// How items are told apart, if they have no order.
    pub(super) fn unordered(self) -> Option<Order<'a>> {
        match self.kind() {
            Kind::List(Order::Atomic) => None,
            Kind::List(order) => Some(order),
            _ => None,
        }
    }
}

/// The schema of values of which nothing is known beforehand.
pub(super) const ANY: Reading<'static> = Reading { readings: &Nothing, at: 0 };

#[derive(Debug)]
struct Nothing;

impl Readings for Nothing {
    fn kind(&self, _: u32) -> Kind<'_> {
        Kind::Any
    }

    fn is_nullable(&self, _: u32) -> bool {
        true
    }

    fn property(&self, _: u32, _: &str) -> Option<u32> {
        None
    }

    fn items(&self, _: u32) -> Option<u32> {
        None
    }
}
