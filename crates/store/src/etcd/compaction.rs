//! Lets etcd forget: in turns, each by one of the servers, what is older than the turn before.
//!
//! All servers count the turns in one key. Whoever finds it as it was at its last turn takes this one, and compacts to the revision of the
//! last; the others see that somebody did.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::grpc::CallError;
use super::messages::{COMPACT, CompactRequest, Compare, Done, Operation, TXN, TxnRequest, TxnResponse, revision};

/// The usual time between two turns: as long as kube-apiserver keeps history.
pub const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// How long a member may take.
const CALL_MAX: Duration = Duration::from_secs(10);

/// The key that turns are counted in.
const NAME: &str = "compaction";

/// The last turn that is known: how many there were, and at which revision it was.
#[derive(Clone, Copy, Default)]
struct Turn {
    times: i64,
    revision: i64,
}

pub(super) async fn run(shared: Arc<Shared>, every: Duration) {
    let mut last = Turn::default();
    loop {
        tokio::time::sleep(every).await;
        match take_turn(&shared, last).await {
            Ok(turn) => last = turn,
            Err(error) => tracing::warn!(%error, "etcd could not be compacted; it is tried again"),
        }
    }
}

async fn take_turn(shared: &Shared, last: Turn) -> Result<Turn, CallError> {
    let key = shared.keys.own(NAME);
    let now = shared.format.of_etcd(shared.state.snapshot().revision());
    let request = TxnRequest {
        compare: vec![Compare::written_times(key.clone(), last.times)],
        success: vec![Operation::put(key.clone(), now.to_string().into(), 0)],
        failure: vec![Operation::range(key)],
    };
    let answer: TxnResponse = shared.channel.call(TXN, &request, CALL_MAX).await?;
    if !answer.succeeded {
        let found = answer.responses.first().and_then(|response| response.range.as_ref()?.kvs.first());
        let revision = |value: &[u8]| std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        return Ok(
            found.map_or(Turn::default(), |kv| Turn { times: kv.version, revision: revision(&kv.value).unwrap_or(0) })
        );
    }
    let turn = Turn { times: last.times + 1, revision: revision(answer.header.as_ref()) };
    if last.revision > 0 {
        let request = CompactRequest { revision: last.revision };
        match shared.channel.call::<_, Done>(COMPACT, &request, CALL_MAX).await {
            Err(error) if !error.says("compacted") => return Err(error),
            _ => tracing::debug!(revision = last.revision, "etcd was compacted"),
        }
    }
    Ok(turn)
}
