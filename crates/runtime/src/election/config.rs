//! Who stands for election, for what, and how patiently.

use std::fmt;
use std::time::Duration;

/// Waits between attempts are stretched by up to this factor, so that candidates don't stay in step.
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// Longest name of a Lease, and of who holds it: that of any object.
const NAME_BYTES_MAX: usize = 253;

/// What an election is about. The durations are client-go's by default.
///
/// ```
/// use std::time::Duration;
/// use setpoint_runtime::election::ElectionConfig;
///
/// let usual = ElectionConfig::new("shop", "my-operator", "pod-7d9f-1");
/// assert!(usual.validate().is_ok());
/// let hasty = ElectionConfig { lease_duration: Duration::from_secs(5), ..usual };
/// assert_eq!(hasty.validate().unwrap_err().to_string(), "leaderElection.leaseDuration: must be greater than renewDeadline");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who this is. Must differ between processes, and between runs of the same one: a process that finds its own
    /// name in the Lease takes itself for the leader.
    pub identity: String,
    /// How long others wait for a leader that is silent. Whole seconds.
    pub lease_duration: Duration,
    /// How long the leader goes on without a renewal that succeeded.
    pub renew_deadline: Duration,
    /// How long to wait between attempts.
    pub retry_period: Duration,
    /// Whether to give the lease back at the end, so that the next leader needn't wait.
    pub release_on_exit: bool,
}

impl ElectionConfig {
    /// An election for the Lease `namespace`/`name`, with the usual durations: 15 s, 10 s and 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> ElectionConfig {
        ElectionConfig {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_exit: true,
        }
    }

    /// Whether an election can be held like this.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |key, why: &'static str| Err(ConfigError { key, why });
        for (key, text) in [("namespace", &self.namespace), ("name", &self.name), ("identity", &self.identity)] {
            if text.is_empty() {
                return wrong(key, "must not be empty");
            }
            // They travel in a header with every write of the leader.
            if text.len() > NAME_BYTES_MAX || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                return wrong(key, "must be at most 253 printable ASCII characters");
            }
        }
        if self.lease_duration.is_zero() || self.lease_duration.subsec_nanos() != 0 {
            return wrong("leaseDuration", "must be at least one second and whole seconds");
        }
        if self.lease_duration.as_secs() > i32::MAX as u64 {
            return wrong("leaseDuration", "must fit into 32 bits of seconds");
        }
        if self.lease_duration <= self.renew_deadline {
            return wrong("leaseDuration", "must be greater than renewDeadline");
        }
        if self.retry_period.is_zero() {
            return wrong("retryPeriod", "must be greater than zero");
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            return wrong("renewDeadline", "must be greater than retryPeriod*1.2");
        }
        Ok(())
    }
}

/// What is wrong with an [`ElectionConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, as it is called in configuration files.
    pub key: &'static str,
    /// What it must be.
    pub why: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "leaderElection.{}: {}", self.key, self.why)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut ElectionConfig), expected: &str) {
        let mut config = ElectionConfig::new("kube-system", "managers", "one");
        change(&mut config);
        let said = config.validate().map_or_else(|error| error.to_string(), |()| "fine".to_owned());
        assert_eq!(said, expected);
    }

    #[test]
    fn durations_must_leave_room_for_each_other() {
        check(|_| (), "fine");
        check(|config| config.identity.clear(), "leaderElection.identity: must not be empty");
        let long = "leaderElection.identity: must be at most 253 printable ASCII characters";
        check(|config| config.identity = "x".repeat(254), long);
        check(|config| config.identity = "größe".to_owned(), long);
        check(
            |config| config.renew_deadline = Duration::from_secs(15),
            "leaderElection.leaseDuration: must be greater than renewDeadline",
        );
        check(
            |config| config.retry_period = Duration::from_secs(9),
            "leaderElection.renewDeadline: must be greater than retryPeriod*1.2",
        );
        check(
            |config| config.lease_duration = Duration::from_millis(15_500),
            "leaderElection.leaseDuration: must be at least one second and whole seconds",
        );
        check(|config| config.retry_period = Duration::ZERO, "leaderElection.retryPeriod: must be greater than zero");
    }
}
