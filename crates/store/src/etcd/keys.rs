//! Where objects are in etcd, and what is written there.
//!
//! An object is at `PREFIX/GROUP/RESOURCE/PATH`, where the group without a name is `core` (the group of a custom kind has a dot in it).
//! What the servers need for themselves is under `PREFIX/.setpoint/`: inside of what they watch, so that every revision that they cause
//! is seen by all of them. A value is a byte that says how it is written, the tag of the transaction that wrote it, and
//! the object's JSON without its resourceVersion, or that JSON sealed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use setpoint_api::kind::GroupResource;

use crate::change::Draft;
use crate::embedded::{Identity, place};
use crate::facts::Fields;
use crate::key::Key;
use crate::seal::Seal;

/// The name of the group that has none.
const CORE: &str = "core";

/// Where the servers keep what is their own.
const OWN: &str = ".setpoint";

/// How a value is written.
const PLAIN: u8 = 1;
const SEALED: u8 = 2;

/// Bytes of a tag.
const TAG: usize = 16;

/// Tells a transaction from all others: which process made it, and which of its transactions it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag([u8; TAG]);

impl Tag {
    pub(super) fn new(process: &Identity, number: u64) -> Tag {
        let mut tag = [0; TAG];
        tag[..8].copy_from_slice(&process[..8]);
        tag[8..].copy_from_slice(&number.to_be_bytes());
        Tag(tag)
    }

    pub(super) fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Tag> {
        bytes.get(..TAG)?.try_into().ok().map(Tag)
    }
}

/// What a key of etcd stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Object(Key),
    /// What is the servers' own, by its name.
    Own(&'a str),
    /// Nothing that we wrote.
    Foreign,
}

/// The keys under one prefix.
#[derive(Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// Under this prefix, which ends without a slash.
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.trim_end_matches('/').to_owned() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The beginning and the end of all keys.
    pub(super) fn range(&self) -> (Bytes, Bytes) {
        // The byte behind the slash.
        (format!("{}/", self.prefix).into(), format!("{}0", self.prefix).into())
    }

    /// The key of an object.
    pub(super) fn of(&self, key: &Key) -> Bytes {
        let GroupResource { group, resource } = key.resource();
        let group = if group.is_empty() { CORE } else { group };
        format!("{}/{group}/{resource}/{}", self.prefix, key.path()).into()
    }

    /// The key of something of the servers' own.
    pub(super) fn own(&self, name: &str) -> Bytes {
        format!("{}/{OWN}/{name}", self.prefix).into()
    }
}

/// Reads keys and values. One allocation per resource name, however many objects are read.
pub(super) struct Reader {
    keys: Keys,
    fields: Arc<dyn Fields>,
    seal: Option<Arc<dyn Seal>>,
    names: HashMap<Box<str>, GroupResource>,
    /// Objects that should have been sealed, and were not.
    pub(super) unsealed: usize,
}

impl Reader {
    pub(super) fn new(keys: Keys, fields: Arc<dyn Fields>, seal: Option<Arc<dyn Seal>>) -> Reader {
        Reader { keys, fields, seal, names: HashMap::new(), unsealed: 0 }
    }

    /// What a key stands for.
    pub(super) fn place<'a>(&mut self, key: &'a [u8]) -> Place<'a> {
        let Some(rest) = key.strip_prefix(self.keys.prefix.as_bytes()).and_then(|rest| rest.strip_prefix(b"/")) else {
            return Place::Foreign;
        };
        let Ok(text) = std::str::from_utf8(rest) else { return Place::Foreign };
        if let Some(name) = text.strip_prefix(OWN).and_then(|rest| rest.strip_prefix('/')) {
            return Place::Own(name);
        }
        let mut slashes = text.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
        let (Some(group_end), Some(resource_end)) = (slashes.next(), slashes.next()) else { return Place::Foreign };
        let (kind, path) = (&text[..resource_end], &text[resource_end + 1..]);
        if group_end == 0 || resource_end == group_end + 1 || path.is_empty() || path.matches('/').count() > 1 {
            return Place::Foreign;
        }
        Place::Object(Key::from_path(self.name(kind, group_end), Arc::from(path)))
    }

    fn name(&mut self, kind: &str, group_end: usize) -> GroupResource {
        if let Some(known) = self.names.get(kind) {
            return known.clone();
        }
        let group = Some(&kind[..group_end]).filter(|group| *group != CORE).unwrap_or_default();
        let name = GroupResource::new(group, &kind[group_end + 1..]);
        self.names.insert(kind.into(), name.clone());
        name
    }

    /// The object in a value, or why it is none.
    pub(super) fn draft(&mut self, key: &Key, value: &[u8]) -> Result<Draft, String> {
        let payload = value.get(1 + TAG..).ok_or_else(|| "it is cut off".to_owned())?;
        let plain = match value[0] {
            PLAIN => {
                let should_be = self.seal.as_ref().is_some_and(|seal| seal.covers(key.resource()));
                self.unsealed += usize::from(should_be);
                payload.to_vec()
            }
            SEALED => match &self.seal {
                Some(seal) => seal.open(&place(key), payload)?,
                None => return Err("it is sealed, and there is no key".into()),
            },
            _ => return Err("it is not an object of ours".into()),
        };
        Draft::read(key, plain, &*self.fields).map_err(|error| error.to_string())
    }
}

/// The value of an object.
pub(super) fn value(key: &Key, plain: (&[u8], &[u8]), tag: Tag, seal: Option<&dyn Seal>) -> Bytes {
    let (head, tail) = plain;
    let seal = seal.filter(|seal| seal.covers(key.resource()));
    let mut value = BytesMut::with_capacity(1 + TAG + head.len() + tail.len());
    value.put_u8(if seal.is_some() { SEALED } else { PLAIN });
    value.put_slice(&tag.0);
    match seal {
        Some(seal) => value.put_slice(&seal.seal(&place(key), &[head, tail].concat())),
        None => {
            value.put_slice(head);
            value.put_slice(tail);
        }
    }
    value.freeze()
}

/// The tag of a value.
pub(super) fn tag_of(value: &[u8]) -> Option<Tag> {
    Tag::read(value.get(1..)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NoFields;

    fn reader() -> Reader {
        Reader::new(Keys::new("/registry/"), Arc::new(NoFields), None)
    }

    #[test]
    fn a_key_is_found_again() {
        let keys = Keys::new("/registry");
        let pods = GroupResource::new("", "pods");
        let widgets = GroupResource::new("example.com", "widgets");
        let table = [
            (Key::namespaced(pods, "default", "a"), "/registry/core/pods/default/a"),
            (Key::cluster(widgets, "a:b"), "/registry/example.com/widgets/a:b"),
        ];
        for (key, text) in table {
            assert_eq!(keys.of(&key), text.as_bytes());
            assert_eq!(reader().place(text.as_bytes()), Place::Object(key));
        }
        assert_eq!(reader().place(&keys.own("files/ca")), Place::Own("files/ca"));
        for text in
            ["/other/core/pods/a", "/registry/core/pods", "/registry/core//a", "/registry/a/b/c/d/e", "/registry"]
        {
            assert_eq!(reader().place(text.as_bytes()), Place::Foreign, "{text}");
        }
    }

    #[test]
    fn a_value_holds_an_object_and_who_wrote_it() {
        let key = Key::cluster(GroupResource::new("", "nodes"), "a");
        let tag = Tag::new(&[7; 16], 3);
        let value = value(&key, (br#"{"metadata":{"#, br#""name":"a"}}"#), tag, None);
        assert_eq!(tag_of(&value), Some(tag));
        assert_eq!(
            reader().draft(&key, &value).ok().map(|draft| draft.plain),
            Some(br#"{"metadata":{"name":"a"}}"#.to_vec())
        );
        assert_eq!(reader().draft(&key, b"{}").err().as_deref(), Some("it is cut off"));
        assert!(reader().draft(&key, &[9; 40]).is_err());
    }
}
