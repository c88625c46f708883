//! Moving everything from one store to another: identities and the order of changes stay, and so do the keys of the cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use setpoint_store::{EtcdFiles, EtcdOptions, RealDisk, Snapshot, Store};

use crate::failure::{Failure, say};
use crate::maintenance::{self, Bench};
use crate::sealing::SealArguments;
use crate::server;
use crate::storage::{self, EtcdArguments, StoreChoice};
use setpoint_cli::with_progress;

#[derive(Args)]
pub struct MigrateArguments {
    /// Where everything is: the data directory of a stopped server, or `etcd://HOST:PORT,...`
    #[arg(long, value_name = "STORE")]
    from: String,
    /// Where it is to be: a new data directory, or etcd with nothing under the prefix
    #[arg(long, value_name = "STORE")]
    to: String,
    #[command(flatten)]
    etcd: EtcdArguments,
    #[command(flatten)]
    seal: SealArguments,
}

/// What to do with a copy that differs.
const UNFIT: &str = "don't use the copy: empty it and try again; what it was made from is as it was";

/// One end of a migration.
enum End {
    Folder(PathBuf),
    Etcd(Box<EtcdOptions>),
}

impl End {
    fn read(text: &str, etcd: &EtcdArguments) -> Result<End, Failure> {
        if !text.starts_with("etcd://") {
            return Ok(End::Folder(PathBuf::from(text)));
        }
        match StoreChoice::parse(text) {
            Ok(StoreChoice::Etcd(endpoints)) => Ok(End::Etcd(Box::new(etcd.options(&endpoints)?))),
            Ok(StoreChoice::Embedded) => Ok(End::Folder(PathBuf::from(text))),
            Err(why) => Err(Failure::usage(format!("can't migrate with {text}"), why)
                .hint("a store is a data directory, or `etcd://HOST:PORT,HOST:PORT`")),
        }
    }
}

/// `setpoint migrate`.
pub async fn run(arguments: &MigrateArguments) -> Result<(), Failure> {
    let what = format!("can't migrate from {} to {}", arguments.from, arguments.to);
    let (from, to) = (End::read(&arguments.from, &arguments.etcd)?, End::read(&arguments.to, &arguments.etcd)?);
    if let End::Folder(folder) = &to
        && folder.join("store").exists()
    {
        return Err(Failure::new(&what, "there is data in it already").hint("choose an empty folder"));
    }
    // The keys go along: into the new folder, into the new etcd, or through a folder on their way.
    let bench = Bench::new(&std::env::temp_dir()).map_err(|error| Failure::of_file(&what, &error))?;
    let pki = match (&arguments.etcd.shared_pki, &from, &to) {
        (Some(shared), _, _) => shared.clone(),
        (None, End::Folder(folder), _) => folder.join("pki"),
        (None, End::Etcd(options), End::Folder(folder)) => storage::pki(&arguments.etcd, options, folder).await?,
        (None, End::Etcd(options), End::Etcd(_)) => storage::pki(&arguments.etcd, options, bench.folder()).await?,
    };
    let source = with_progress("opening what is there", open(&from, &pki, arguments, &what)).await?;
    let snapshot = source.snapshot();
    let objects: usize = snapshot.counts().values().sum();
    let doing = format!("writing {objects} objects");
    let written = with_progress(&doing, write(&to, &snapshot, &pki, arguments, &what)).await;
    let newest = newest(&source).await;
    source.close().await;
    written?;
    let newest = newest.map_err(|why| Failure::new(&what, why).hint(UNFIT))?;
    if let Some(change) = change_between(&snapshot, &newest) {
        let why = format!("a server still writes to {}: {change} meanwhile", arguments.from);
        return Err(Failure::new(&what, why).hint("stop all servers first, empty the copy, and try again"));
    }
    let target = with_progress("comparing both sides", open(&to, &pki, arguments, &what)).await?;
    let found = target.snapshot();
    target.close().await;
    let (copied, expected) = (digest(&found), digest(&snapshot));
    if !keeps_order(&snapshot, &found) {
        return Err(Failure::new(&what, "what was written is not in the order of what was read").hint(UNFIT));
    }
    if copied != expected {
        let why = format!("what was written is not what was read: {copied}, not {expected}");
        return Err(Failure::new(&what, why).hint(UNFIT));
    }
    say(&format!(
        "moved {objects} objects from {} to {}\nsha256 {expected} on both sides",
        arguments.from, arguments.to
    ));
    Ok(())
}

/// What is there now, writes of others included.
async fn newest(store: &Store) -> Result<Snapshot, String> {
    if let Some(fresh) = store.fresh() {
        fresh.await.map_err(|error| error.to_string())?;
    }
    Ok(store.snapshot())
}

/// The first thing that has changed between two moments. Events go by themselves, when their time is over.
fn change_between(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let objects = |snapshot: &Snapshot| -> BTreeMap<_, _> {
        let lasting = snapshot.in_order().into_iter().filter(|(key, _)| *key.resource().resource != *"events");
        lasting.map(|(key, object)| (key.to_string(), object.revision())).collect()
    };
    let (before, after) = (objects(before), objects(after));
    let written = after.iter().find(|(key, revision)| before.get(*key) != Some(revision));
    let deleted = || before.keys().find(|key| !after.contains_key(*key)).map(|key| format!("{key} was deleted"));
    written.map(|(key, _)| format!("{key} was written")).or_else(deleted)
}

async fn open(end: &End, pki: &Path, arguments: &MigrateArguments, what: &str) -> Result<Store, Failure> {
    match end {
        End::Folder(folder) => {
            maintenance::existing_store(folder, what)?;
            let opened = server::open_with(folder, storage::keys(pki, &arguments.seal)?).await;
            opened.map_err(|error| maintenance::refused(what, error))
        }
        End::Etcd(options) => storage::open_etcd((**options).clone(), pki, &arguments.seal).await,
    }
}

async fn write(
    end: &End,
    snapshot: &Snapshot,
    pki: &Path,
    arguments: &MigrateArguments,
    what: &str,
) -> Result<(), Failure> {
    let seal = storage::keys(pki, &arguments.seal)?;
    match end {
        End::Folder(folder) => {
            let failed = |error: std::io::Error| Failure::of_file(what, &error);
            let disk = RealDisk::new(folder.join("store")).map_err(failed)?;
            let identity = server::identity().map_err(failed)?;
            let created = setpoint_store::create_from(&disk, identity, snapshot, seal.as_deref()).await;
            created.map_err(|error| Failure::new(what, error))?;
            copy_pki(pki, &folder.join("pki")).map_err(failed)
        }
        End::Etcd(options) => {
            let place = storage::place(options);
            let unusable = |error| storage::unusable(&place, error);
            let options = EtcdOptions { seal, ..(**options).clone() };
            setpoint_store::fill(&options, snapshot, snapshot.revision()).await.map_err(unusable)?;
            if arguments.etcd.shared_pki.is_none() {
                let own = storage::make(pki).map_err(|why| Failure::new(what, why))?;
                let files = EtcdFiles::new(&options).map_err(unusable)?;
                for (name, text) in own {
                    files.write(&name, text).await.map_err(unusable)?;
                }
            }
            Ok(())
        }
    }
}

/// Copies the keys of one folder into another, where they are not the same one.
fn copy_pki(from: &Path, to: &Path) -> std::io::Result<()> {
    if from == to || !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // Certificates of one machine are made anew on another; the keys that they are made with go along.
        if entry.file_type()?.is_file() && !to.join(entry.file_name()).exists() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The digest of all objects with their keys, in the order of these.
fn digest(snapshot: &Snapshot) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let objects: BTreeMap<_, _> = snapshot.in_order().into_iter().collect();
    for (key, object) in objects {
        context.update(key.to_string().as_bytes());
        context.update(b"\0");
        context.update(&object.without_revision());
        context.update(b"\0");
    }
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether nothing is now before what it came after.
fn keeps_order(before: &Snapshot, after: &Snapshot) -> bool {
    let at: BTreeMap<_, _> = after.in_order().into_iter().map(|(key, object)| (key, object.revision())).collect();
    before.in_order().iter().map(|(key, _)| at.get(key)).is_sorted()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use setpoint_apiserver::Registry;
    use setpoint_store::{Change, Expectation, Key, MemoryDisk, Options, Transaction};

    use super::*;

    #[tokio::test]
    async fn whatever_changes_while_everything_is_copied_is_seen() {
        let registry = Arc::new(Registry::builtin());
        let (store, _) =
            Store::open(Arc::new(MemoryDisk::new()), Arc::clone(&registry) as _, Options::default()).await.unwrap();
        let key = |name: &str| Key::namespaced(setpoint_api::GroupResource::new("", "configmaps"), "default", name);
        let put = async |name: &str, text: &str| {
            let json = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"a":"{text}"}}}}"#).into_bytes();
            let change = Change::put(key(name), Expectation::Any, json, &*registry).unwrap();
            store.commit(Transaction::of(change)).await.unwrap();
        };
        put("a", "1").await;
        let before = store.snapshot();
        assert_eq!(change_between(&before, &store.snapshot()), None);
        put("b", "1").await;
        let with_b = store.snapshot();
        assert!(change_between(&before, &with_b).unwrap().ends_with("b was written"));
        put("a", "1").await;
        assert!(
            change_between(&with_b, &store.snapshot()).unwrap().ends_with("a was written"),
            "also with what it had"
        );
        store.commit(Transaction::of(Change::delete(key("b"), Expectation::Any))).await.unwrap();
        assert!(change_between(&with_b, &store.snapshot()).is_some());
        store.close().await;
    }
}
