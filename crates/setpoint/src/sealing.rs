//! What keeps secrets unreadable on the disk: the keys of a data directory, and how they are replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use setpoint_api::GroupResource;
use setpoint_apiserver::pki::{KeyFileError, SecretKeys};
use setpoint_store::{EtcdOptions, OpenError, Store};

use crate::arguments::DataArguments;
use crate::failure::{Failure, say};
use crate::storage::{EtcdArguments, StoreArguments, StoreChoice};
use crate::{maintenance, server, storage};
use setpoint_cli::with_progress;

#[derive(Args)]
pub struct SealArguments {
    /// Resources that are encrypted on the disk, such as `secrets,widgets.example.com`; empty for none
    #[arg(long, value_name = "LIST", default_value = "secrets")]
    pub encrypt: String,
}

impl SealArguments {
    /// The resources by group.
    pub fn resources(&self) -> Vec<GroupResource> {
        let names = self.encrypt.split(',').map(str::trim).filter(|name| !name.is_empty());
        names
            .map(|name| match name.split_once('.') {
                Some((resource, group)) => GroupResource::new(group, resource),
                None => GroupResource::new("", name),
            })
            .collect()
    }
}

/// The keys of the data in a folder.
pub fn file(folder: &Path) -> PathBuf {
    folder.join("pki/secrets.keys")
}

/// Opens the store with the keys of its folder. New ones are made where there are none yet and nothing was ever sealed.
pub async fn open_store(folder: &Path, resources: &SealArguments) -> Result<Store, SealedError> {
    let file = file(folder);
    let is_new = !file.exists();
    if is_new {
        SecretKeys::add(&file).map_err(SealedError::Keys)?;
    }
    let keys = SecretKeys::read(&file, resources.resources()).map_err(SealedError::Keys)?;
    let opened = server::open_with(folder, keys.map(|keys| Arc::new(keys) as _)).await;
    if let (true, Err(OpenError::Sealed(_))) = (is_new, &opened) {
        // It would only hide that the right one is lost.
        let _ = fs::remove_file(&file);
        return Err(SealedError::Lost(file));
    }
    opened.map_err(SealedError::Store)
}

/// Puts a new key first, and writes everything anew with it.
pub async fn rotate(
    data: &DataArguments,
    store: &StoreArguments,
    resources: &SealArguments,
    drop_old: bool,
) -> Result<(), Failure> {
    let folder = data.folder()?;
    if let StoreChoice::Etcd(endpoints) = &store.store {
        return rotate_in_etcd(&store.etcd.options(endpoints)?, &store.etcd, &folder, resources, drop_old).await;
    }
    let what = format!("can't rotate the keys of the data in {}", folder.display());
    crate::maintenance::existing_store(&folder, &what)?;
    let file = file(&folder);
    // The lock on the data keeps a server from sealing with the old key meanwhile.
    let store = open_store(&folder, resources).await.map_err(|error| error.failure(&what))?;
    SecretKeys::add(&file).map_err(|error| Failure::new(&what, error))?;
    store.close().await;
    let store = open_store(&folder, resources).await.map_err(|error| error.failure(&what))?;
    let rewritten = with_progress("sealing everything anew", store.rewrite()).await;
    store.close().await;
    rewritten.map_err(|error| Failure::new(&what, error))?;
    if drop_old {
        SecretKeys::drop_old(&file).map_err(|error| Failure::new(&what, error))?;
    }
    say(&format!("everything is sealed with a new key in {}", file.display()));
    Ok(())
}

/// The same for a store in etcd, whose servers are all stopped: one that runs can't read what is sealed with a key that it doesn't have.
async fn rotate_in_etcd(
    options: &EtcdOptions,
    arguments: &EtcdArguments,
    folder: &Path,
    resources: &SealArguments,
    drop_old: bool,
) -> Result<(), Failure> {
    let what = format!("can't rotate the keys of {}", storage::place(options));
    let pki = storage::pki(arguments, options, folder).await?;
    let file = pki.join(storage::SECRET_KEYS);
    let failed = |error: KeyFileError| Failure::new(&what, error);
    // Whoever can't read what is there must not add a key to it.
    storage::open_etcd(options.clone(), &pki, resources).await?.close().await;
    SecretKeys::add(&file).map_err(failed)?;
    storage::share_keys(arguments, options, &file).await?;
    let store = storage::open_etcd(options.clone(), &pki, resources).await?;
    let rewritten = with_progress("sealing everything anew", store.rewrite()).await;
    store.close().await;
    rewritten.map_err(|error| Failure::new(&what, error))?;
    if drop_old {
        SecretKeys::drop_old(&file).map_err(failed)?;
        storage::share_keys(arguments, options, &file).await?;
    }
    say(&format!("everything is sealed with a new key in {}", file.display()));
    Ok(())
}

/// Why a store with sealed objects can't be opened.
#[derive(Debug)]
pub enum SealedError {
    /// The file of keys is not one.
    Keys(KeyFileError),
    /// There is none, and there was.
    Lost(PathBuf),
    /// The store can't be opened.
    Store(OpenError),
}

impl SealedError {
    /// The same for a person.
    pub fn failure(self, what: &str) -> Failure {
        match self {
            SealedError::Keys(error) => {
                Failure::new(what, error).hint("put back the copy of `pki/secrets.keys` in the data directory")
            }
            SealedError::Lost(file) => {
                Failure::new(what, format!("secrets in it are sealed, and the keys are not in {}", file.display()))
                    .hint("put back the copy of that file")
            }
            SealedError::Store(OpenError::Locked) => Failure::new(what, OpenError::Locked).hint(
                "a setpoint runs on it already: use that one (`setpoint status`), stop it, or choose another with `--data-dir`",
            ),
            SealedError::Store(error) => maintenance::refused(what, error),
        }
    }
}
