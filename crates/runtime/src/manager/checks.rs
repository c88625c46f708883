//! Named checks: whether the process is well, and whether it is ready.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most checks of one endpoint.
const CHECKS_MAX: usize = 1_000;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of one endpoint. Clones are the same checks.
///
/// ```
/// use setpoint_runtime::manager::Checks;
///
/// let ready = Checks::new("readyz");
/// ready.add("database", || Err("no connection".to_owned()));
/// let (well, report) = ready.report(&[]);
/// assert!(!well);
/// assert_eq!(report, "[+]ping ok\n[-]database failed: reason withheld\nreadyz check failed\n");
/// assert!(ready.report(&["database"]).0);
/// ```
#[derive(Clone)]
pub struct Checks {
    endpoint: &'static str,
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
}

impl Checks {
    /// The endpoint with this name, without checks but `ping`, which always passes.
    pub fn new(endpoint: &'static str) -> Checks {
        Checks { endpoint, checks: Arc::default() }
    }

    /// Adds a check, in place of one with the same name. It is called for each request and must not block.
    pub fn add(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let (name, mut checks) = (name.into(), self.checks());
        if checks.len() < CHECKS_MAX || checks.contains_key(&name) {
            checks.insert(name, Arc::new(check));
        }
    }

    /// Takes a check away.
    pub fn remove(&self, name: &str) {
        self.checks().remove(name);
    }

    /// Whether all pass but those excluded, and a line for each. Why one failed is for the log, not for everyone.
    pub fn report(&self, excluded: &[&str]) -> (bool, String) {
        let (mut well, mut text) = (true, "[+]ping ok\n".to_owned());
        // Checks are called without the lock: one of them may add another.
        let checks = self.checks().clone();
        for (name, check) in checks {
            if excluded.contains(&name.as_str()) {
                text.push_str(&format!("[+]{name} excluded: ok\n"));
                continue;
            }
            match check() {
                Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
                Err(why) => {
                    tracing::info!(endpoint = self.endpoint, check = %name, %why, "check failed");
                    well = false;
                    text.push_str(&format!("[-]{name} failed: reason withheld\n"));
                }
            }
        }
        text.push_str(&format!("{} check {}\n", self.endpoint, if well { "passed" } else { "failed" }));
        (well, text)
    }

    /// The result of one check, if there is one with this name.
    pub fn one(&self, name: &str) -> Option<Result<(), String>> {
        let check = self.checks().get(name).cloned();
        match check {
            Some(check) => Some(check()),
            None => (name == "ping").then_some(Ok(())),
        }
    }

    fn checks(&self) -> MutexGuard<'_, BTreeMap<String, Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Checks").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
