//! The journal in a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::Journal;
use crate::slots::replace;

/// Where the journal is kept.
pub struct JournalFile {
    path: PathBuf,
}

impl JournalFile {
    /// The journal of a folder.
    pub fn of(folder: &Path) -> JournalFile {
        JournalFile { path: folder.join("journal") }
    }

    /// What was kept; none if nothing ever was.
    pub fn read(&self) -> io::Result<Option<Journal>> {
        match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Journal::decode(&*read?).map(Some).map_err(io::Error::other),
        }
    }

    /// Keeps it, durably.
    pub fn write(&self, journal: &Journal) -> io::Result<()> {
        replace(&self.path, &journal.encode_to_vec())
    }
}
