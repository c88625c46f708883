//! A disk in memory that notes each operation, lets others in between, and can refuse to be read.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{Disk, FileInfo, Io, Lock, MemoryDisk};

/// What was asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Read,
    Create,
    Write,
    Sync,
    Truncate,
    Rename,
    Remove,
    SyncDirectory,
}

#[derive(Default)]
struct Trace {
    changes: Vec<(Operation, String)>,
    reads: u64,
    failing_read: Option<u64>,
    hasher: DefaultHasher,
    /// Decides how long each operation takes: real disks let others run meanwhile.
    patience: Option<StdRng>,
}

/// [`MemoryDisk`] with a trace of what was done to it.
#[derive(Clone)]
pub struct TracedDisk {
    pub memory: MemoryDisk,
    trace: Arc<Mutex<Trace>>,
}

impl TracedDisk {
    pub fn new(memory: MemoryDisk) -> TracedDisk {
        TracedDisk { memory, trace: Arc::default() }
    }

    /// One whose operations take a random number of turns, so that writers and checkpoints get in each other's way.
    pub fn slow(memory: MemoryDisk, seed: u64) -> TracedDisk {
        let disk = TracedDisk::new(memory);
        disk.trace.lock().expect("no panic").patience = Some(StdRng::seed_from_u64(seed));
        disk
    }

    /// Changing operations and their files, in order.
    pub fn changes(&self) -> Vec<(Operation, String)> {
        self.trace.lock().expect("no panic").changes.clone()
    }

    /// Reads and lists so far.
    pub fn reads(&self) -> u64 {
        self.trace.lock().expect("no panic").reads
    }

    /// The `n`-th read or list from the beginning fails.
    pub fn fail_read(&self, n: u64) {
        self.trace.lock().expect("no panic").failing_read = Some(n);
    }

    /// A hash over all operations, their arguments and the bytes written.
    pub fn hash(&self) -> u64 {
        self.trace.lock().expect("no panic").hasher.finish()
    }

    async fn turns(&self) {
        let turns = self.trace.lock().expect("no panic").patience.as_mut().map_or(0, |rng| rng.random_range(1..4));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    fn note(&self, operation: Operation, file: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut trace = self.trace.lock().expect("no panic");
        (operation, file, offset, data).hash(&mut trace.hasher);
        if operation != Operation::Read {
            trace.changes.push((operation, file.to_owned()));
            return Ok(());
        }
        trace.reads += 1;
        if trace.failing_read == Some(trace.reads) {
            return Err(io::Error::other("planted fault"));
        }
        Ok(())
    }
}

impl Disk for TracedDisk {
    fn lock(&self) -> Io<'_, Lock> {
        self.memory.lock()
    }

    fn list(&self) -> Io<'_, Vec<FileInfo>> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Read, "", 0, &[])?;
            self.memory.list().await
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, length: usize) -> Io<'a, Vec<u8>> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Read, name, offset, &length.to_le_bytes())?;
            self.memory.read(name, offset, length).await
        })
    }

    fn create<'a>(&'a self, name: &'a str, reserve: u64) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Create, name, reserve, &[])?;
            self.memory.create(name, reserve).await
        })
    }

    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Write, name, offset, &data)?;
            self.memory.write(name, offset, data).await
        })
    }

    fn sync<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Sync, name, 0, &[])?;
            self.memory.sync(name).await
        })
    }

    fn truncate<'a>(&'a self, name: &'a str, length: u64) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Truncate, name, length, &[])?;
            self.memory.truncate(name, length).await
        })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Rename, from, 0, to.as_bytes())?;
            self.memory.rename(from, to).await
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::Remove, name, 0, &[])?;
            self.memory.remove(name).await
        })
    }

    fn sync_directory(&self) -> Io<'_, ()> {
        Box::pin(async move {
            self.turns().await;
            self.note(Operation::SyncDirectory, "", 0, &[])?;
            self.memory.sync_directory().await
        })
    }
}
