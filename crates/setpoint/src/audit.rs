//! The audit log of a server: what is written down, where, and how much of it is kept.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use setpoint_apiserver::audit::{Bounds, Log, Policy, RotatedFile};
use setpoint_apiserver::{ApiServer, Clock};
use tokio::task::JoinHandle;

use crate::failure::{Failure, USAGE};

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Args)]
pub struct AuditArguments {
    /// Which requests are written down, and how much of them: a Policy of audit.k8s.io/v1 [default: metadata of all but probes, heartbeats and events]
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where requests are written down: `-` for stdout, empty for nowhere [default: DIR/audit/audit.log]
    #[arg(long, value_name = "FILE")]
    // Not a path to clap, which refuses an empty one.
    audit_log_path: Option<OsString>,
    /// Size of an audit log in megabytes at which it is put aside
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    audit_log_maxsize: u64,
    /// How many audit logs put aside are kept; 0: all
    #[arg(long, value_name = "N", default_value_t = 10)]
    audit_log_maxbackup: usize,
    /// How many days audit logs put aside are kept; 0: for ever
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=36_500))]
    audit_log_maxage: u32,
}

impl AuditArguments {
    /// What to write down. It is read before anything starts.
    pub fn policy(&self) -> Result<Policy, Failure> {
        let Some(file) = &self.audit_policy_file else { return Ok(Policy::default()) };
        let what = format!("can't use the audit policy {}", file.display());
        let bytes = fs::read(file).map_err(|error| Failure::of_file(&what, &error).with_code(USAGE))?;
        Policy::parse(&bytes).map_err(|error| {
            Failure::usage(&what, error).hint("a policy is a list of rules, each with a level: see docs/security.md")
        })
    }

    /// Starts to write, for a server with its data in `folder`.
    pub fn start(&self, policy: Policy, folder: &Path) -> Result<Auditing, Failure> {
        let given = self.audit_log_path.as_ref().map(PathBuf::from);
        let path = given.unwrap_or_else(|| folder.join("audit/audit.log"));
        let log = Log::default();
        let (policy, writing) = match path.to_str() {
            Some("") => (Policy::none(), None),
            Some("-") => (policy, Some(tokio::spawn(log.clone().write_to(io::stdout())))),
            _ => {
                let file = RotatedFile::open(&path, self.bounds(), Clock::system()).map_err(|error| {
                    Failure::new(format!("can't write the audit log {}", path.display()), error)
                        .hint("choose another file with `--audit-log-path`, or none with `--audit-log-path=`")
                })?;
                (policy, Some(tokio::spawn(log.clone().write_to(file))))
            }
        };
        Ok(Auditing { policy, log, writing })
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            bytes: self.audit_log_maxsize * MEGABYTE,
            files: Some(self.audit_log_maxbackup).filter(|count| *count > 0),
            age: Some(DAY * self.audit_log_maxage).filter(|age| !age.is_zero()),
        }
    }
}

/// An audit log that is being written.
pub struct Auditing {
    policy: Policy,
    log: Log,
    writing: Option<JoinHandle<()>>,
}

impl Auditing {
    /// Has a server write down what it is asked.
    pub fn follow(&self, service: &ApiServer) {
        service.audit(self.policy.clone(), self.log.clone());
    }

    /// Writes what is still to be written, and ends.
    pub async fn end(self) {
        self.log.close();
        if let Some(writing) = self.writing {
            // It tells by itself what it can't write.
            let _ = writing.await;
        }
    }
}
