//! The only way to touch files, so that a test can own the disk: cut its power, tear, corrupt and fill it.

mod memory;
mod real;

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;

pub use memory::{Fault, MemoryDisk};
pub use real::RealDisk;

/// What a disk operation returns.
pub type Io<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Holds a directory's exclusive lock until it is dropped.
pub type Lock = Box<dyn Send + Sync>;

/// A file in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
}

/// Which step of a write with a sync failed. They differ: a failed write may be tried again, a failed sync never.
#[derive(Debug)]
pub enum WriteError {
    /// The bytes could not be written.
    Write(io::Error),
    /// They could not be made durable. What the disk holds is unknown now.
    Sync(io::Error),
}

/// One flat directory of files.
///
/// As on a POSIX file system, bytes written are durable after [`Disk::sync`] of the file, and a file's creation, new name or
/// removal after [`Disk::sync_directory`]. Until then a power cut may keep any part of them.
pub trait Disk: Send + Sync + 'static {
    /// Takes the directory's exclusive lock, or fails with [`io::ErrorKind::WouldBlock`].
    fn lock(&self) -> Io<'_, Lock>;

    /// All files, in the order of their names.
    fn list(&self) -> Io<'_, Vec<FileInfo>>;

    /// Up to `length` bytes from `offset`; fewer at the end of the file.
    fn read<'a>(&'a self, name: &'a str, offset: u64, length: usize) -> Io<'a, Vec<u8>>;

    /// A new file of `reserve` zero bytes, whose space is taken now. Fails if there is one of that name.
    fn create<'a>(&'a self, name: &'a str, reserve: u64) -> Io<'a, ()>;

    /// Writes at an offset, growing the file as needed.
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Io<'a, ()>;

    /// Makes all writes to a file durable.
    fn sync<'a>(&'a self, name: &'a str) -> Io<'a, ()>;

    /// Cuts a file to a length.
    fn truncate<'a>(&'a self, name: &'a str, length: u64) -> Io<'a, ()>;

    /// Renames a file, replacing the one that has the new name.
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Io<'a, ()>;

    /// Removes a file.
    fn remove<'a>(&'a self, name: &'a str) -> Io<'a, ()>;

    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Io<'_, ()>;

    /// Writes, then syncs: the step that every group of commits waits for.
    fn write_and_sync<'a>(
        &'a self,
        name: &'a str,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send + 'a>> {
        Box::pin(async move {
            self.write(name, offset, data).await.map_err(WriteError::Write)?;
            self.sync(name).await.map_err(WriteError::Sync)
        })
    }
}

/// Whether an error means that there is no space: the one kind of failure that goes away by itself.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
