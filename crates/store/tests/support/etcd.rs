//! Stores on a real etcd cluster, each as a process of its own would have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use setpoint_store::{COMPACT_EVERY, Endpoint, EtcdOptions, Store, WindowBounds};

use super::ByNode;
pub use super::etcd_process::Cluster;

/// Tells processes and prefixes of one test run apart.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Cluster {
    /// Where the members are, beginning with one of them.
    pub fn endpoints(&self, first: usize) -> Vec<Endpoint> {
        self.ports(first).into_iter().map(|port| Endpoint { host: "127.0.0.1".to_owned(), port }).collect()
    }

    /// Options of a new process on this cluster, under a prefix.
    pub fn options(&self, prefix: &str, first: usize) -> EtcdOptions {
        options(self.endpoints(first), prefix)
    }

    /// Opens the store under a prefix, as a process of its own would.
    pub async fn open(&self, prefix: &str) -> Store {
        open(self.options(prefix, 0)).await
    }
}

/// Options of a new process on these members, under a prefix.
pub fn options(endpoints: Vec<Endpoint>, prefix: &str) -> EtcdOptions {
    // Processes of one test may come from several runs of this program.
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    identity[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    EtcdOptions {
        endpoints,
        prefix: prefix.to_owned(),
        tls: None,
        credentials: None,
        identity,
        window: WindowBounds { events: 65_536, ..WindowBounds::default() },
        seal: None,
        compact_every: COMPACT_EVERY,
        asks_progress: true,
    }
}

/// Opens a store with [`ByNode`].
pub async fn open(options: EtcdOptions) -> Store {
    Store::open_etcd(Arc::new(ByNode), options).await.expect("etcd can be used").0
}

/// A prefix that nobody else has.
pub fn prefix() -> String {
    format!("/test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs with the clock of the machine: etcd has no other.
pub fn run_real<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
