//! Two places for firmware in a directory: `slot-a`, `slot-b`, and `boot.json` that says which one to start from.
//!
//! It stands in for a boot loader where there is none: a restart of the agent is a restart of the vehicle. Every change is written
//! beside, synced and renamed, so a kill at any moment leaves the state before or the state after.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Running, Slot};

/// Starts from a new slot before it is given up.
const TRIES: u64 = 3;

/// Which slot this start is from, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The slot that runs.
    pub slot: Slot,
    /// Whether a new slot was tried and given up since it was armed.
    pub fell_back: bool,
    /// The digest of the artifact in the other slot, if it is whole; empty otherwise.
    pub inactive_digest: Box<str>,
}

impl Default for Boot {
    fn default() -> Self {
        Boot { slot: Slot::A, fell_back: false, inactive_digest: "".into() }
    }
}

/// The two slots of a directory.
#[derive(Clone, Debug)]
pub struct Slots {
    folder: PathBuf,
}

/// What `boot.json` says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    active: Slot,
    /// The slot on trial, and how often it may still be started.
    trial: Option<(Slot, u64)>,
    fell_back: bool,
}

impl Slots {
    /// The slots of a directory, which are made if they aren't there.
    pub fn open(folder: &Path) -> io::Result<Slots> {
        for slot in [Slot::A, Slot::B] {
            fs::create_dir_all(folder.join(name(slot)))?;
        }
        Ok(Slots { folder: folder.to_owned() })
    }

    /// What a boot loader does: chooses the slot to start from. A slot on trial has one try less from now on.
    pub fn boot(&self) -> io::Result<Boot> {
        let mut table = self.table()?;
        let slot = match table.trial {
            Some((slot, tries)) if tries > 0 => {
                table.trial = Some((slot, tries - 1));
                self.write(&table)?;
                slot
            }
            Some(_) => {
                table.trial = None;
                table.fell_back = true;
                self.write(&table)?;
                table.active
            }
            None => table.active,
        };
        let inactive_digest = self.manifest(slot.other()).map(|running| running.digest).unwrap_or_default();
        Ok(Boot { slot, fell_back: table.fell_back, inactive_digest: inactive_digest.into() })
    }

    /// Another boot loader says from which slot it started; the table follows, so that this slot is never written to.
    pub fn booted(&self, slot: Slot, fell_back: bool) -> io::Result<Boot> {
        let table = Table { active: slot, trial: None, fell_back };
        if self.table()? != table {
            self.write(&table)?;
        }
        let inactive_digest = self.manifest(slot.other()).map(|running| running.digest).unwrap_or_default();
        Ok(Boot { slot, fell_back, inactive_digest: inactive_digest.into() })
    }

    /// Where the artifact of a slot is.
    #[must_use]
    pub fn artifact(&self, slot: Slot) -> PathBuf {
        self.folder.join(name(slot)).join("firmware.bin")
    }

    /// What a slot holds, if it was installed.
    #[must_use]
    pub fn manifest(&self, slot: Slot) -> Option<Running> {
        let text = fs::read_to_string(self.manifest_path(slot)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        Some(Running {
            version: text("version"),
            digest: text("digest"),
            release_counter: value["releaseCounter"].as_u64().unwrap_or_default(),
            rxswin: text("rxswin"),
        })
    }

    /// Forgets what a slot holds, before other bytes come into it. The slot to start from is never touched.
    pub fn clear(&self, slot: Slot) -> io::Result<()> {
        if self.table()?.active == slot {
            return Err(io::Error::other("the slot to start from is never written to"));
        }
        match fs::remove_file(self.manifest_path(slot)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Says that a slot holds this, whole.
    pub fn install(&self, slot: Slot, firmware: &Running) -> io::Result<()> {
        File::open(self.artifact(slot))?.sync_all()?;
        let manifest = json!({
            "version": firmware.version, "digest": firmware.digest, "releaseCounter": firmware.release_counter,
            "rxswin": firmware.rxswin,
        });
        replace(&self.manifest_path(slot), manifest.to_string().as_bytes())
    }

    /// The next starts are from a slot, until it is confirmed or its tries are used up.
    pub fn arm(&self, slot: Slot) -> io::Result<()> {
        let active = self.table()?.active;
        self.write(&Table { active, trial: Some((slot, TRIES)), fell_back: false })
    }

    /// A slot is good: it is the one to start from.
    pub fn commit(&self, slot: Slot) -> io::Result<()> {
        self.write(&Table { active: slot, trial: None, fell_back: false })
    }

    /// The slot on trial is not: the next start is from the one before.
    pub fn disarm(&self) -> io::Result<()> {
        let active = self.table()?.active;
        self.write(&Table { active, trial: None, fell_back: false })
    }

    fn manifest_path(&self, slot: Slot) -> PathBuf {
        self.folder.join(name(slot)).join("manifest.json")
    }

    fn table(&self) -> io::Result<Table> {
        let text = match fs::read_to_string(self.folder.join("boot.json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Table { active: Slot::A, trial: None, fell_back: false });
            }
            read => read?,
        };
        let value: Value = serde_json::from_str(&text).map_err(io::Error::other)?;
        let slot = |value: &Value| match value.as_str() {
            Some("a") => Ok(Slot::A),
            Some("b") => Ok(Slot::B),
            _ => Err(io::Error::other("boot.json names no slot")),
        };
        let trial = match &value["trial"] {
            Value::Null => None,
            trial => Some((slot(&trial["slot"])?, trial["tries"].as_u64().unwrap_or_default())),
        };
        Ok(Table { active: slot(&value["active"])?, trial, fell_back: value["fellBack"] == true })
    }

    fn write(&self, table: &Table) -> io::Result<()> {
        let trial = table.trial.map(|(slot, tries)| json!({"slot": slot.word(), "tries": tries}));
        let text = json!({"active": table.active.word(), "trial": trial, "fellBack": table.fell_back}).to_string();
        replace(&self.folder.join("boot.json"), text.as_bytes())
    }
}

fn name(slot: Slot) -> &'static str {
    match slot {
        Slot::A => "slot-a",
        Slot::B => "slot-b",
    }
}

/// Puts bytes in the place of a file: durable when it returns, and at no moment half.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file is in a folder"))?;
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}
