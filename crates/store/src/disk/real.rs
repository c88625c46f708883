//! A directory on a real file system.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, FlockOperation};

use super::{Disk, FileInfo, Io, Lock, WriteError};

const LOCK_FILE: &str = "lock";

/// A directory of mode 0700 with files of mode 0600. Blocking calls run on the runtime's blocking threads.
pub struct RealDisk {
    directory: Arc<Path>,
    /// Files that are written to, so that each group of commits needs no open.
    open: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl RealDisk {
    /// Uses `directory`, making it if it is not there.
    pub fn new(directory: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let directory: PathBuf = directory.into();
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        }
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        Ok(RealDisk { directory: directory.into(), open: Arc::default() })
    }

    fn blocking<T: Send + 'static>(&self, work: impl FnOnce(Files) -> io::Result<T> + Send + 'static) -> Io<'_, T> {
        let files = Files { directory: Arc::clone(&self.directory), open: Arc::clone(&self.open) };
        Box::pin(async move { tokio::task::spawn_blocking(move || work(files)).await.map_err(io::Error::other)? })
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> Io<'_, Lock> {
        self.blocking(|files| {
            let file = private().create(true).write(true).truncate(false).open(files.path(LOCK_FILE))?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Box::new(file) as Lock)
        })
    }

    fn list(&self) -> Io<'_, Vec<FileInfo>> {
        self.blocking(|files| {
            let mut found = Vec::new();
            for entry in fs::read_dir(&files.directory)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                match entry.file_name().into_string() {
                    Ok(name) if metadata.is_file() && name != LOCK_FILE => {
                        found.push(FileInfo { name, length: metadata.len() });
                    }
                    _ => {}
                }
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found)
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, length: usize) -> Io<'a, Vec<u8>> {
        let name = name.to_owned();
        self.blocking(move |files| {
            let file = File::open(files.path(&name))?;
            let available = file.metadata()?.len().saturating_sub(offset);
            let mut data = vec![0; length.min(usize::try_from(available).unwrap_or(usize::MAX))];
            file.read_exact_at(&mut data, offset)?;
            Ok(data)
        })
    }

    fn create<'a>(&'a self, name: &'a str, reserve: u64) -> Io<'a, ()> {
        let name = name.to_owned();
        self.blocking(move |files| {
            let path = files.path(&name);
            let file = private().create_new(true).read(true).write(true).open(&path)?;
            if reserve > 0 {
                match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, reserve) {
                    // A file system without reservation still works: syncs then also write the new length.
                    Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                    Err(error) => {
                        fs::remove_file(&path)?;
                        return Err(error.into());
                    }
                }
            }
            files.open().insert(name, Arc::new(file));
            Ok(())
        })
    }

    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Io<'a, ()> {
        let name = name.to_owned();
        self.blocking(move |files| files.opened(&name)?.write_all_at(&data, offset))
    }

    fn sync<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        let name = name.to_owned();
        self.blocking(move |files| files.opened(&name)?.sync_data())
    }

    fn truncate<'a>(&'a self, name: &'a str, length: u64) -> Io<'a, ()> {
        let name = name.to_owned();
        self.blocking(move |files| files.opened(&name)?.set_len(length))
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Io<'a, ()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.blocking(move |files| {
            files.open().remove(&from);
            files.open().remove(&to);
            fs::rename(files.path(&from), files.path(&to))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Io<'a, ()> {
        let name = name.to_owned();
        self.blocking(move |files| {
            files.open().remove(&name);
            fs::remove_file(files.path(&name))
        })
    }

    fn sync_directory(&self) -> Io<'_, ()> {
        self.blocking(|files| File::open(&files.directory)?.sync_all())
    }

    fn write_and_sync<'a>(
        &'a self,
        name: &'a str,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send + 'a>> {
        let name = name.to_owned();
        let work = self.blocking(move |files| {
            Ok(files
                .opened(&name)
                .and_then(|file| file.write_all_at(&data, offset).map(|()| file))
                .map_err(WriteError::Write)
                .and_then(|file| file.sync_data().map_err(WriteError::Sync)))
        });
        Box::pin(async move { work.await.map_err(WriteError::Sync)? })
    }
}

struct Files {
    directory: Arc<Path>,
    open: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<File>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.open().get(name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(self.path(name))?);
        self.open().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
