//! Which objects a list or a watch is about: a label selector and a field selector, ready to be tried on facts.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use setpoint_api::kind::GroupResource;
use setpoint_api::{fields, labels};

use crate::facts::{FieldNames, Fields, key_bit, pair_bit};
use crate::key::split;
use crate::object::Object;
use crate::table::Entry;

/// Labels and fields that an object must have to be selected.
#[derive(Clone)]
pub struct Selection {
    labels: labels::Selector,
    fields: fields::Selector,
    label_bits: u64,
    reader: Option<Reader>,
}

/// Reads the fields of objects that were stored before those could be selected by.
#[derive(Clone)]
struct Reader {
    fields: Arc<dyn Fields>,
    resource: GroupResource,
    names: FieldNames,
}

impl Selection {
    /// Selects what both selectors match.
    pub fn new(labels: labels::Selector, fields: fields::Selector) -> Selection {
        let label_bits = labels.requirements().iter().fold(0, |bits, requirement| bits | required_bits(requirement));
        Selection { labels, fields, label_bits, reader: None }
    }

    /// The same selection, of a resource whose selectable fields may change: what an object's facts don't have is read from
    /// its JSON.
    pub fn reading(mut self, fields: Arc<dyn Fields>, resource: GroupResource) -> Selection {
        let names = fields.names(&resource);
        self.reader = (!names.is_empty()).then_some(Reader { fields, resource, names });
        self
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
        let named = Named { path, object, reader: self.reader.as_ref(), read: OnceCell::new() };
        self.labels.matches(object.facts()) && self.fields.matches(&named)
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

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("labels", &self.labels).field("fields", &self.fields).finish_non_exhaustive()
    }
}

struct Named<'a> {
    path: &'a str,
    object: &'a Object,
    reader: Option<&'a Reader>,
    read: OnceCell<Vec<String>>,
}

impl Named<'_> {
    fn read(&self, name: &str) -> Option<&str> {
        let reader = self.reader?;
        let index = reader.names.iter().position(|known| &**known == name)?;
        let values = self.read.get_or_init(|| reader.fields.values(&reader.resource, self.object.json()));
        values.get(index).map(String::as_str)
    }
}

impl fields::Fields for Named<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let (namespace, own) = split(self.path);
        match name {
            "metadata.name" => Some(own),
            "metadata.namespace" => Some(namespace.unwrap_or_default()),
            _ => self.object.facts().field(name).or_else(|| self.read(name)),
        }
    }
}
