//! The certificates of a server that runs: looked at again and again, made anew before they end, and exchanged when another authority
//! follows.
//!
//! Whoever changes the folder (`setpoint certs`, or a server that shares it) needs no line to this one: it sees the change the next time
//! that it looks, and says so by writing whom it trusts ([`Pki::tell`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use setpoint_apiserver::pki::{Pki, PkiError};
use setpoint_apiserver::serve::Tls;
use setpoint_controllers::RootCa;
use setpoint_store::EtcdOptions;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::storage::{self, Opened};

/// How often a folder is looked at: five small files, for somebody who waits at a command.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often etcd is asked whether a server elsewhere has changed what all of them share.
pub const ASK_EVERY: Duration = Duration::from_secs(30);

/// Certificates of a server, as long as it runs.
pub struct Renewal {
    pki: watch::Sender<Arc<Pki>>,
    root_ca: watch::Sender<Arc<str>>,
    tls: Tls,
    kubeconfig: PathBuf,
    url: String,
    sharing: Option<(EtcdOptions, PathBuf)>,
}

/// What other parts of the process go by: the certificates of the moment.
#[derive(Clone)]
pub struct Standing {
    /// All of them.
    pub pki: watch::Receiver<Arc<Pki>>,
    /// Those that the server is known by, in PEM.
    pub root_ca: RootCa,
}

impl Renewal {
    /// Begins with these, and writes the administrator's kubeconfig.
    pub fn new(pki: Pki, kubeconfig: PathBuf, url: String, opened: &Opened) -> Result<Renewal, Failure> {
        let failed = |error: PkiError| Failure::new("can't serve", error);
        let tls = pki.tls().map_err(failed)?;
        let root_ca = watch::Sender::new(pki.ca_pem().into());
        let sharing = opened.sharing.clone().map(|options| (options, opened.pki.clone()));
        pki.write_admin_kubeconfig(&kubeconfig, &url)
            .map_err(|error| Failure::new("can't write the kubeconfig", error))?;
        pki.tell().map_err(failed)?;
        Ok(Renewal { pki: watch::Sender::new(Arc::new(pki)), root_ca, tls, kubeconfig, url, sharing })
    }

    /// How to serve with them.
    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// What others go by.
    pub fn standing(&self) -> Standing {
        Standing { pki: self.pki.subscribe(), root_ca: self.root_ca.subscribe() }
    }

    /// Looks for as long as the server runs. What can't be done is told once, and tried again.
    pub async fn run(&self) {
        let pause = if self.sharing.is_some() { ASK_EVERY } else { LOOK_EVERY };
        let mut told = String::new();
        loop {
            tokio::time::sleep(pause).await;
            let trouble = match self.share_and_look().await {
                Ok(()) => String::new(),
                Err(error) => error,
            };
            if trouble != told && !trouble.is_empty() {
                tracing::warn!(
                    error = trouble,
                    "certificates can't be renewed; the server goes on with those that it has"
                );
            }
            told = trouble;
        }
    }

    async fn share_and_look(&self) -> Result<(), String> {
        if let Some((options, folder)) = &self.sharing {
            storage::share(options, folder).await.map_err(|failure| failure.to_string())?;
        }
        self.look(SystemTime::now()).map_err(|error| error.to_string())
    }

    /// Takes up what has changed. What fails in the middle is done again the next time, for nothing is noted before all is done.
    fn look(&self, now: SystemTime) -> Result<(), PkiError> {
        let Some(pki) = self.pki.borrow().renewed(now)? else { return Ok(()) };
        pki.renew(&self.tls)?;
        pki.write_admin_kubeconfig(&self.kubeconfig, &self.url)?;
        let root_ca: Arc<str> = pki.ca_pem().into();
        self.root_ca.send_if_modified(|known| std::mem::replace(known, root_ca.clone()) != root_ca);
        pki.tell()?;
        self.pki.send_replace(Arc::new(pki));
        tracing::info!(kubeconfig = %self.kubeconfig.display(), "new certificates are in use");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::IpAddr;
    use std::os::unix::fs::PermissionsExt;

    use setpoint_apiserver::pki;
    use setpoint_store::{MemoryDisk, NoFields, Options, Store};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    async fn opened(folder: &std::path::Path) -> Opened {
        let (store, _) =
            Store::open(Arc::new(MemoryDisk::new()), Arc::new(NoFields), Options::default()).await.unwrap();
        Opened { store, pki: folder.to_owned(), place: String::new(), is_shared: false, sharing: None }
    }

    #[tokio::test]
    async fn a_kubeconfig_is_written_anew_before_its_certificate_ends_and_when_the_authority_is_another() {
        let home = tempfile::tempdir().unwrap();
        let (folder, kubeconfig) = (home.path().join("pki"), home.path().join("admin.kubeconfig"));
        let start = SystemTime::now();
        let pki = Pki::prepare(&folder, IpAddr::from([127, 0, 0, 1]), None, start).unwrap();
        let opened = opened(&folder).await;
        let renewal = Renewal::new(pki, kubeconfig.clone(), "https://127.0.0.1:6443".into(), &opened).unwrap();
        let mut standing = renewal.standing();
        let read = || fs::read_to_string(&kubeconfig).unwrap();
        let first = read();

        renewal.look(start + DAY).unwrap();
        assert!(read() == first && !standing.pki.has_changed().unwrap(), "nothing is near its end");

        renewal.look(start + 340 * DAY).unwrap();
        let second = read();
        assert!(second != first && standing.pki.has_changed().unwrap(), "the administrator's is");
        assert!(!standing.root_ca.has_changed().unwrap(), "and nobody else needs to know");
        standing.pki.mark_unchanged();

        // A file in the way of the kubeconfig: nothing counts as done until it is.
        pki::succeed(&folder, start + 341 * DAY).unwrap();
        fs::remove_file(&kubeconfig).unwrap();
        fs::create_dir(&kubeconfig).unwrap();
        renewal.look(start + 341 * DAY).unwrap_err();
        assert!(!standing.pki.has_changed().unwrap() && !pki::settled(&folder, start + 341 * DAY).unwrap());
        fs::remove_dir(&kubeconfig).unwrap();
        renewal.look(start + 341 * DAY).unwrap();
        let third = read();
        assert!(third != second && pki::settled(&folder, start + 341 * DAY).unwrap());
        assert_eq!(standing.root_ca.borrow_and_update().matches("BEGIN CERTIFICATE").count(), 2);

        pki::retire(&folder, start + 342 * DAY).unwrap();
        renewal.look(start + 342 * DAY).unwrap();
        assert!(read() != third && pki::settled(&folder, start + 342 * DAY).unwrap());
        assert_eq!(standing.root_ca.borrow_and_update().matches("BEGIN CERTIFICATE").count(), 1);
        assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing is left lying about");
    }
}
