//! Leases for what etcd removes by itself: one for everything that is written within a minute.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::channel::Channel;
use super::grpc::CallError;
use super::messages::{LEASE_GRANT, LeaseGrantRequest, LeaseGrantResponse};

/// For so long a lease is given out again, or for as long as what it is for: each costs etcd a timer. Same as kube-apiserver.
const SHARED_FOR: Duration = Duration::from_secs(60);

/// Most keys of one lease: they are all removed at once. Same as kube-apiserver.
const KEYS_MAX: usize = 1000;

/// How long a member may take.
const CALL_MAX: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Leases(Mutex<Option<Lease>>);

struct Lease {
    id: i64,
    time: Duration,
    granted: Instant,
    keys: usize,
}

impl Leases {
    /// A lease of at least this time.
    pub(super) async fn of(&self, channel: &Channel, time: Duration, limit: Duration) -> Result<i64, CallError> {
        let mut newest = self.0.lock().await;
        let shared_for = SHARED_FOR.min(time);
        if let Some(lease) = newest.as_mut()
            && lease.time == time
            && lease.granted.elapsed() < shared_for
            && lease.keys < KEYS_MAX
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let granted = Instant::now();
        let id = grant(channel, time + shared_for, limit).await?;
        *newest = Some(Lease { id, time, granted, keys: 1 });
        Ok(id)
    }
}

/// A new lease.
pub(super) async fn grant(channel: &Channel, time: Duration, limit: Duration) -> Result<i64, CallError> {
    let request = LeaseGrantRequest { ttl: i64::try_from(time.as_secs()).unwrap_or(i64::MAX) };
    let granted: LeaseGrantResponse = channel.ask(LEASE_GRANT, &request, CALL_MAX, limit).await?;
    Ok(granted.id)
}
