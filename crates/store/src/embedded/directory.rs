//! What a data directory holds: its format and identity, the names of its files, and the headers of its segments.

use std::fmt;
use std::io;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use setpoint_api::Revision;

use crate::disk::{Disk, FileInfo};

/// The format that this version writes and the newest that it reads.
pub const FORMAT: u32 = 1;

const FORMAT_FILE: &str = "format";
const TEMPORARY: &str = ".tmp";
const SEGMENT_MAGIC: &[u8; 8] = b"SPSEG001";

/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 64;

/// Tells one store from another, so that a foreign file is never taken for one of ours.
pub type Identity = [u8; 16];

/// Why a data directory can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    Locked,
    /// It is not empty and not a data directory of ours.
    Foreign(String),
    /// It was written by a newer version.
    Newer {
        /// Its format.
        found: u32,
    },
    /// Bytes that were durable once are not what was written. Nothing was changed.
    Damaged {
        /// The file.
        file: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It has objects that are sealed, and can't be opened. Nothing was changed.
    Sealed(String),
    /// The disk failed.
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked => f.write_str("the data directory is in use by another process"),
            OpenError::Foreign(file) => {
                write!(f, "the data directory is not empty and not ours: it has a file {file:?} and no {FORMAT_FILE:?}")
            }
            OpenError::Newer { found } => write!(
                f,
                "the data directory has format {found}, written by a newer version; this version reads up to {FORMAT}"
            ),
            OpenError::Damaged { file, offset, why } => {
                write!(f, "the data directory is damaged: {file} at byte {offset}: {why}; restore a backup")
            }
            OpenError::Sealed(why) => write!(f, "an object is sealed and can't be opened: {why}"),
            OpenError::Io(error) => write!(f, "the data directory can't be read: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

pub(crate) fn damaged(file: &str, offset: u64, why: impl Into<String>) -> OpenError {
    OpenError::Damaged { file: file.to_owned(), offset, why: why.into() }
}

#[derive(Serialize, Deserialize)]
struct FormatFile {
    format: u32,
    #[serde(default)]
    store: String,
}

/// Files of a directory by what they are.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) identity: Identity,
    /// Sequence numbers of segments, rising.
    pub(crate) segments: Vec<(u64, FileInfo)>,
    /// Sequence numbers of checkpoints (the first segment to replay after each), rising.
    pub(crate) checkpoints: Vec<(u64, FileInfo)>,
    /// Left over from a write that never finished.
    pub(crate) temporary: Vec<String>,
}

/// Reads the directory's format and files; `None` for an empty one.
pub(crate) async fn read(disk: &dyn Disk) -> Result<Option<Directory>, OpenError> {
    let files = disk.list().await?;
    let Some(format) = files.iter().find(|file| file.name == FORMAT_FILE) else {
        return match files.iter().find(|file| !is_unfinished_start(&file.name)) {
            Some(foreign) => Err(OpenError::Foreign(foreign.name.clone())),
            None => Ok(None),
        };
    };
    let bytes = disk.read(FORMAT_FILE, 0, 4096.min(format.length as usize)).await?;
    let parsed: FormatFile = serde_json::from_slice(&bytes)
        .map_err(|_| damaged(FORMAT_FILE, 0, "not the format file of a data directory"))?;
    if parsed.format > FORMAT {
        return Err(OpenError::Newer { found: parsed.format });
    }
    if parsed.format == 0 {
        return Err(damaged(FORMAT_FILE, 0, "there never was a format 0"));
    }
    let identity =
        parse_identity(&parsed.store).ok_or_else(|| damaged(FORMAT_FILE, 0, "it does not name its store"))?;
    let mut directory = Directory { identity, segments: Vec::new(), checkpoints: Vec::new(), temporary: Vec::new() };
    for file in files {
        if file.name.ends_with(TEMPORARY) {
            directory.temporary.push(file.name);
        } else if let Some(sequence) = numbered(&file.name, "segment-") {
            directory.segments.push((sequence, file));
        } else if let Some(sequence) = numbered(&file.name, "checkpoint-") {
            directory.checkpoints.push((sequence, file));
        }
    }
    Ok(Some(directory))
}

/// Makes an empty directory ours: everything else is in place before the format file appears.
pub(crate) async fn initialize(disk: &dyn Disk, identity: Identity) -> io::Result<()> {
    let json = serde_json::to_vec(&FormatFile { format: FORMAT, store: print_identity(identity) })?;
    let temporary = temporary_name(FORMAT_FILE);
    remove_if_there(disk, &temporary).await?;
    disk.create(&temporary, 0).await?;
    disk.write(&temporary, 0, Bytes::from(json)).await?;
    disk.sync(&temporary).await?;
    disk.rename(&temporary, FORMAT_FILE).await?;
    disk.sync_directory().await
}

/// What a start that was cut off before the format file can have left.
fn is_unfinished_start(name: &str) -> bool {
    name.ends_with(TEMPORARY) || name == checkpoint_name(1)
}

pub(crate) async fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:020}")
}

pub(crate) fn checkpoint_name(sequence: u64) -> String {
    format!("checkpoint-{sequence:020}")
}

pub(crate) fn temporary_name(name: &str) -> String {
    format!("{name}{TEMPORARY}")
}

fn numbered(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

fn print_identity(identity: Identity) -> String {
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_identity(text: &str) -> Option<Identity> {
    let mut identity = Identity::default();
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in identity.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(identity)
}

/// The first bytes of a segment: which store and place it belongs to, and where the segment before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: Identity,
    pub(crate) sequence: u64,
    /// Checksum of the last group before this segment.
    pub(crate) chain: u32,
    /// Where the groups of the segment before end; 0 if there is none.
    pub(crate) previous_end: u64,
    /// All revisions in this segment are newer.
    pub(crate) base: Revision,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER);
        bytes.extend_from_slice(SEGMENT_MAGIC);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.chain).to_le_bytes());
        bytes.extend_from_slice(&self.previous_end.to_le_bytes());
        bytes.extend_from_slice(&self.base.get().to_le_bytes());
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER)?;
        let double = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let intact = bytes.starts_with(SEGMENT_MAGIC) && double(8) == u64::from(crc32c::crc32c(&bytes[16..]));
        intact.then(|| SegmentHeader {
            identity: bytes[16..32].try_into().expect("sixteen bytes"),
            sequence: double(32),
            chain: double(40) as u32,
            previous_end: double(48),
            base: Revision::new(double(56)),
        })
    }
}
