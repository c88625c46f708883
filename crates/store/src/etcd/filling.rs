//! Everything of another store into an empty prefix, in the order in which it was written.

use std::sync::Arc;
use std::time::Duration;

use setpoint_api::Revision;

use super::EtcdOptions;
use super::error::EtcdError;
use super::format::{Format, unreachable};
use super::keys::{Tag, value};
use super::messages::{Operation, TXN, TxnRequest, TxnResponse};
use crate::key::Key;
use crate::object::Object;
use crate::snapshot::Snapshot;

/// An object with its key.
type Entry = (Key, Arc<Object>);

/// How long a member may take, and how long it is tried with one after another.
const CALL_MAX: Duration = Duration::from_secs(10);
const TRY_MAX: Duration = Duration::from_secs(30);

/// Most objects of one transaction: below the 128 operations that etcd takes unless it was told otherwise.
const OBJECTS_MAX: usize = 100;

/// And most bytes of it, for the same reason.
const BYTES_MAX: usize = 1024 * 1024;

/// Writes all objects of a snapshot, and returns how many there are. They get revisions of etcd in the order of those that they have:
/// neighbours may share one, because one transaction for each would take minutes, but none gets before one that it came after. Clients
/// see them beyond `newest`, the newest revision that anybody can know. Nothing may be under the prefix; until the end, no server
/// can use it.
pub async fn fill(options: &EtcdOptions, snapshot: &Snapshot, newest: Revision) -> Result<usize, EtcdError> {
    let (channel, keys) = options.connect()?;
    let format = Format::begin_filling(&channel, &keys, newest).await?;
    let tag = Tag::new(&options.identity, 0);
    let seal = options.seal.as_deref();
    let objects = snapshot.in_order();
    for together in batches(&objects) {
        let put = |(key, object): &Entry| Operation::put(keys.of(key), value(key, object.plain(), tag, seal), 0);
        let request = TxnRequest { success: together.iter().map(put).collect(), ..TxnRequest::default() };
        // One after another, so that they are in order; one that is done twice is so in the same place.
        let answer: Result<TxnResponse, _> = channel.ask(TXN, &request, CALL_MAX, TRY_MAX).await;
        answer.map_err(unreachable)?;
    }
    format.end_filling(&channel, &keys).await?;
    Ok(objects.len())
}

/// Neighbours, in parts that etcd takes.
fn batches(objects: &[Entry]) -> Vec<&[Entry]> {
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, (_, object)) in objects.iter().enumerate() {
        let size = object.json().len();
        if at > start && (at - start == OBJECTS_MAX || bytes + size > BYTES_MAX) {
            parts.push(&objects[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < objects.len() {
        parts.push(&objects[start..]);
    }
    parts
}
