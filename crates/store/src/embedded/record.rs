//! The bytes of the log: groups of commits, each with its checksum, chained to the one before.
//!
//! A group is what one write puts down. Its header says which group it follows (by checksum) and up to which revision the log was
//! known to be durable when it was written: so a broken group that was durable once can be told from a torn tail.

use std::collections::HashMap;
use std::sync::Arc;

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;

use super::directory::{OpenError, damaged};
use super::needed::Needed;
use crate::change::{Change, Draft, Expectation};
use crate::facts::Fields;
use crate::key::Key;
use crate::seal::Seal;

const MAGIC: u32 = u32::from_le_bytes(*b"SPG1");

/// Bytes of a group's header.
pub(crate) const HEADER: usize = 40;

/// Groups begin at multiples of this, so that a scan for one is quick.
const ALIGN: usize = 8;

const CLEAN: u32 = 1;

/// What a change is.
const DELETE: u8 = 0;
const PUT: u8 = 1;
const SEALED: u8 = 2;

/// A group being built: put commits in, then seal it.
pub(crate) struct GroupWriter {
    buffer: Vec<u8>,
    base: Revision,
    last: Revision,
    commits: u32,
}

impl GroupWriter {
    /// A group whose revisions come after `base`.
    pub(crate) fn new(base: Revision) -> GroupWriter {
        let mut buffer = Vec::with_capacity(4096);
        buffer.resize(HEADER, 0);
        GroupWriter { buffer, base, last: base, commits: 0 }
    }

    pub(crate) fn commits(&self) -> u32 {
        self.commits
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Adds one commit of these changes.
    pub(crate) fn commit(&mut self, revision: Revision, changes: &[Change], seal: Option<&dyn Seal>) {
        assert!(revision > self.last, "revisions rise");
        put_varint(&mut self.buffer, revision.get() - self.last.get());
        put_varint(&mut self.buffer, changes.len() as u64);
        for change in changes {
            let json = change.next.as_ref().map(|draft| (draft.plain.as_slice(), [].as_slice()));
            put_change(&mut self.buffer, &change.key, json, seal);
        }
        self.last = revision;
        self.commits += 1;
    }

    /// Completes the group and returns its bytes and its checksum.
    pub(crate) fn seal(mut self, previous: u32, durable: Revision, clean: bool) -> (Vec<u8>, u32) {
        let length = u32::try_from(self.buffer.len() - HEADER).expect("a group is far smaller than 4 GiB");
        self.buffer.resize(self.buffer.len().next_multiple_of(ALIGN), 0);
        let flags = if clean { CLEAN } else { 0 };
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(&MAGIC.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&previous.to_le_bytes());
        header.extend_from_slice(&self.base.get().to_le_bytes());
        header.extend_from_slice(&durable.get().to_le_bytes());
        header.extend_from_slice(&flags.to_le_bytes());
        header.extend_from_slice(&self.commits.to_le_bytes());
        self.buffer[..HEADER].copy_from_slice(&header);
        let crc = crc32c::crc32c(&self.buffer[8..]);
        self.buffer[4..8].copy_from_slice(&crc.to_le_bytes());
        (self.buffer, crc)
    }
}

/// A group whose checksum holds.
pub(crate) struct GroupReader<'a> {
    pub(crate) crc: u32,
    pub(crate) previous: u32,
    pub(crate) base: Revision,
    pub(crate) durable: Revision,
    /// The store was closed in order right behind this group.
    pub(crate) clean: bool,
    /// Bytes of the whole group.
    pub(crate) size: usize,
    commits: u32,
    payload: &'a [u8],
}

impl<'a> GroupReader<'a> {
    /// The group at the beginning of `bytes`, if a whole one is there.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<GroupReader<'a>> {
        let header = bytes.get(..HEADER)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let double = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != MAGIC {
            return None;
        }
        let end = HEADER.checked_add(word(8) as usize)?;
        let crc = word(4);
        let size = end.next_multiple_of(ALIGN);
        if crc32c::crc32c(bytes.get(8..size)?) != crc {
            return None;
        }
        Some(GroupReader {
            crc,
            previous: word(12),
            base: Revision::new(double(16)),
            durable: Revision::new(double(24)),
            clean: word(32) & CLEAN != 0,
            size,
            commits: word(36),
            payload: &bytes[HEADER..end],
        })
    }

    /// The commits in order: revision and those of its changes that a start needs.
    pub(crate) fn commits(&self, reading: &mut Reading<'_>) -> Result<Vec<(Revision, Vec<Change>)>, Unread> {
        let mut commits: Vec<(Revision, Vec<Change>)> = Vec::new();
        self.each(|revision, record| {
            if commits.last().is_none_or(|(last, _)| *last != revision) {
                commits.push((revision, Vec::new()));
            }
            if let (Some(change), Some((_, changes))) = (reading.needed(&record)?, commits.last_mut()) {
                changes.push(change);
            }
            Ok(())
        })?;
        Ok(commits)
    }

    /// Goes through all changes, with the revision of each.
    pub(crate) fn each(&self, mut visit: impl FnMut(Revision, Record<'a>) -> Result<(), Unread>) -> Result<(), Unread> {
        let mut at = Cursor(self.payload);
        let mut revision = self.base.get();
        for _ in 0..self.commits {
            let delta = at.varint()?;
            revision = revision.checked_add(delta).filter(|_| delta > 0).ok_or("a revision that does not rise")?;
            for _ in 0..at.varint()? {
                visit(Revision::new(revision), at.record()?)?;
            }
        }
        if at.0.is_empty() { Ok(()) } else { Err(Unread::Broken("bytes behind the last commit of a group")) }
    }
}

/// The groups of a segment, one after the other, each behind the one that it says it follows.
pub(crate) struct Groups<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where the next one begins.
    pub(crate) at: usize,
    /// The checksum of the last one.
    pub(crate) chain: u32,
}

impl<'a> Iterator for Groups<'a> {
    type Item = GroupReader<'a>;

    fn next(&mut self) -> Option<GroupReader<'a>> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let group = GroupReader::read(rest).filter(|group| group.previous == self.chain)?;
        self.chain = group.crc;
        self.at += group.size;
        Some(group)
    }
}

/// The first intact group at or after `from`, and where it begins.
pub(crate) fn find_group(bytes: &[u8], from: usize) -> Option<(usize, GroupReader<'_>)> {
    (from.next_multiple_of(ALIGN)..bytes.len()).step_by(ALIGN).find_map(|at| {
        let group = GroupReader::read(&bytes[at..])?;
        Some((at, group))
    })
}

/// What reading needs besides the bytes.
pub(crate) struct Reading<'a> {
    fields: &'a dyn Fields,
    seal: Option<&'a dyn Seal>,
    /// One allocation per resource name, however many objects are read.
    names: HashMap<(Box<str>, Box<str>), GroupResource>,
    /// Objects that should have been sealed, and were not.
    pub(crate) unsealed: usize,
    /// What of a log is read; everything if nothing is said.
    pub(crate) needed: Needed,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(fields: &'a dyn Fields, seal: Option<&'a dyn Seal>) -> Reading<'a> {
        Reading { fields, seal, names: HashMap::new(), unsealed: 0, needed: Needed::default() }
    }

    /// The next change of a log, unless nobody could ever see it.
    fn needed(&mut self, record: &Record<'_>) -> Result<Option<Change>, Unread> {
        if self.needed.next() {
            return self.change(record).map(Some);
        }
        self.count(record);
        Ok(None)
    }

    /// A change, with what its object is selected by.
    pub(crate) fn change(&mut self, record: &Record<'_>) -> Result<Change, Unread> {
        self.count(record);
        let key = Key::from_path(self.name(record.group, record.resource), Arc::from(record.path));
        let plain = match record.content {
            Content::Nothing => None,
            Content::Plain(json) => Some(json.to_vec()),
            Content::Sealed(sealed) => Some(self.opened(&key, sealed)?),
        };
        let next = match plain {
            Some(plain) => Some(Draft::stored(&key, plain, self.fields).map_err(|_| "an object that is not one")?),
            None => None,
        };
        Ok(Change { key, expectation: Expectation::Any, next })
    }

    /// Counts what lies open and should not.
    fn count(&mut self, record: &Record<'_>) {
        if let (Content::Plain(_), Some(seal)) = (&record.content, self.seal) {
            let resource = self.name(record.group, record.resource);
            self.unsealed += usize::from(seal.covers(&resource));
        }
    }

    fn name(&mut self, group: &str, resource: &str) -> GroupResource {
        let key = (group.into(), resource.into());
        self.names.entry(key).or_insert_with(|| GroupResource::new(group, resource)).clone()
    }

    fn opened(&self, key: &Key, sealed: &[u8]) -> Result<Vec<u8>, Unread> {
        let opened = match self.seal {
            Some(seal) => seal.open(&place(key), sealed),
            None => Err("there is no key".to_owned()),
        };
        opened.map_err(|why| Unread::Sealed(format!("{key}: {why}")))
    }
}

/// Why what was written can't be read, although its checksum holds.
pub(crate) enum Unread {
    /// It makes no sense.
    Broken(&'static str),
    /// It is sealed.
    Sealed(String),
}

impl Unread {
    /// The same for who asked for a file.
    pub(crate) fn at(self, file: &str, offset: u64) -> OpenError {
        match self {
            Unread::Broken(why) => damaged(file, offset, why),
            Unread::Sealed(why) => OpenError::Sealed(why),
        }
    }
}

impl From<&'static str> for Unread {
    fn from(why: &'static str) -> Unread {
        Unread::Broken(why)
    }
}

/// Appends one change. The JSON may come in two parts.
pub(crate) fn put_change(buffer: &mut Vec<u8>, key: &Key, json: Option<(&[u8], &[u8])>, seal: Option<&dyn Seal>) {
    let seal = seal.filter(|seal| seal.covers(key.resource()));
    buffer.push(match (json, seal) {
        (None, _) => DELETE,
        (Some(_), None) => PUT,
        (Some(_), Some(_)) => SEALED,
    });
    put_place(buffer, key);
    match (json, seal) {
        (None, _) => {}
        (Some((head, tail)), None) => {
            put_varint(buffer, (head.len() + tail.len()) as u64);
            buffer.extend_from_slice(head);
            buffer.extend_from_slice(tail);
        }
        (Some((head, tail)), Some(seal)) => put_bytes(buffer, &seal.seal(&place(key), &[head, tail].concat())),
    }
}

/// Where an object belongs, for its seal.
pub(crate) fn place(key: &Key) -> Vec<u8> {
    let mut place = Vec::new();
    put_place(&mut place, key);
    place
}

fn put_place(buffer: &mut Vec<u8>, key: &Key) {
    put_bytes(buffer, key.resource().group.as_bytes());
    put_bytes(buffer, key.resource().resource.as_bytes());
    put_bytes(buffer, key.path().as_bytes());
}

pub(crate) fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

fn put_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(buffer, bytes.len() as u64);
    buffer.extend_from_slice(bytes);
}

/// Reads what the functions above wrote. Every error means damage: the checksum held, the content does not make sense.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or("a number that is cut off")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number that is too long")
    }

    fn bytes(&mut self) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a length that is too large")?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or("bytes that are cut off")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a name that is not UTF-8")
    }

    pub(crate) fn record(&mut self) -> Result<Record<'a>, &'static str> {
        let (&what, rest) = self.0.split_first().ok_or("a change that is cut off")?;
        self.0 = rest;
        let (group, resource, path) = (self.text()?, self.text()?, self.text()?);
        let content = match what {
            DELETE => Content::Nothing,
            PUT => Content::Plain(self.bytes()?),
            SEALED => Content::Sealed(self.bytes()?),
            _ => return Err("a change of unknown kind"),
        };
        Ok(Record { group, resource, path, content })
    }
}

/// A change as it is written.
pub(crate) struct Record<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) path: &'a str,
    pub(crate) content: Content<'a>,
}

/// What is written of an object.
pub(crate) enum Content<'a> {
    /// It is deleted.
    Nothing,
    /// Its JSON.
    Plain(&'a [u8]),
    /// Its JSON, sealed.
    Sealed(&'a [u8]),
}
