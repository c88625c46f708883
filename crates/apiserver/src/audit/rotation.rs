//! A file that is put aside when it is full. Of those put aside, the newest are kept.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use setpoint_api::time::Timestamp;

use crate::clock::Clock;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of one file.
    pub bytes: u64,
    /// Files put aside; none: any number.
    pub files: Option<usize>,
    /// Age of a file put aside; none: any age.
    pub age: Option<Duration>,
}

impl Default for Bounds {
    /// 100 MiB, ten files, thirty days: about a GiB at most.
    fn default() -> Bounds {
        Bounds { bytes: 100 * 1024 * 1024, files: Some(10), age: Some(Duration::from_secs(30 * 24 * 3600)) }
    }
}

/// A file of lines, readable by its owner only. A line is never cut in two.
///
/// One that is put aside has the time of that in its name: `audit-2026-11-16T12-43-25.000000.log`.
pub struct RotatedFile {
    path: PathBuf,
    bounds: Bounds,
    clock: Clock,
    file: File,
    length: u64,
}

impl RotatedFile {
    /// Opens a file to append to it, making it and its folder if they aren't there.
    pub fn open(path: &Path, bounds: Bounds, clock: Clock) -> io::Result<RotatedFile> {
        let folder = folder_of(path);
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let (file, length) = open(path)?;
        let rotated = RotatedFile { path: path.to_owned(), bounds, clock, file, length };
        rotated.remove_old()?;
        Ok(rotated)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut now = self.clock.now();
        while self.folder().join(self.name_at(now)).exists() {
            now += Duration::from_micros(1);
        }
        fs::rename(&self.path, self.folder().join(self.name_at(now)))?;
        (self.file, self.length) = open(&self.path)?;
        self.remove_old()
    }

    fn remove_old(&self) -> io::Result<()> {
        let (start, end) = self.name_parts();
        let mut aside = Vec::new();
        for entry in fs::read_dir(self.folder())? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if name.starts_with(&start) && name.ends_with(&end) && name.len() == self.name_at(Duration::ZERO).len() {
                aside.push(name);
            }
        }
        aside.sort_unstable();
        let surplus = aside.len().saturating_sub(self.bounds.files.unwrap_or(usize::MAX));
        // Names are in the order of their times.
        let oldest = self.bounds.age.map(|age| self.name_at(self.clock.now().saturating_sub(age)));
        for (index, name) in aside.iter().enumerate() {
            if index < surplus || oldest.as_ref().is_some_and(|oldest| name < oldest) {
                fs::remove_file(self.folder().join(name))?;
            }
        }
        Ok(())
    }

    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// What stands before the time in the name of a file put aside, and what behind it.
    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let end = part(self.path.extension()).map(|extension| format!(".{extension}"));
        (format!("{}-", part(self.path.file_stem()).unwrap_or_default()), end.unwrap_or_default())
    }

    fn name_at(&self, now: Duration) -> String {
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let time = Timestamp { seconds, nanoseconds: now.subsec_nanos() }.to_rfc3339_micro();
        let (start, end) = self.name_parts();
        format!("{start}{}{end}", time.trim_end_matches('Z').replace(':', "-"))
    }

    /// How many of these bytes go into the present file: whole lines.
    fn room_for(&self, bytes: &[u8]) -> usize {
        let room = usize::try_from(self.bounds.bytes.saturating_sub(self.length)).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            return bytes.len();
        }
        let end_of_line = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        match (end_of_line(&bytes[..room]), self.length) {
            (Some(end), _) => end,
            // One line that is larger than a file has a file for itself.
            (None, 0) => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
            (None, _) => 0,
        }
    }
}

impl Write for RotatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.room_for(bytes);
        if room == 0 && !bytes.is_empty() {
            self.rotate()?;
            room = self.room_for(bytes);
        }
        self.file.write_all(&bytes[..room])?;
        self.length += room as u64;
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    // A pipe or a terminal is whose it is.
    if metadata.is_file() {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn full_files_are_put_aside_and_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/audit.log");
        let clock = Clock::starting_at(Duration::from_secs(1_700_000_000));
        let bounds = Bounds { bytes: 10, files: Some(2), age: Some(Duration::from_secs(100)) };
        let mut file = RotatedFile::open(&path, bounds, clock.clone()).unwrap();
        file.write_all(b"first\nlast\nof three\n").unwrap();
        let kept = |name: &str| fs::read_to_string(path.with_file_name(name)).unwrap();
        assert_eq!(kept("audit.log"), "of three\n");
        tokio::time::advance(Duration::from_secs(1)).await;
        file.write_all(b"a line that is longer than a file\nshort\n").unwrap();
        let aside = names(path.parent().unwrap());
        assert_eq!(aside.len(), 3, "{aside:?}");
        assert_eq!(kept(&aside[1]), "a line that is longer than a file\n");
        assert_eq!(kept("audit.log"), "short\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));

        tokio::time::advance(Duration::from_secs(200)).await;
        drop(file);
        RotatedFile::open(&path, bounds, clock).unwrap();
        assert_eq!(names(path.parent().unwrap()), ["audit.log"]);
    }
}
