//! Everything of another store into an empty prefix, in the order in which it was written.

use std::sync::Arc;
use std::time::Duration;

use setpoint_api::Revision;
use tokio::task::JoinSet;

use super::EtcdOptions;
use super::channel::Channel;
use super::error::EtcdError;
use super::format::{Format, unreachable};
use super::keys::{Tag, value};
use super::messages::{Operation, TXN, TxnRequest, TxnResponse, revision};
use crate::key::Key;
use crate::object::Object;
use crate::snapshot::Snapshot;

/// An object with its key.
type Entry = (Key, Arc<Object>);

/// So many transactions are under way at once: etcd syncs them together.
const UNDER_WAY: usize = 128;

/// How long a member may take, and how long it is tried with one after another.
const CALL_MAX: Duration = Duration::from_secs(10);
const TRY_MAX: Duration = Duration::from_secs(30);

/// Most objects of one transaction: what was written together stays together up to what etcd takes.
const OBJECTS_MAX: usize = 64;

/// And most bytes of it, so that it is below what etcd takes.
const BYTES_MAX: usize = 1024 * 1024;

/// Writes all objects of a snapshot, and returns how many there are. They get revisions of etcd, in the order of those that they have, and
/// clients see them beyond `newest`, the newest revision that anybody can know. Nothing may be under the prefix; until the end, no
/// server can use it.
pub async fn fill(options: &EtcdOptions, snapshot: &Snapshot, newest: Revision) -> Result<usize, EtcdError> {
    let (channel, keys) = options.connect()?;
    let channel = Arc::new(channel);
    let format = Format::begin_filling(&channel, &keys, newest).await?;
    let tag = Tag::new(&options.identity, 0);
    let seal = options.seal.as_deref();
    let objects = snapshot.in_order();
    let groups = grouped(&objects);
    for window in groups.chunks(UNDER_WAY) {
        let request = |group: &&[Entry]| {
            let put = |(key, object): &Entry| Operation::put(keys.of(key), value(key, object.plain(), tag, seal), 0);
            TxnRequest { success: group.iter().map(put).collect(), ..TxnRequest::default() }
        };
        let requests: Vec<Arc<TxnRequest>> = window.iter().map(request).map(Arc::new).collect();
        write(&channel, requests).await?;
    }
    format.end_filling(&channel, &keys).await?;
    Ok(objects.len())
}

/// Writes transactions at once, and those again one by one that were not done in order.
async fn write(channel: &Arc<Channel>, requests: Vec<Arc<TxnRequest>>) -> Result<(), EtcdError> {
    let mut under_way: JoinSet<(usize, i64)> = JoinSet::new();
    for (at, request) in requests.iter().enumerate() {
        let (channel, request) = (Arc::clone(channel), Arc::clone(request));
        under_way.spawn(async move {
            let answer: Result<TxnResponse, _> = channel.call(TXN, &*request, CALL_MAX).await;
            (at, answer.map_or(0, |answer| revision(answer.header.as_ref())))
        });
    }
    let mut revisions = vec![0; requests.len()];
    while let Some(done) = under_way.join_next().await {
        let (at, revision) = done.map_err(|error| EtcdError::Unreachable(error.to_string()))?;
        revisions[at] = revision;
    }
    let in_order = in_order(&revisions);
    for request in &requests[in_order..] {
        let answer: Result<TxnResponse, _> = channel.ask(TXN, &**request, CALL_MAX, TRY_MAX).await;
        answer.map_err(unreachable)?;
    }
    Ok(())
}

/// How many from the first on were done, each after the one before.
///
/// One of them stays where it is only if none behind it in the list was done before it: then what is written again is behind all of them.
fn in_order(revisions: &[i64]) -> usize {
    let rising = revisions.windows(2).take_while(|pair| pair[0] > 0 && pair[0] < pair[1]).count();
    match revisions.first() {
        Some(first) if *first > 0 => rising + 1,
        _ => 0,
    }
}

/// What was written at one revision, in parts that etcd takes.
fn grouped(objects: &[Entry]) -> Vec<&[Entry]> {
    let mut groups = Vec::new();
    for together in objects.chunk_by(|(_, a), (_, b)| a.revision() == b.revision()) {
        let (mut start, mut bytes) = (0, 0);
        for (at, (_, object)) in together.iter().enumerate() {
            let size = object.json().len();
            if at > start && (at - start == OBJECTS_MAX || bytes + size > BYTES_MAX) {
                groups.push(&together[start..at]);
                (start, bytes) = (at, 0);
            }
            bytes += size;
        }
        groups.push(&together[start..]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_done_in_order_is_written_again() {
        let check = |revisions: &[i64], expected| assert_eq!(in_order(revisions), expected, "{revisions:?}");
        check(&[], 0);
        check(&[5], 1);
        check(&[0], 0);
        check(&[5, 6, 9], 3);
        check(&[5, 7, 6, 9], 2);
        check(&[5, 0, 6], 1);
        check(&[0, 5], 0);
    }
}
