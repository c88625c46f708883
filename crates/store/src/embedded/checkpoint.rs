//! Everything at one revision in one file: where a start begins to read, and what a backup is.
//!
//! A header, then blocks of objects in order, each with its checksum chained to the one before, then an empty block that says how many
//! objects there were.

use std::io;

use bytes::Bytes;
use setpoint_api::Revision;

use super::directory::{Identity, OpenError, damaged, remove_if_there, temporary_name};
use super::record::{Cursor, Reading, Unread, put_change, put_varint};
use crate::disk::Disk;
use crate::head::Head;
use crate::key::Key;
use crate::object::Object;
use crate::seal::Seal;
use crate::snapshot::Snapshot;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"SPCKP001";
const HEADER: usize = 64;
const BLOCK_HEADER: usize = 8;

/// Objects are written in blocks of about this size: large enough for the disk, small enough to let others in between.
const BLOCK_BYTES: usize = 1024 * 1024;

/// A block that claims to be larger is damage: no object is that large.
const BLOCK_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    pub(crate) identity: Identity,
    /// The first segment to replay after it.
    pub(crate) segment: u64,
    /// Checksum of the last group before that segment.
    pub(crate) chain: u32,
    pub(crate) revision: Revision,
}

impl CheckpointHeader {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.chain).to_le_bytes());
        bytes.extend_from_slice(&self.revision.get().to_le_bytes());
        bytes.resize(HEADER, 0);
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<CheckpointHeader> {
        let bytes = bytes.get(..HEADER)?;
        let double = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let intact = bytes.starts_with(MAGIC) && double(8) == u64::from(crc32c::crc32c(&bytes[16..]));
        intact.then(|| CheckpointHeader {
            identity: bytes[16..32].try_into().expect("sixteen bytes"),
            segment: double(32),
            chain: double(40) as u32,
            revision: Revision::new(double(48)),
        })
    }
}

/// Writes a snapshot beside, syncs it, then gives it its name. Returns its size.
pub(crate) async fn write(
    disk: &dyn Disk,
    name: &str,
    header: CheckpointHeader,
    snapshot: &Snapshot,
    seal: Option<&dyn Seal>,
) -> io::Result<u64> {
    let temporary = temporary_name(name);
    remove_if_there(disk, &temporary).await?;
    let written = write_file(disk, &temporary, header, snapshot, seal).await;
    if written.is_err() {
        // Best effort: what stays is removed at the next start.
        let _ = disk.remove(&temporary).await;
    }
    let size = written?;
    disk.rename(&temporary, name).await?;
    disk.sync_directory().await?;
    Ok(size)
}

async fn write_file(
    disk: &dyn Disk,
    name: &str,
    header: CheckpointHeader,
    snapshot: &Snapshot,
    seal: Option<&dyn Seal>,
) -> io::Result<u64> {
    disk.create(name, 0).await?;
    let mut out = BlockWriter { disk, name, offset: 0, chain: 0, block: Vec::new() };
    let head = header.encode();
    out.chain = crc32c::crc32c(&head);
    disk.write(name, 0, Bytes::from(head)).await?;
    out.offset = HEADER as u64;
    let mut count = 0;
    for (resource, table) in snapshot.head().tables.iter() {
        for (path, entry) in table.scan(None, None) {
            let key = Key::from_path(resource.clone(), Arc::clone(path));
            put_varint(&mut out.block, entry.object.revision().get());
            put_change(&mut out.block, &key, Some(entry.object.plain()), seal);
            count += 1;
            if out.block.len() >= BLOCK_BYTES {
                out.flush().await?;
            }
        }
    }
    out.flush().await?;
    put_varint(&mut out.block, 0);
    put_varint(&mut out.block, count);
    out.flush().await?;
    disk.sync(name).await?;
    Ok(out.offset)
}

struct BlockWriter<'a> {
    disk: &'a dyn Disk,
    name: &'a str,
    offset: u64,
    chain: u32,
    block: Vec<u8>,
}

impl BlockWriter<'_> {
    async fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let payload = std::mem::take(&mut self.block);
        self.chain = crc32c::crc32c_append(self.chain, &payload);
        let mut bytes = Vec::with_capacity(BLOCK_HEADER + payload.len());
        bytes.extend_from_slice(&u32::try_from(payload.len()).expect("blocks are small").to_le_bytes());
        bytes.extend_from_slice(&self.chain.to_le_bytes());
        bytes.extend_from_slice(&payload);
        let size = bytes.len() as u64;
        self.disk.write(self.name, self.offset, Bytes::from(bytes)).await?;
        self.offset += size;
        Ok(())
    }
}

/// Reads a checkpoint whole, every checksum checked.
pub(crate) async fn read(
    disk: &dyn Disk,
    name: &str,
    reading: &mut Reading<'_>,
) -> Result<(CheckpointHeader, Head), OpenError> {
    let bytes = disk.read(name, 0, HEADER).await?;
    let header = CheckpointHeader::decode(&bytes).ok_or_else(|| damaged(name, 0, "its header does not hold"))?;
    let mut head = Head { revision: header.revision, ..Head::default() };
    let mut chain = crc32c::crc32c(&bytes);
    let mut offset = HEADER as u64;
    let mut count = 0;
    loop {
        let at = offset;
        let payload = read_block(disk, name, &mut offset, &mut chain).await?;
        let broken = |why: &str| damaged(name, at, why);
        let mut cursor = Cursor(&payload);
        while !cursor.0.is_empty() {
            let revision = Revision::new(cursor.varint().map_err(broken)?);
            if revision == Revision::ZERO {
                let total = cursor.varint().map_err(broken)?;
                let complete = total == count && cursor.0.is_empty();
                return complete.then_some((header, head)).ok_or_else(|| broken("it has not all its objects"));
            }
            let record = cursor.record().map_err(broken)?;
            let change = reading.change(&record).map_err(|why: Unread| why.at(name, at))?;
            let draft = change.next.ok_or_else(|| broken("a delete in a checkpoint"))?;
            if revision > header.revision {
                return Err(broken("an object newer than the checkpoint"));
            }
            let object = Object::new(&draft.plain, draft.insert_at, draft.facts, revision);
            head.tables.set(&change.key, Some(Arc::new(object)));
            count += 1;
        }
    }
}

async fn read_block(disk: &dyn Disk, name: &str, offset: &mut u64, chain: &mut u32) -> Result<Vec<u8>, OpenError> {
    let cut_off = |at: u64| damaged(name, at, "it is cut off");
    let header: [u8; BLOCK_HEADER] =
        disk.read(name, *offset, BLOCK_HEADER).await?.try_into().map_err(|_| cut_off(*offset))?;
    let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
    let crc = u32::from_le_bytes(header[4..].try_into().expect("four bytes"));
    if length > BLOCK_BYTES_MAX {
        return Err(damaged(name, *offset, "a block of impossible size"));
    }
    let payload = disk.read(name, *offset + BLOCK_HEADER as u64, length).await?;
    if payload.len() < length {
        return Err(cut_off(*offset));
    }
    *chain = crc32c::crc32c_append(*chain, &payload);
    if *chain != crc {
        return Err(damaged(name, *offset, "a block whose checksum does not hold"));
    }
    *offset += (BLOCK_HEADER + length) as u64;
    Ok(payload)
}
