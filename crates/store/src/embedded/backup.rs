//! Backup and restore: a backup is a checkpoint in a file of its own.

use std::io;

use super::checkpoint::{self, CheckpointHeader};
use super::directory::{self, Identity, OpenError};
use super::recovery::Report;
use super::{create, jumped, lock};
use crate::disk::Disk;
use crate::facts::Fields;
use crate::snapshot::Snapshot;

/// How far a restore moves the revision forward: further than anyone can have written since the backup, so that every cache
/// filled before it is told to list again.
pub const RESTORE_JUMP: u64 = 1_000_000_000;

/// Writes everything at one revision to a file. Others go on writing meanwhile. Returns its size.
pub async fn backup(snapshot: &Snapshot, disk: &dyn Disk, name: &str) -> io::Result<u64> {
    let header =
        CheckpointHeader { identity: Identity::default(), segment: 0, chain: 0, revision: snapshot.revision() };
    checkpoint::write(disk, name, header, snapshot).await
}

/// Makes a new data directory from a backup. The directory must be empty; the backup is checked before anything is written.
pub async fn restore(
    from: &dyn Disk,
    name: &str,
    to: &dyn Disk,
    identity: Identity,
    fields: &dyn Fields,
) -> Result<Report, OpenError> {
    let mut names = super::record::ResourceNames::default();
    let (header, mut head) = checkpoint::read(from, name, fields, &mut names).await?;
    if header.segment != 0 {
        return Err(directory::damaged(name, 0, "it is not a backup"));
    }
    let _lock = lock(to).await?;
    if directory::read(to).await?.is_some() {
        return Err(OpenError::Foreign("format".into()));
    }
    head.revision = jumped(header.revision);
    let snapshot = Snapshot::new(head);
    create(to, identity, snapshot.clone()).await?;
    let objects = snapshot.counts().values().sum();
    Ok(Report { revision: snapshot.revision(), objects, checkpoint_objects: objects, clean: true, ..Report::default() })
}
