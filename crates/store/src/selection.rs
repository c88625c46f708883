//! Which objects a list or a watch is about: a label selector and a field selector, ready to be tried on facts.

use setpoint_api::{fields, labels};

use crate::facts::{key_bit, pair_bit};
use crate::key::split;
use crate::object::Object;
use crate::table::Entry;

/// Labels and fields that an object must have to be selected.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: labels::Selector,
    fields: fields::Selector,
    label_bits: u64,
}

impl Selection {
    /// Selects what both selectors match.
    pub fn new(labels: labels::Selector, fields: fields::Selector) -> Selection {
        let label_bits = labels.requirements().iter().fold(0, |bits, requirement| bits | required_bits(requirement));
        Selection { labels, fields, label_bits }
    }

    /// Selects everything.
    pub fn everything() -> Selection {
        Selection::new(labels::Selector::everything(), fields::Selector::everything())
    }

    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether the object under `path` is selected.
    pub(crate) fn matches(&self, path: &str, object: &Object) -> bool {
        self.labels.matches(object.facts()) && self.fields.matches(&Named { path, object })
    }

    /// The same, first by the filter beside the entry.
    pub(crate) fn matches_entry(&self, path: &str, entry: &Entry) -> bool {
        entry.label_bits & self.label_bits == self.label_bits && self.matches(path, &entry.object)
    }
}

/// Bits that any object which meets the requirement must have.
fn required_bits(requirement: &labels::Requirement) -> u64 {
    use labels::Operator::{DoesNotExist, DoubleEquals, Equals, Exists, GreaterThan, In, LessThan, NotEquals, NotIn};
    let key = requirement.key();
    match requirement.operator() {
        Exists | GreaterThan | LessThan => key_bit(key),
        Equals | DoubleEquals | In => match requirement.values() {
            [value] => key_bit(key) | pair_bit(key, value),
            _ => key_bit(key),
        },
        NotEquals | NotIn | DoesNotExist => 0,
    }
}

struct Named<'a> {
    path: &'a str,
    object: &'a Object,
}

impl fields::Fields for Named<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let (namespace, own) = split(self.path);
        match name {
            "metadata.name" => Some(own),
            "metadata.namespace" => Some(namespace.unwrap_or_default()),
            _ => self.object.facts().field(name),
        }
    }
}
