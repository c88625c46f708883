//! Backup and restore: a backup is a checkpoint in a file of its own.

use std::io;

use super::checkpoint::{self, CheckpointHeader};
use super::directory::{self, Identity, OpenError};
use super::record::Reading;
use super::recovery::Report;
use super::{create, jumped, lock};
use crate::disk::Disk;
use crate::facts::Fields;
use crate::head::Head;
use crate::seal::Seal;
use crate::snapshot::Snapshot;

/// How far a restore moves the revision forward: further than anyone can have written since the backup, so that every cache
/// filled before it is told to list again.
pub const RESTORE_JUMP: u64 = 1_000_000_000;

/// Writes everything at one revision to a file. Others go on writing meanwhile. Returns its size.
///
/// What `seal` covers is sealed in it: to restore it takes the same keys.
pub async fn backup(snapshot: &Snapshot, disk: &dyn Disk, name: &str, seal: Option<&dyn Seal>) -> io::Result<u64> {
    let header =
        CheckpointHeader { identity: Identity::default(), segment: 0, chain: 0, revision: snapshot.revision() };
    checkpoint::write(disk, name, header, snapshot, seal).await
}

/// Makes a new data directory from a backup. The directory must be empty; the backup is checked before anything is written.
pub async fn restore(
    from: &dyn Disk,
    name: &str,
    to: &dyn Disk,
    identity: Identity,
    fields: &dyn Fields,
    seal: Option<&dyn Seal>,
) -> Result<Report, OpenError> {
    let read = read_backup(from, name, fields, seal).await?;
    let head = Head { revision: jumped(read.revision()), ..read.head().clone() };
    let snapshot = Snapshot::new(head);
    create_from(to, identity, &snapshot, seal).await?;
    let objects = snapshot.counts().values().sum();
    Ok(Report { revision: snapshot.revision(), objects, checkpoint_objects: objects, clean: true, ..Report::default() })
}

/// Everything in a backup, at the revision that it is of.
pub async fn read_backup(
    from: &dyn Disk,
    name: &str,
    fields: &dyn Fields,
    seal: Option<&dyn Seal>,
) -> Result<Snapshot, OpenError> {
    let mut reading = Reading::new(fields, seal);
    let (header, head) = checkpoint::read(from, name, &mut reading).await?;
    match header.segment {
        0 => Ok(Snapshot::new(head)),
        _ => Err(directory::damaged(name, 0, "it is not a backup")),
    }
}

/// Makes a new data directory that begins with a snapshot. The directory must be empty.
pub async fn create_from(
    to: &dyn Disk,
    identity: Identity,
    snapshot: &Snapshot,
    seal: Option<&dyn Seal>,
) -> Result<(), OpenError> {
    let _lock = lock(to).await?;
    if directory::read(to).await?.is_some() {
        return Err(OpenError::Foreign("format".into()));
    }
    create(to, identity, snapshot.clone(), seal).await
}
