//! A disk in memory that loses, tears and refuses on request, the same way for the same seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Disk, FileInfo, Io, Lock};

/// Sectors are written whole or not at all.
const SECTOR: usize = 512;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this kind of error and does nothing.
    Error(io::ErrorKind),
    /// A write puts down half of its bytes, then fails with this kind of error.
    Partial(io::ErrorKind),
}

/// A directory in memory. Clones are the same disk; [`MemoryDisk::copy`] is another one.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

#[derive(Clone, Default)]
struct Inner {
    files: BTreeMap<u64, FileState>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes to names since the last directory sync.
    pending_names: Vec<NameChange>,
    next_file: u64,
    locked: bool,
    operations: u64,
    /// Faults by the number of the changing operation that they strike.
    faults: BTreeMap<u64, Fault>,
    capacity: Option<u64>,
    syncs: u64,
    bytes_written: u64,
    /// Keeps a copy of itself after each changing operation.
    recording: Option<Vec<MemoryDisk>>,
}

#[derive(Clone, Default)]
struct FileState {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync: offset and bytes. A truncation is an offset with no bytes.
    pending: Vec<(usize, Bytes)>,
}

#[derive(Clone)]
enum NameChange {
    Set(String, u64),
    /// From, to, and the file that moves: a rename that outlives the creation before it still names that file.
    Move(String, String, u64),
    Remove(String),
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Another disk with the same content.
    pub fn copy(&self) -> MemoryDisk {
        let mut inner = self.inner().clone();
        inner.recording = None;
        inner.locked = false;
        MemoryDisk(Arc::new(Mutex::new(inner)))
    }

    /// What a power cut leaves: everything synced, and of the rest a random part of the sectors and names.
    pub fn power_cut(&self, seed: u64) -> MemoryDisk {
        let mut rng = StdRng::seed_from_u64(seed);
        let old = self.inner().clone();
        let mut names = old.durable_names;
        for change in &old.pending_names {
            if rng.random() {
                change.apply(&mut names);
            }
        }
        let kept: BTreeSet<u64> = names.values().copied().collect();
        let mut files = old.files;
        files.retain(|id, _| kept.contains(id));
        files.values_mut().for_each(|file| file.cut(&mut rng));
        let inner = Inner {
            files,
            durable_names: names.clone(),
            names,
            next_file: old.next_file,
            capacity: old.capacity,
            ..Inner::default()
        };
        MemoryDisk(Arc::new(Mutex::new(inner)))
    }

    /// Strikes the `n`-th changing operation from now (1 is the next).
    pub fn fail(&self, n: u64, fault: Fault) {
        let mut inner = self.inner();
        let at = inner.operations + n;
        inner.faults.insert(at, fault);
    }

    /// Limits the disk to so many bytes; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inner().capacity = bytes;
    }

    /// Bytes that all files take.
    pub fn used(&self) -> u64 {
        self.inner().used()
    }

    /// Changing operations so far.
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    /// Syncs of files so far.
    pub fn syncs(&self) -> u64 {
        self.inner().syncs
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.inner().bytes_written
    }

    /// From now on keeps a copy of the disk after each changing operation.
    pub fn start_recording(&self) {
        self.inner().recording = Some(Vec::new());
    }

    /// The copies since [`MemoryDisk::start_recording`]; recording goes on.
    pub fn take_recording(&self) -> Vec<MemoryDisk> {
        self.inner().recording.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes a file behind everyone's back.
    pub fn corrupt(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.inner();
        let id = inner.names[name];
        let file = inner.files.get_mut(&id).expect("named files exist");
        change(&mut file.content);
        file.durable = file.content.clone();
        file.pending.clear();
    }

    /// Removes a file behind everyone's back.
    pub fn lose(&self, name: &str) {
        let mut inner = self.inner();
        inner.names.remove(name);
        inner.durable_names.remove(name);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one changing operation: counts it, applies its fault, records the outcome.
    fn change<T>(&self, work: impl FnOnce(&mut Inner, Option<Fault>) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.inner();
        inner.operations += 1;
        let number = inner.operations;
        let fault = inner.faults.remove(&number);
        let result = match fault {
            Some(Fault::Error(kind)) => Err(io::Error::new(kind, "planted fault")),
            fault => work(&mut inner, fault),
        };
        if let Some(mut recording) = inner.recording.take() {
            let copy = Inner { locked: false, ..inner.clone() };
            recording.push(MemoryDisk(Arc::new(Mutex::new(copy))));
            inner.recording = Some(recording);
        }
        result
    }
}

impl Inner {
    fn used(&self) -> u64 {
        self.names.values().map(|id| self.files[id].content.len() as u64).sum()
    }

    fn file(&mut self, name: &str) -> io::Result<&mut FileState> {
        let id = self.names.get(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))?;
        Ok(self.files.get_mut(id).expect("named files exist"))
    }

    fn check_space(&self, growth: usize) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if self.used() + growth as u64 > capacity => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"))
            }
            _ => Ok(()),
        }
    }

    fn set_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Move(from, to, id) => {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl FileState {
    fn write(&mut self, offset: usize, data: Bytes) {
        write_at(&mut self.content, offset, &data);
        self.pending.push((offset, data));
    }

    fn truncate(&mut self, length: usize) {
        self.content.resize(length, 0);
        self.pending.push((length, Bytes::new()));
    }

    /// What was written since the last sync is kept from now on, at the cost of what was written.
    fn sync(&mut self) {
        for (offset, data) in self.pending.drain(..) {
            match data.is_empty() {
                true => self.durable.resize(offset, 0),
                false => write_at(&mut self.durable, offset, &data),
            }
        }
    }

    /// Keeps any subset of the sectors written since the last sync.
    fn cut(&mut self, rng: &mut StdRng) {
        let mut content = std::mem::take(&mut self.durable);
        for (offset, data) in std::mem::take(&mut self.pending) {
            if data.is_empty() {
                if rng.random() {
                    content.resize(offset, 0);
                }
                continue;
            }
            let mut at = 0;
            while at < data.len() {
                let sector_end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                let end = sector_end.min(data.len());
                if rng.random() {
                    write_at(&mut content, offset + at, &data[at..end]);
                }
                at = end;
            }
        }
        self.durable = content.clone();
        self.content = content;
    }
}

fn write_at(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

impl Disk for MemoryDisk {
    fn lock(&self) -> Io<'_, Lock> {
        Box::pin(async move {
            let mut inner = self.inner();
            if std::mem::replace(&mut inner.locked, true) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(Box::new(Unlock(Arc::clone(&self.0))) as Lock)
        })
    }

    fn list(&self) -> Io<'_, Vec<FileInfo>> {
        Box::pin(async move {
            let inner = self.inner();
            let info = |(name, id): (&String, &u64)| FileInfo {
                name: name.clone(),
                length: inner.files[id].content.len() as u64,
            };
            Ok(inner.names.iter().map(info).collect())
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, length: usize) -> Io<'a, Vec<u8>> {
        Box::pin(async move {
            let mut inner = self.inner();
            let content = &inner.file(name)?.content;
            let start = content.len().min(offset as usize);
            let end = content.len().min(start.saturating_add(length));
            Ok(content[start..end].to_vec())
        })
    }

    fn create<'a>(&'a self, name: &'a str, reserve: u64) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                if inner.names.contains_key(name) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                inner.check_space(reserve as usize)?;
                let id = inner.next_file;
                inner.next_file += 1;
                let mut file = FileState::default();
                file.truncate(reserve as usize);
                inner.files.insert(id, file);
                inner.set_name(NameChange::Set(name.to_owned(), id));
                Ok(())
            })
        })
    }

    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, fault| {
                let offset = offset as usize;
                let growth = (offset + data.len()).saturating_sub(inner.file(name)?.content.len());
                inner.check_space(growth)?;
                if let Some(Fault::Partial(kind)) = fault {
                    inner.file(name)?.write(offset, data.slice(..data.len() / 2));
                    return Err(io::Error::new(kind, "planted fault"));
                }
                inner.bytes_written += data.len() as u64;
                inner.file(name)?.write(offset, data);
                Ok(())
            })
        })
    }

    fn sync<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                inner.syncs += 1;
                inner.file(name)?.sync();
                Ok(())
            })
        })
    }

    fn truncate<'a>(&'a self, name: &'a str, length: u64) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                inner.file(name)?.truncate(length as usize);
                Ok(())
            })
        })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                inner.file(from)?;
                let id = inner.names[from];
                inner.set_name(NameChange::Move(from.to_owned(), to.to_owned(), id));
                Ok(())
            })
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                inner.file(name)?;
                inner.set_name(NameChange::Remove(name.to_owned()));
                Ok(())
            })
        })
    }

    fn sync_directory(&self) -> Io<'_, ()> {
        Box::pin(async move {
            self.change(|inner, _| {
                inner.pending_names.clear();
                inner.durable_names = inner.names.clone();
                Ok(())
            })
        })
    }
}

struct Unlock(Arc<Mutex<Inner>>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).locked = false;
    }
}
