//! Documents that were asked for, kept compressed: built on the first request, so that starting costs nothing.
//!
//! A document depends on its kinds alone, so servers in the same process share it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use setpoint_schema::Kind;
use tokio::time::Instant;

use super::definitions::Dialect;
use super::document::{self, Encoding};
use crate::discovery::etag;
use crate::registry::Served;

/// How long a document stays after it was last asked for. Clients keep their own copies; few ask twice.
const KEPT: Duration = Duration::from_secs(300);

/// Most documents that are known at a time: with more group versions than this, some are built again.
const DOCUMENTS_MAX: usize = 1024;

/// A document, compressed.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) etag: Arc<str>,
    gzip: Bytes,
}

impl Document {
    pub(super) fn gzip(&self) -> Bytes {
        self.gzip.clone()
    }

    pub(super) fn plain(&self) -> Bytes {
        let mut bytes = Vec::new();
        GzDecoder::new(&*self.gzip).read_to_end(&mut bytes).expect("we compressed it");
        bytes.into()
    }
}

/// Which document: the whole of version 2, or a group version of version 3.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    dialect: Dialect,
    encoding: Encoding,
    name: String,
}

struct Entry {
    /// What it was built from. Kinds are never changed in place: another pointer is another kind.
    kinds: Vec<Arc<Kind>>,
    etag: Arc<str>,
    gzip: Option<Bytes>,
    used: Instant,
}

impl Entry {
    fn is_of(&self, kinds: &[Arc<Served>]) -> bool {
        self.kinds.len() == kinds.len() && self.kinds.iter().zip(kinds).all(|(a, b)| Arc::ptr_eq(a, &b.kind))
    }
}

static ENTRIES: LazyLock<Mutex<HashMap<Key, Entry>>> = LazyLock::new(Mutex::default);

/// A document about these kinds.
pub(super) fn document(name: &str, kinds: &[Arc<Served>], dialect: Dialect, encoding: Encoding) -> Document {
    let key = Key { dialect, encoding, name: name.to_owned() };
    if let Some(found) = find(&key, kinds) {
        return found;
    }
    let bytes = document::build(kinds, dialect, encoding);
    // Both encodings have the tag of the JSON form: `Vary` tells them apart.
    let etag = match encoding {
        Encoding::Json => etag::of(&bytes).into(),
        Encoding::Protobuf => self::etag(name, kinds, dialect),
    };
    let document = Document { etag, gzip: compress(&bytes) };
    insert(key, kinds, &document.etag, Some(document.gzip.clone()));
    document
}

/// The tag of a document. It is known for longer than the document is kept: an index needs all tags, but who reads it asks
/// for one or two documents.
pub(super) fn etag(name: &str, kinds: &[Arc<Served>], dialect: Dialect) -> Arc<str> {
    let key = Key { dialect, encoding: Encoding::Json, name: name.to_owned() };
    let known = lock().get(&key).filter(|entry| entry.is_of(kinds)).map(|entry| Arc::clone(&entry.etag));
    known.unwrap_or_else(|| {
        let etag = etag::of(&document::build(kinds, dialect, Encoding::Json)).into();
        insert(key, kinds, &etag, None);
        etag
    })
}

fn find(key: &Key, kinds: &[Arc<Served>]) -> Option<Document> {
    let now = Instant::now();
    let mut entries = lock();
    for entry in entries.values_mut().filter(|entry| now.duration_since(entry.used) > KEPT) {
        entry.gzip = None;
    }
    let entry = entries.get_mut(key).filter(|entry| entry.is_of(kinds))?;
    entry.used = now;
    let gzip = entry.gzip.clone()?;
    Some(Document { etag: Arc::clone(&entry.etag), gzip })
}

fn insert(key: Key, kinds: &[Arc<Served>], etag: &Arc<str>, gzip: Option<Bytes>) {
    let mut entries = lock();
    if entries.len() >= DOCUMENTS_MAX {
        entries.clear();
    }
    entries.insert(
        key,
        Entry {
            kinds: kinds.iter().map(|served| Arc::clone(&served.kind)).collect(),
            etag: Arc::clone(etag),
            gzip,
            used: Instant::now(),
        },
    );
}

fn lock() -> std::sync::MutexGuard<'static, HashMap<Key, Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all").into()
}
