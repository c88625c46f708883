//! What can be set.

use std::time::Duration;

use crate::Key;
use crate::cache::{InformerOptions, Target};
use crate::controller::ControllerOptions;
use crate::election::ElectionConfig;
use crate::queue::QueueOptions;
use crate::queue::limiter::{Bucket, Exponential, MaxOf};
use crate::throttle::ClientOptions;

/// The settings of one controller.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::cache::Target;
/// use setpoint_runtime::config::{Config, Sources};
///
/// let sources = Sources::new().set(["workers=4".to_owned(), "cache.labelSelector=app=web".to_owned()]);
/// let config = Config::load(&sources).unwrap();
/// let settings = config.of("web");
/// assert_eq!(settings.controller_options().workers, 4);
/// let target = settings.target(Target::of::<Pod>(&(), None));
/// assert_eq!(target.label_selector.as_deref(), Some("app=web"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `workers`: how many keys are worked on at once.
    pub workers: usize,
    /// `queue`
    pub queue: QueueSettings,
    /// `reconcile`
    pub reconcile: ReconcileSettings,
    /// `cache`
    pub cache: CacheSettings,
}

/// How a queue behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// `queue.maxRetries`: failures in a row after which a key is given up until something changes; none for never.
    pub max_retries: Option<u32>,
    /// `queue.baseDelay`: the wait after the first failure of a key; it doubles with each.
    pub base_delay: Duration,
    /// `queue.maxDelay`: the longest wait.
    pub max_delay: Duration,
    /// `queue.qps`: retries per second, of all keys together.
    pub qps: f64,
    /// `queue.burst`: retries at once, of all keys together.
    pub burst: u32,
}

/// How reconciles run.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconcileSettings {
    /// `reconcile.timeout`: how long one may take.
    pub timeout: Duration,
    /// `reconcile.resyncPeriod`: how often all keys run without a reason; none for never.
    pub resync_period: Option<Duration>,
    /// `reconcile.maxConcurrent`: an upper bound on `workers`, for whoever runs many controllers on a small machine.
    pub max_concurrent: usize,
}

/// How objects are followed.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// `cache.labelSelector`: only objects with these labels.
    pub label_selector: Option<String>,
    /// `cache.fieldSelector`: only objects with these fields.
    pub field_selector: Option<String>,
    /// `cache.pageSize`: objects per page of a list.
    pub page_size: u32,
    /// `cache.listTimeout`: how long one page may take.
    pub list_timeout: Duration,
    /// `cache.streamingLists`: whether to ask for the initial objects as a stream.
    pub streaming_lists: bool,
}

/// What a program has once, whatever controllers it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub election: ElectionSettings,
    pub client: ClientOptions,
}

/// How the processes of a program choose the one that acts.
#[derive(Clone, Debug, PartialEq)]
pub struct ElectionSettings {
    /// `leaderElection.enabled`: whether they choose at all.
    pub enabled: bool,
    /// `leaderElection.namespace`: where the Lease is.
    pub namespace: Option<String>,
    /// `leaderElection.name`: what it is called.
    pub name: Option<String>,
    /// `leaderElection.identity`: who this process is.
    pub identity: Option<String>,
    /// `leaderElection.leaseDuration`: how long others wait for a leader that is silent.
    pub lease_duration: Duration,
    /// `leaderElection.renewDeadline`: how long the leader goes on without a renewal.
    pub renew_deadline: Duration,
    /// `leaderElection.retryPeriod`: how long to wait between attempts.
    pub retry_period: Duration,
    /// `leaderElection.releaseOnExit`: whether to give the lease back at the end.
    pub release_on_exit: bool,
}

impl Default for ElectionSettings {
    fn default() -> Self {
        let usual = ElectionConfig::new("", "", "");
        ElectionSettings {
            enabled: true,
            namespace: None,
            name: None,
            identity: None,
            lease_duration: usual.lease_duration,
            renew_deadline: usual.renew_deadline,
            retry_period: usual.retry_period,
            release_on_exit: usual.release_on_exit,
        }
    }
}

impl ElectionSettings {
    /// The election with these settings; namespace, name and identity are those of `program` unless they are set. None if
    /// there is to be none.
    pub fn election(&self, program: ElectionConfig) -> Option<ElectionConfig> {
        let set = |setting: &Option<String>, own: String| setting.clone().unwrap_or(own);
        self.enabled.then(|| ElectionConfig {
            namespace: set(&self.namespace, program.namespace),
            name: set(&self.name, program.name),
            identity: set(&self.identity, program.identity),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            release_on_exit: self.release_on_exit,
        })
    }

    /// What fits each key alone, but not together.
    pub(super) fn check(&self, errors: &mut Vec<String>) {
        let any = ElectionConfig::new("any", "any", "any");
        let wrong = self.election(any).and_then(|election| election.validate().err());
        errors.extend(wrong.map(|wrong| wrong.to_string()));
    }
}

/// The bounds of `workers` and `reconcile.maxConcurrent`: more than this many tasks only wait for each other.
pub(super) const WORKERS_MAX: usize = 10_000;

impl Default for Settings {
    fn default() -> Self {
        let cache = InformerOptions::<()>::default();
        let options = ControllerOptions::default();
        Settings {
            workers: options.workers,
            queue: QueueSettings {
                max_retries: options.max_retries,
                base_delay: Duration::from_millis(5),
                max_delay: Duration::from_secs(1_000),
                qps: 10.0,
                burst: 100,
            },
            reconcile: ReconcileSettings {
                timeout: options.reconcile_timeout,
                resync_period: None,
                max_concurrent: WORKERS_MAX,
            },
            cache: CacheSettings {
                label_selector: None,
                field_selector: None,
                page_size: cache.page_size,
                list_timeout: cache.list_timeout,
                streaming_lists: cache.streaming_lists,
            },
        }
    }
}

impl Settings {
    /// The options of a controller with these settings.
    pub fn controller_options(&self) -> ControllerOptions {
        let exponential = Exponential::<Key>::new(self.queue.base_delay, self.queue.max_delay).once_per_window();
        let bucket = Bucket::new(self.queue.qps, self.queue.burst);
        let limiter = MaxOf::new(vec![Box::new(exponential), Box::new(bucket)]);
        ControllerOptions {
            workers: self.workers.min(self.reconcile.max_concurrent),
            reconcile_timeout: self.reconcile.timeout,
            max_retries: self.queue.max_retries,
            resync_period: self.reconcile.resync_period,
            queue: QueueOptions { limiter: Box::new(limiter), ..QueueOptions::default() },
            ..ControllerOptions::default()
        }
    }

    /// The options of an informer with these settings.
    pub fn informer_options<K>(&self) -> InformerOptions<K> {
        InformerOptions {
            page_size: self.cache.page_size,
            list_timeout: self.cache.list_timeout,
            streaming_lists: self.cache.streaming_lists,
            ..InformerOptions::default()
        }
    }

    /// The target with the selectors of these settings: an object has to fit them and the target's own.
    #[must_use]
    pub fn target(&self, target: Target) -> Target {
        Target {
            label_selector: both(target.label_selector, self.cache.label_selector.as_deref()),
            field_selector: both(target.field_selector, self.cache.field_selector.as_deref()),
            ..target
        }
    }

    /// What fits each key alone, but not together.
    pub(super) fn check(&self, prefix: &str, errors: &mut Vec<String>) {
        if self.queue.base_delay > self.queue.max_delay {
            errors.push(format!("{prefix}queue.baseDelay: must not be longer than {prefix}queue.maxDelay"));
        }
    }
}

/// What fits both selectors.
fn both(own: Option<String>, other: Option<&str>) -> Option<String> {
    match (own, other) {
        (Some(own), Some(other)) => Some(format!("{own},{other}")),
        (own, other) => own.or_else(|| other.map(str::to_owned)),
    }
}
