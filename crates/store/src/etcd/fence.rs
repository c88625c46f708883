//! Keeps late transactions out: after a fence, one that was sent before it and not done can't happen any more.
//!
//! Each transaction expects that a key of this process, numbered by its generation, isn't there. When an answer is lost, that key is written
//! through another member: whatever was on its way then fails, and what the feed has shown up to the fence is all that happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::grpc::CallError;
use super::leases;
use super::messages::{Compare, Operation, TXN, TxnRequest, TxnResponse, revision};

/// How long a fence stands: far longer than anything can be on its way.
const STANDS: Duration = Duration::from_secs(600);

/// How long a member may take to write one.
const CALL_MAX: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Fence {
    generation: AtomicU64,
    /// The revision of the newest fence.
    raised: Mutex<i64>,
}

impl Fence {
    /// The generation that a transaction is sent in.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What a transaction of a generation expects.
    pub(super) fn condition(shared: &Shared, generation: u64) -> Compare {
        Compare::changed_at(key(shared, generation), 0)
    }

    /// Makes sure that nothing of a generation happens after the revision that is returned.
    pub(super) async fn raise(shared: &Shared, generation: u64, deadline: Instant) -> Result<i64, CallError> {
        let too_late = |_| CallError::Lost("etcd did not come back in time".into());
        timeout_at(deadline, raise(shared, generation)).await.map_err(too_late)?
    }
}

async fn raise(shared: &Shared, generation: u64) -> Result<i64, CallError> {
    let mut raised = shared.fence.raised.lock().await;
    if shared.fence.generation() > generation {
        return Ok(*raised);
    }
    // The time that is left is the caller's to bound.
    let forever = Duration::from_secs(3600);
    let lease = leases::grant(&shared.channel, STANDS, forever).await?;
    let put = Operation::put(key(shared, generation), Bytes::from_static(b"raised"), lease);
    let request = TxnRequest { success: vec![put], ..TxnRequest::default() };
    let answer: TxnResponse = shared.channel.ask(TXN, &request, CALL_MAX, forever).await?;
    *raised = revision(answer.header.as_ref());
    shared.fence.generation.store(generation + 1, Ordering::Release);
    shared.figures().resolved_writes += 1;
    Ok(*raised)
}

fn key(shared: &Shared, generation: u64) -> Bytes {
    let process: String = shared.identity.iter().map(|byte| format!("{byte:02x}")).collect();
    shared.keys.own(&format!("fence/{process}-{generation}"))
}
