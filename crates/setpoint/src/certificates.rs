//! `setpoint certs`: who signs, until when, and how another authority takes over.
//!
//! It works on the folder of certificates, whether a server runs on it or not; one that runs is waited for until it has taken up the
//! change.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use setpoint_apiserver::pki::{self, Certificate, Role, SuccessionError};
use setpoint_cli::with_progress;
use setpoint_store::EtcdOptions;
use tokio::time::Instant;

use crate::arguments::{CertsCommand, PlaceArguments};
use crate::failure::{Failure, print, say};
use crate::renewal::{ASK_EVERY, LOOK_EVERY};
use crate::storage::{self, StoreChoice};

/// How long a running server may take to use what was changed: it looks every so often, and may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs it.
pub async fn run(command: &CertsCommand) -> Result<(), Failure> {
    match command {
        CertsCommand::Status { place, form } => Place::of(place).await?.status(*form),
        CertsCommand::Rotate { place } => Place::of(place).await?.rotate().await,
        CertsCommand::Retire { place } => Place::of(place).await?.retire().await,
    }
}

/// Where certificates are.
struct Place {
    /// The folder of data, in which a server may run.
    data: PathBuf,
    /// The folder of certificates.
    pki: PathBuf,
    /// The etcd by which servers share them.
    sharing: Option<EtcdOptions>,
    /// Whether other servers may have them too.
    is_shared: bool,
}

impl Place {
    async fn of(arguments: &PlaceArguments) -> Result<Place, Failure> {
        let data = arguments.data.folder()?;
        let etcd = &arguments.store.etcd;
        match &arguments.store.store {
            StoreChoice::Embedded => Ok(Place { pki: data.join("pki"), data, sharing: None, is_shared: false }),
            StoreChoice::Etcd(endpoints) => {
                let options = etcd.options(endpoints)?;
                let pki = storage::pki(etcd, &options, &data).await?;
                let sharing = etcd.shared_pki.is_none().then_some(options);
                Ok(Place { data, pki, sharing, is_shared: true })
            }
        }
    }

    fn status(&self, form: setpoint_cli::FormArguments) -> Result<(), Failure> {
        let what = format!("can't read the certificates in {}", self.pki.display());
        let found = pki::certificates(&self.pki).map_err(|error| Failure::new(&what, error))?;
        if found.is_empty() {
            return Err(refused(&what, SuccessionError::Nobody));
        }
        let now = SystemTime::now();
        if !form.print(|| json!({"certificates": found.iter().map(|one| described(one, now)).collect::<Vec<_>>()})) {
            print(&table(&found, now));
            note(&found).into_iter().for_each(|note| say(&note));
        }
        Ok(())
    }

    async fn rotate(&self) -> Result<(), Failure> {
        let what = format!("can't rotate the authority in {}", self.pki.display());
        let now = SystemTime::now();
        match &self.sharing {
            None => pki::succeed(&self.pki, now).map_err(|error| refused(&what, error))?,
            Some(options) => {
                let files = pki::successor(&self.pki, now).map_err(|error| refused(&what, error))?;
                storage::share_succession(options, &self.pki, &files).await?;
            }
        }
        let found = pki::certificates(&self.pki).map_err(|error| Failure::new(&what, error))?;
        let name = |role| found.iter().find(|one| one.role == role).map_or("?", |one| &one.name);
        say(&format!(
            "{} signs from now on; {} is trusted as well",
            name(Role::Authority),
            name(Role::FormerAuthority)
        ));
        self.until_used(&what).await?;
        say(&format!(
            "hand out the new kubeconfig or {}, then `setpoint certs retire`",
            self.pki.join(pki::TRUSTED).display()
        ));
        Ok(())
    }

    async fn retire(&self) -> Result<(), Failure> {
        let what = format!("can't retire the authority before the present one in {}", self.pki.display());
        let now = SystemTime::now();
        let retired = match &self.sharing {
            None => pki::retire(&self.pki, now),
            Some(_) => pki::can_retire(&self.pki, now),
        };
        if !retired.map_err(|error| refused(&what, error))? {
            say("only the present authority is trusted: there is nothing to retire");
            return Ok(());
        }
        if let Some(options) = &self.sharing {
            let gone = [(pki::BRIDGE, String::new()), (pki::FORMER, String::new())];
            storage::share_succession(options, &self.pki, &gone).await?;
        }
        say("the authority before the present one is trusted no more");
        self.until_used(&what).await
    }

    /// Waits until a server that runs on this folder has taken up what was changed, and says what happens elsewhere.
    async fn until_used(&self, what: &str) -> Result<(), Failure> {
        if self.is_shared {
            say(&format!("servers that run take it up within {} seconds", ASK_EVERY.max(LOOK_EVERY).as_secs()));
            return Ok(());
        }
        if !is_in_use(&self.data) {
            say("no server runs on it: the next start takes it up");
            return Ok(());
        }
        let used = with_progress("waiting for the server that runs", async {
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                if pki::settled(&self.pki, SystemTime::now())? {
                    return Ok(true);
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(false)
        });
        match used.await.map_err(|error| refused(what, error))? {
            true => say("the server that runs has taken it up"),
            false => {
                return Err(Failure::new(what, format!("the server that runs has not taken it up in {PATIENCE:?}"))
                    .hint("its log says why; nothing is lost: it goes on trying, and so does the next start"));
            }
        }
        Ok(())
    }
}

/// Whether a server runs on a folder of data: it holds the lock.
fn is_in_use(data: &Path) -> bool {
    let Ok(lock) = File::open(data.join("store").join("lock")) else { return false };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

fn refused(what: &str, error: SuccessionError) -> Failure {
    let hint = match &error {
        SuccessionError::Nobody => "`setpoint up` makes one; choose another place with `--data-dir`",
        SuccessionError::Unfinished => {
            "finish with `setpoint certs retire` first: who knows only that one could not find the way to a third"
        }
        SuccessionError::Unused => {
            "start the server, so that clients can take over the new one; `setpoint certs status` tells when it is used"
        }
        SuccessionError::Busy => "wait for it, then look at `setpoint certs status`",
        SuccessionError::Pki(_) => return Failure::new(what, error),
    };
    Failure::new(what, error).hint(hint)
}

fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default()
}

fn days_left(one: &Certificate, now: SystemTime) -> i64 {
    let days = |life: Duration| i64::try_from(life.as_secs() / (24 * 3600)).unwrap_or(i64::MAX);
    match one.expires.duration_since(now) {
        Ok(left) => days(left),
        Err(ago) => -days(ago.duration()) - 1,
    }
}

fn described(one: &Certificate, now: SystemTime) -> serde_json::Value {
    json!({
        "role": one.role.to_string(), "name": one.name, "signedBy": one.issuer, "file": one.file,
        "expires": timestamp(one.expires), "daysLeft": days_left(one, now),
    })
}

fn table(found: &[Certificate], now: SystemTime) -> String {
    let mut rows = vec![["ROLE", "NAME", "SIGNED BY", "EXPIRES", "DAYS LEFT", "FILE"].map(str::to_owned)];
    rows.extend(found.iter().map(|one| {
        let (expires, left) = (timestamp(one.expires), days_left(one, now).to_string());
        [one.role.to_string(), one.name.clone(), one.issuer.clone(), expires, left, one.file.to_owned()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0) + 3;
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// What is to be done.
fn note(found: &[Certificate]) -> Option<String> {
    let authority = found.iter().find(|one| one.role == Role::Authority)?;
    let former = found.iter().find(|one| one.role == Role::FormerAuthority);
    let is_used = |one: &&Certificate| one.issuer == authority.name;
    let mut leaves = found.iter().filter(|one| matches!(one.role, Role::Server | Role::Administrator));
    match former {
        Some(former) if leaves.all(|one| is_used(&one)) => {
            Some(format!("{} is trusted as well, until `setpoint certs retire`", former.name))
        }
        Some(_) => Some(format!("no server has used {} yet: start it", authority.name)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(role: Role, issuer: &str, days: u64) -> Certificate {
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 24 * 3600);
        Certificate { role, file: "f.pem", name: format!("{role}"), issuer: issuer.into(), expires }
    }

    #[test]
    fn days_are_counted_down_and_below_zero() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * 24 * 3600 + 1);
        for (days, left) in [(11, 0), (12, 1), (10, -1), (9, -2)] {
            assert_eq!(days_left(&one(Role::Server, "a", days), now), left, "{days}");
        }
    }

    #[test]
    fn what_is_left_to_do_is_said() {
        let all = |issuer: &str, with_former: bool| {
            let mut found = vec![one(Role::Authority, "authority", 9), one(Role::Server, issuer, 9)];
            found.extend(with_former.then(|| one(Role::FormerAuthority, "old", 9)));
            note(&found)
        };
        assert_eq!(all("authority", false), None);
        assert_eq!(all("old", true).unwrap(), "no server has used authority yet: start it");
        assert_eq!(
            all("authority", true).unwrap(),
            "former authority is trusted as well, until `setpoint certs retire`"
        );
    }

    #[test]
    fn a_table_is_aligned() {
        let text = table(&[one(Role::Authority, "authority", 20)], SystemTime::UNIX_EPOCH);
        assert_eq!(
            text,
            "ROLE        NAME        SIGNED BY   EXPIRES                DAYS LEFT   FILE\n\
             authority   authority   authority   1970-01-21T00:00:00Z   20          f.pem\n"
        );
    }
}
