//! The few parsed facts kept beside an object's bytes, so that selectors never parse JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use setpoint_api::kind::GroupResource;

/// Names of the selectable fields of a resource, shared by all its objects.
pub type FieldNames = Arc<[Box<str>]>;

/// Knows which fields of a resource can be selected by, and reads them from an object's JSON.
pub trait Fields: Send + Sync {
    /// The selectable fields of `resource` besides `metadata.name` and `metadata.namespace`.
    fn names(&self, resource: &GroupResource) -> FieldNames;

    /// Their values in this object, in the order of [`Fields::names`]; a missing one is empty.
    fn values(&self, resource: &GroupResource, json: &[u8]) -> Vec<String>;
}

/// For stores whose objects are selected by name, namespace and label only.
pub struct NoFields;

impl Fields for NoFields {
    fn names(&self, _: &GroupResource) -> FieldNames {
        Arc::from([])
    }

    fn values(&self, _: &GroupResource, _: &[u8]) -> Vec<String> {
        Vec::new()
    }
}

/// Labels, selectable fields, uid and owners of one object, packed into one allocation.
///
/// Layout: label count, then key and value of each; field count, then each value; uid; owner count, then each uid. Counts
/// and lengths are two bytes: metadata limits keep them far below that.
#[derive(Clone)]
pub struct Facts {
    packed: Box<[u8]>,
    names: FieldNames,
    label_bits: u64,
}

impl Facts {
    /// The facts of an object that is at hand: labels in the order of their keys, the values of its selectable fields in
    /// the order of their names, its uid and those of its owners.
    pub fn new(
        labels: &[(&str, &str)],
        names: FieldNames,
        values: &[String],
        uid: &str,
        owners: &[impl AsRef<str>],
    ) -> Result<Facts, FactsError> {
        let texts = labels.iter().flat_map(|(key, value)| [*key, *value]).chain(values.iter().map(|value| &**value));
        if texts.chain(owners.iter().map(AsRef::as_ref)).chain([uid]).any(|text| text.len() > PACKED_MAX) {
            return Err(FactsError::Malformed("a label, selectable field or uid is longer than 64 KiB".into()));
        }
        if labels.len() > PACKED_MAX || owners.len() > PACKED_MAX {
            return Err(FactsError::Malformed("more than 65535 labels or owners".into()));
        }
        Ok(Facts::pack(labels, names, values, uid, owners))
    }

    fn pack(
        labels: &[(&str, &str)],
        names: FieldNames,
        values: &[String],
        uid: &str,
        owners: &[impl AsRef<str>],
    ) -> Facts {
        let mut packed = Vec::with_capacity(128);
        let mut label_bits = 0;
        put_count(&mut packed, labels.len());
        for (key, value) in labels {
            put_str(&mut packed, key);
            put_str(&mut packed, value);
            label_bits |= key_bit(key) | pair_bit(key, value);
        }
        put_count(&mut packed, values.len());
        for value in values {
            put_str(&mut packed, value);
        }
        put_str(&mut packed, uid);
        put_count(&mut packed, owners.len());
        for owner in owners {
            put_str(&mut packed, owner.as_ref());
        }
        Facts { packed: packed.into_boxed_slice(), names, label_bits }
    }

    /// Labels in the order of their keys.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut at = Reader(&self.packed);
        let count = at.count();
        (0..count).map(move |_| (at.str(), at.str()))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// The value of a selectable field, `None` if the resource has no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let index = self.names.iter().position(|n| &**n == name)?;
        let mut at = self.after_labels();
        let count = at.count();
        (0..count).map(|_| at.str()).nth(index)
    }

    /// The object's uid; empty if it has none.
    pub fn uid(&self) -> &str {
        self.after_fields().str()
    }

    /// The uids of the object's owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let mut at = self.after_fields();
        at.str();
        let count = at.count();
        (0..count).map(move |_| at.str())
    }

    /// A filter over labels: a selector whose bits are not all here cannot match. Kept beside the table's entries, so that a
    /// list by label passes over other objects without touching them.
    pub(crate) fn label_bits(&self) -> u64 {
        self.label_bits
    }

    /// Bytes of memory that the facts take beside the object itself.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }

    fn after_labels(&self) -> Reader<'_> {
        let mut at = Reader(&self.packed);
        for _ in 0..at.count() * 2 {
            at.str();
        }
        at
    }

    fn after_fields(&self) -> Reader<'_> {
        let mut at = self.after_labels();
        for _ in 0..at.count() {
            at.str();
        }
        at
    }
}

impl setpoint_api::labels::Labels for Facts {
    fn get(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}

/// Largest count and length in packed facts.
const PACKED_MAX: usize = u16::MAX as usize;

/// The bit that stands for a label key.
pub(crate) fn key_bit(key: &str) -> u64 {
    1 << (crc32c::crc32c(key.as_bytes()) & 63)
}

/// The bit that stands for a label key with this value.
pub(crate) fn pair_bit(key: &str, value: &str) -> u64 {
    1 << (crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), value.as_bytes()) >> 7 & 63)
}

/// What can't be stored.
#[derive(Debug, PartialEq, Eq)]
pub enum FactsError {
    /// Not a JSON object with `metadata`, or metadata of the wrong shape.
    Malformed(String),
    /// `metadata` already carries a resourceVersion: the store is the one to write it.
    Versioned,
}

impl std::fmt::Display for FactsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FactsError::Malformed(why) => write!(f, "not an object that can be stored: {why}"),
            FactsError::Versioned => f.write_str("the object to store already has a resourceVersion"),
        }
    }
}

impl std::error::Error for FactsError {}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<Owner<'a>>>,
    #[serde(default)]
    resource_version: Presence,
}

/// Whether a field is there, be it only as null.
#[derive(Default)]
struct Presence(bool);

impl<'de> Deserialize<'de> for Presence {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Presence, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Presence(true))
    }
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

/// A string borrowed from the input where it can be (serde borrows a `Cow` only where it is a field of its own).
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads an object's facts, and where in its JSON a resourceVersion can be inserted: right behind the `{` of `metadata`.
pub(crate) fn read(resource: &GroupResource, json: &[u8], fields: &dyn Fields) -> Result<(Facts, usize), FactsError> {
    let outer: Outer<'_> = serde_json::from_slice(json).map_err(malformed)?;
    let raw = outer.metadata.get();
    let metadata: Metadata<'_> = serde_json::from_str(raw).map_err(malformed)?;
    // A list whose elements fit the fields in order would pass for an object.
    if !json.trim_ascii_start().starts_with(b"{") || !raw.starts_with('{') {
        return Err(FactsError::Malformed("the object or its metadata is a list".into()));
    }
    if metadata.resource_version.0 {
        return Err(FactsError::Versioned);
    }
    if raw[1..].trim_start().starts_with('}') {
        return Err(FactsError::Malformed("metadata is empty".into()));
    }
    let insert_at = raw.as_ptr() as usize - json.as_ptr() as usize + 1;
    Ok((facts(resource, json, metadata, fields)?, insert_at))
}

/// The same for what was taken once: where metadata comes first, as in all that the API server writes, the rest needn't be read to find it.
pub(crate) fn read_stored(
    resource: &GroupResource,
    json: &[u8],
    fields: &dyn Fields,
) -> Result<(Facts, usize), FactsError> {
    let Some(at) = metadata_at(json) else { return read(resource, json, fields) };
    let mut values = serde_json::Deserializer::from_slice(&json[at..]).into_iter::<Metadata<'_>>();
    let metadata = values.next().expect("a value begins there").map_err(malformed)?;
    Ok((facts(resource, json, metadata, fields)?, at + 1))
}

/// How much comes before metadata at most: a version and a kind.
const HEAD_BYTES_MAX: usize = 1024;

/// Where the `{` of metadata is, if nothing but texts comes before it.
fn metadata_at(json: &[u8]) -> Option<usize> {
    // A quote within a text has a backslash before it: so this is no part of one.
    const NAME: &[u8] = b"\"metadata\":{";
    let head = &json[..json.len().min(HEAD_BYTES_MAX)];
    let at = head.windows(NAME.len()).position(|bytes| bytes == NAME)?;
    let is_outermost = head.first() == Some(&b'{') && !head[1..at].iter().any(|byte| matches!(byte, b'{' | b'['));
    is_outermost.then_some(at + NAME.len() - 1)
}

fn facts(
    resource: &GroupResource,
    json: &[u8],
    metadata: Metadata<'_>,
    fields: &dyn Fields,
) -> Result<Facts, FactsError> {
    let labels = metadata.labels.unwrap_or_default();
    let owners: Vec<_> = metadata.owner_references.unwrap_or_default().into_iter().map(|o| o.uid).collect();
    let names = fields.names(resource);
    let values = if names.is_empty() { Vec::new() } else { fields.values(resource, json) };
    let pairs: Vec<_> = labels.iter().map(|(k, v)| (&*k.0, &*v.0)).collect();
    Facts::new(&pairs, names, &values, &metadata.uid, &owners)
}

fn malformed(error: serde_json::Error) -> FactsError {
    FactsError::Malformed(error.to_string())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn count(&mut self) -> usize {
        let (head, rest) = self.0.split_at(2);
        self.0 = rest;
        usize::from(u16::from_le_bytes([head[0], head[1]]))
    }

    fn str(&mut self) -> &'a str {
        let length = self.count();
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        std::str::from_utf8(text).expect("packed from strings")
    }
}

fn put_count(packed: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("checked before packing");
    packed.extend_from_slice(&count.to_le_bytes());
}

fn put_str(packed: &mut Vec<u8>, text: &str) {
    put_count(packed, text.len());
    packed.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_as_what_comes_anew() {
        let labelled = r#""labels":{"a":"1","b":"\"metadata\":{"},"uid":"u","ownerReferences":[{"uid":"o"}]"#;
        let objects = [
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{labelled}}},"spec":{{}}}}"#),
            format!(r#"{{"metadata":{{{labelled}}}}}"#),
            format!(r#"{{"kind":"\"metadata\":{{","metadata":{{{labelled}}}}}"#),
            format!(r#"{{"spec":{{"metadata":{{"uid":"other"}}}},"metadata":{{{labelled}}}}}"#),
            format!(r#"{{"list":["metadata"],"metadata" : {{{labelled}}}}}"#),
        ];
        for json in objects {
            let resource = GroupResource::new("", "pods");
            let (new, at) = read(&resource, json.as_bytes(), &NoFields).unwrap();
            let (stored, stored_at) = read_stored(&resource, json.as_bytes(), &NoFields).unwrap();
            assert_eq!((&new.packed, new.label_bits, at), (&stored.packed, stored.label_bits, stored_at), "{json}");
            assert_eq!((stored.uid(), stored.label("a")), ("u", Some("1")));
        }
    }
}
