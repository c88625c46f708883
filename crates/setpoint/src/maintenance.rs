//! Work on the data directory of a server: checking, keeping a copy, coming back from one. Only a copy can be made while the server runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use setpoint_api::{GroupResource, Revision};
use setpoint_apiserver::pki::SecretKeys;
use setpoint_store::{EtcdFiles, EtcdOptions, OpenError, RESTORE_JUMP, RealDisk, Report, Seal, Store};

use crate::arguments::DataArguments;
use crate::failure::{Failure, note, say};
use crate::sealing::SealArguments;
use crate::storage::{StoreArguments, StoreChoice};
use crate::{hub, sealing, server, service, storage};
use serde_json::json;
use setpoint_cli::{FormArguments, with_progress};

/// Reads every record, or every object in etcd.
pub async fn verify(data: &DataArguments, store: &StoreArguments) -> Result<(), Failure> {
    if let StoreChoice::Etcd(endpoints) = &store.store {
        return verify_etcd(store, store.etcd.options(endpoints)?).await;
    }
    let folder = data.folder()?;
    let what = format!("can't verify the data in {}", folder.display());
    let store = existing_store(&folder, &what)?;
    let disk = RealDisk::new(store).map_err(|error| Failure::of_file(&what, &error))?;
    // Nothing is written: whatever is encrypted can be read with them.
    let keys = keys(&folder, Vec::new(), &what)?;
    let has_keys = keys.is_some();
    let fields = service::fields();
    let verified = setpoint_store::verify(&disk, &*fields, keys.map(|keys| keys as _));
    match with_progress("reading every record", verified).await {
        Ok(report) if !has_keys => {
            say(&describe(&report));
            say("there are no keys: of what is encrypted only the checksums were checked");
            Ok(())
        }
        Ok(report) => {
            say(&describe(&report));
            Ok(())
        }
        Err(error) => Err(refused(&what, error)),
    }
}

/// Reads every object in etcd, with the keys that servers find there or in a folder. Nothing is written.
async fn verify_etcd(store: &StoreArguments, options: EtcdOptions) -> Result<(), Failure> {
    let place = storage::place(&options);
    let what = format!("can't verify {place}");
    let failed = |error: io::Error| Failure::new(&what, error);
    let bench = Bench::new(&std::env::temp_dir()).map_err(failed)?;
    let file = match &store.etcd.shared_pki {
        Some(shared) => shared.join(storage::SECRET_KEYS),
        None => {
            let file = bench.folder().join(storage::SECRET_KEYS);
            let files = EtcdFiles::new(&options).map_err(|error| storage::unusable(&place, error))?;
            let found = files.read().await.map_err(|error| storage::unusable(&place, error))?;
            if let Some((_, text)) = found.iter().find(|(name, _)| name == storage::SECRET_KEYS) {
                hub::private(&file, &String::from_utf8_lossy(text)).map_err(failed)?;
            }
            file
        }
    };
    let keys = SecretKeys::read(&file, Vec::new()).map_err(|error| Failure::new(&what, error))?;
    let options = EtcdOptions { seal: keys.map(|keys| Arc::new(keys) as _), ..options };
    let found = setpoint_store::verify_etcd(service::fields(), options).await;
    let report = found.map_err(|error| storage::unusable(&place, error))?;
    say(&format!("ok: {} objects at revision {}", report.objects, report.revision.get()));
    Ok(())
}

/// Writes everything to one new file.
pub async fn backup(
    data: &DataArguments,
    store: &StoreArguments,
    seal: &SealArguments,
    file: &Path,
    form: FormArguments,
) -> Result<(), Failure> {
    let folder = data.folder()?;
    let what = match &store.store {
        StoreChoice::Embedded => format!("can't back up the data in {}", folder.display()),
        StoreChoice::Etcd(_) => "can't back up what is in etcd".to_owned(),
    };
    if store.store == StoreChoice::Embedded {
        existing_store(&folder, &what)?;
    }
    if file.exists() {
        return Err(Failure::new(what, format!("{} is there already", file.display())).hint("choose another file"));
    }
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) {
        note(&format!("{} was not there: it is made", parent.display()));
    }
    let (store, keys, _copy) = match &store.store {
        StoreChoice::Embedded => {
            let keys = keys(&folder, seal.resources(), &what)?.map(|keys| keys as Arc<dyn Seal>);
            let opened = with_progress("opening the data", open_or_copy(&folder, keys.clone())).await;
            let (store, copy) = opened.map_err(|error| refused(&what, error))?;
            (store, keys, copy)
        }
        StoreChoice::Etcd(_) => {
            let opened = with_progress("opening etcd", storage::open(store, &folder, seal)).await?;
            (opened.store, storage::keys(&opened.pki, seal)?, None)
        }
    };
    let snapshot = store.snapshot();
    let doing = format!("writing {} objects", snapshot.counts().values().sum::<usize>());
    let written = with_progress(&doing, write_backup(&snapshot, file, keys.as_deref())).await;
    store.close().await;
    let bytes = written.map_err(|error| Failure::of_file(format!("{what}: {}", file.display()), &error))?;
    let revision = store.snapshot().revision().get();
    if !form.print(|| json!({"file": file.display().to_string(), "bytes": bytes, "revision": revision})) {
        say(&format!("wrote {} ({bytes} bytes, revision {revision})", file.display()));
    }
    if keys.is_some() {
        note("Secrets in it are encrypted: keep `pki/secrets.keys` of the data directory too, and elsewhere");
    }
    Ok(())
}

/// How often files are copied that a server goes on writing to. That a copy can't be used happens if a checkpoint ends, or a group is
/// written, in the very moment in which its bytes are read.
const COPIES_MAX: usize = 8;

/// Opens the data in a folder; while a server has it open, a copy of its files. All that was acknowledged before is in it: groups are
/// appended in order, so that what is cut off at the end came later.
async fn open_or_copy(folder: &Path, keys: Option<Arc<dyn Seal>>) -> Result<(Store, Option<Bench>), OpenError> {
    match server::open_with(folder, keys.clone()).await {
        Err(OpenError::Locked) => {}
        opened => return opened.map(|store| (store, None)),
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let copy = Bench::named(folder, "copy")?;
        let (from, to) = (folder.join("store"), copy.folder().join("store"));
        let copied = tokio::task::spawn_blocking(move || copy_files(&from, &to)).await.map_err(io::Error::other)?;
        let opened = match copied {
            Ok(()) => server::open_with(copy.folder(), keys.clone()).await,
            Err(error) => Err(OpenError::Io(error)),
        };
        match opened {
            Ok(store) => return Ok((store, Some(copy))),
            Err(OpenError::Damaged { .. }) if tries < COPIES_MAX => {}
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound && tries < COPIES_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// Files in the order of their names: a checkpoint comes before the segments that follow it.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    let names = fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
    names.sort();
    let is_kept = |name: &&std::ffi::OsString| *name != "lock" && !name.as_encoded_bytes().ends_with(b".tmp");
    for name in names.iter().filter(is_kept) {
        fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// Makes a new data directory from a backup, or fills etcd from it.
pub async fn restore(
    data: &DataArguments,
    store: &StoreArguments,
    seal: &SealArguments,
    file: &Path,
) -> Result<(), Failure> {
    let folder = data.folder()?;
    let what = format!("can't restore {} into {}", file.display(), folder.display());
    let failed = |error: io::Error| Failure::of_file(&what, &error);
    let backup = file.canonicalize().map_err(failed)?;
    let made = Made::of(&[folder.join("store"), folder.clone()]);
    let bench = Bench::new(&folder).map_err(failed)?;
    symlink(backup, bench.0.join(BACKUP)).map_err(failed)?;
    let from = RealDisk::new(&bench.0).map_err(failed)?;
    if let StoreChoice::Etcd(endpoints) = &store.store {
        let options = store.etcd.options(endpoints)?;
        let pki = store.etcd.shared_pki.clone().unwrap_or_else(|| folder.join("pki"));
        return restore_etcd(&from, EtcdOptions { seal: storage::keys(&pki, seal)?, ..options }, &what).await;
    }
    let to = RealDisk::new(folder.join("store")).map_err(failed)?;
    let (keys, identity) = (keys(&folder, seal.resources(), &what)?, server::identity().map_err(failed)?);
    let seal = keys.as_deref().map(|keys| keys as _);
    let fields = service::fields();
    let restored = setpoint_store::restore(&from, BACKUP, &to, identity, &*fields, seal);
    let restored = with_progress("reading the backup", restored).await;
    let report = restored.map_err(|error| match error {
        OpenError::Foreign(_) => Failure::new(&what, "there is data already").hint("choose an empty `--data-dir`"),
        OpenError::Sealed(why) => Failure::new(&what, format!("an object in it is encrypted: {why}"))
            .hint(format!("put the keys of the server that the backup is of to {}", sealing::file(&folder).display())),
        OpenError::Damaged { file, .. } if file == BACKUP => Failure::new(&what, "it is no backup, or a damaged one")
            .hint("`setpoint backup` makes one; nothing was changed"),
        error => refused(&what, error),
    });
    drop(bench);
    let report = report.inspect_err(|_| made.undo())?;
    say(&describe(&report));
    note(&format!("`setpoint up --data-dir {}` serves it", folder.display()));
    Ok(())
}

/// Fills etcd from a backup. Its revisions are beyond all that anyone can have seen since.
async fn restore_etcd(from: &RealDisk, options: EtcdOptions, what: &str) -> Result<(), Failure> {
    let fields = service::fields();
    let read = setpoint_store::read_backup(from, BACKUP, &*fields, options.seal.as_deref());
    let read = with_progress("reading the backup", read).await;
    let snapshot = read.map_err(|error| refused(what, error))?;
    let beyond = Revision::new(snapshot.revision().get() + RESTORE_JUMP);
    let place = storage::place(&options);
    let filled = with_progress("filling etcd", setpoint_store::fill(&options, &snapshot, beyond)).await;
    let objects = filled.map_err(|error| storage::unusable(&place, error))?;
    say(&format!("ok: {objects} objects in {place}"));
    Ok(())
}

const BACKUP: &str = "backup";

/// Folders that were not there before.
struct Made(Vec<PathBuf>);

impl Made {
    fn of(folders: &[PathBuf]) -> Made {
        Made(folders.iter().filter(|folder| !folder.exists()).cloned().collect())
    }

    /// Takes them away again, but for those that have something in them.
    fn undo(&self) {
        self.0.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// A private folder for files on their way, gone at the end: the store works on folders of its own, never on a user's.
pub struct Bench(PathBuf);

impl Bench {
    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A new one in a folder.
    pub fn new(beside: &Path) -> io::Result<Bench> {
        Bench::named(beside, "bench")
    }

    /// A new one in a folder that may have another of this process already.
    fn named(beside: &Path, name: &str) -> io::Result<Bench> {
        let path = beside.join(format!(".setpoint-{name}-{}", std::process::id()));
        DirBuilder::new().recursive(true).mode(0o700).create(beside)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Bench(path))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("warning: can't remove {}: {error}", self.0.display());
        }
    }
}

/// The keys of a folder, if it has any, with which these resources are encrypted.
fn keys(folder: &Path, covered: Vec<GroupResource>, what: &str) -> Result<Option<Arc<SecretKeys>>, Failure> {
    let keys = SecretKeys::read(&sealing::file(folder), covered).map_err(|error| {
        Failure::new(what, error).hint("put back the copy of `pki/secrets.keys` in the data directory")
    })?;
    Ok(keys.map(Arc::new))
}

async fn write_backup(snapshot: &setpoint_store::Snapshot, file: &Path, seal: Option<&dyn Seal>) -> io::Result<u64> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let bench = Bench::new(folder)?;
    let disk = RealDisk::new(&bench.0)?;
    let bytes = setpoint_store::backup(snapshot, &disk, BACKUP, seal).await?;
    fs::rename(bench.0.join(BACKUP), file)?;
    fs::File::open(folder)?.sync_all()?;
    Ok(bytes)
}

pub fn existing_store(folder: &Path, what: &str) -> Result<PathBuf, Failure> {
    let store = folder.join("store");
    match store.is_dir() {
        true => Ok(store),
        false => Err(Failure::new(what, "there is no data in it").hint("choose another with `--data-dir`")),
    }
}

/// Why a data directory can't be used, for a person.
pub fn refused(what: &str, error: OpenError) -> Failure {
    let hint = match &error {
        OpenError::Locked => "stop the server first: this is not available for a running one yet",
        OpenError::Sealed(_) => "put back the copy of `pki/secrets.keys` in the data directory",
        _ => "nothing was changed; `setpoint restore` makes a new data directory from a backup",
    };
    Failure::new(what, error).hint(hint)
}

fn describe(report: &Report) -> String {
    let mut text = format!("ok: {} objects at revision {}", report.objects, report.revision.get());
    if let Some(torn) = &report.torn {
        text += &format!(
            "\na crash cut a write short: {} at byte {}; it had not been acknowledged",
            torn.file, torn.offset
        );
    }
    text
}
