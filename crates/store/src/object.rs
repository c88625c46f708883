//! A stored object: its JSON, encoded once, with its resourceVersion in it.

use std::fmt;

use bytes::Bytes;
use setpoint_api::Revision;
use std::sync::Arc;

use crate::facts::Facts;

const FIELD: &[u8] = b"\"resourceVersion\":\"";
const FIELD_END: &[u8] = b"\",";

/// An object as every reader gets it: JSON bytes that hold the revision of its last change.
///
/// The revision is spliced in when the change is committed, so that GET, LIST and WATCH only copy bytes. The log keeps the
/// JSON without it.
pub struct Object {
    json: Box<[u8]>,
    /// Where the digits of the resourceVersion begin.
    digits_at: u32,
    digits_len: u8,
    revision: Revision,
    facts: Facts,
}

impl Object {
    pub(crate) fn new(plain: &[u8], insert_at: usize, facts: Facts, revision: Revision) -> Object {
        let digits = revision.to_string();
        let mut json = Vec::with_capacity(plain.len() + FIELD.len() + digits.len() + FIELD_END.len());
        json.extend_from_slice(&plain[..insert_at]);
        json.extend_from_slice(FIELD);
        let digits_at = u32::try_from(json.len()).expect("an object is far smaller than 4 GiB");
        json.extend_from_slice(digits.as_bytes());
        json.extend_from_slice(FIELD_END);
        json.extend_from_slice(&plain[insert_at..]);
        Object { json: json.into_boxed_slice(), digits_at, digits_len: digits.len() as u8, revision, facts }
    }

    /// The revision of the last change to this object.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The object's JSON, resourceVersion included.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The same bytes as a buffer that shares this object instead of copying it.
    pub fn bytes(self: &Arc<Object>) -> Bytes {
        Bytes::from_owner(Shared(Arc::clone(self)))
    }

    /// Labels, selectable fields, uid and owners.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Appends the object's JSON with another resourceVersion: a deleted object carries that of its deletion.
    pub fn write_json_at(&self, revision: Revision, out: &mut Vec<u8>) {
        if revision == self.revision {
            return out.extend_from_slice(&self.json);
        }
        let (start, end) = self.digits();
        out.extend_from_slice(&self.json[..start]);
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(&self.json[end..]);
    }

    /// The JSON without its resourceVersion: what stays the same when an object moves to another store.
    pub fn without_revision(&self) -> Vec<u8> {
        let (head, tail) = self.plain();
        [head, tail].concat()
    }

    /// The JSON as the log keeps it, without resourceVersion, in two parts.
    pub(crate) fn plain(&self) -> (&[u8], &[u8]) {
        let (start, end) = self.digits();
        (&self.json[..start - FIELD.len()], &self.json[end + FIELD_END.len()..])
    }

    /// Bytes of memory behind this object.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Object>() + self.json.len() + self.facts.bytes()
    }

    fn digits(&self) -> (usize, usize) {
        let start = self.digits_at as usize;
        (start, start + usize::from(self.digits_len))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.json))
    }
}

struct Shared(Arc<Object>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.json
    }
}
