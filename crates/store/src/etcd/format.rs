//! What a prefix says of itself: how it is written, and how its revisions are counted.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use setpoint_api::Revision;

use super::channel::Channel;
use super::error::EtcdError;
use super::keys::Keys;
use super::messages::{Compare, Operation, RANGE, RangeRequest, RangeResponse, TXN, TxnRequest, TxnResponse};

/// The form that this version writes.
const VERSION: u32 = 1;

/// Its name among what is the servers' own.
const NAME: &str = "format";

/// How long a member may take, and how long it is tried with one after another when a server starts.
const CALL_MAX: Duration = Duration::from_secs(5);
const TRY_MAX: Duration = Duration::from_secs(30);

/// How revisions of etcd are told to clients.
///
/// They are etcd's own, but in a cluster that was filled from another store: there so much is added that they are beyond all that the
/// other one has handed out. So no client takes a version of before for one of after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    offset: u64,
    /// Objects are being written by a migration: there is only a part of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    filling: bool,
}

impl Format {
    /// The revision that clients see.
    pub(super) fn revision(self, of_etcd: i64) -> Revision {
        Revision::new(self.offset + u64::try_from(of_etcd).unwrap_or(0))
    }

    /// The revision of etcd, or one that nothing has for those from before.
    pub(super) fn of_etcd(self, revision: Revision) -> i64 {
        let found = revision.get().checked_sub(self.offset).filter(|found| *found > 0);
        found.and_then(|found| i64::try_from(found).ok()).unwrap_or(-1)
    }

    /// Reads it, and writes it where nobody has.
    pub(super) async fn open(channel: &Channel, keys: &Keys) -> Result<Format, EtcdError> {
        let key = keys.own(NAME);
        let new = Written { version: VERSION, offset: 0, filling: false };
        let request = TxnRequest {
            compare: vec![Compare::changed_at(key.clone(), 0)],
            success: vec![Operation::put(key.clone(), encode(&new), 0)],
            failure: vec![Operation::range(key)],
        };
        let answer: TxnResponse = channel.ask(TXN, &request, CALL_MAX, TRY_MAX).await.map_err(unreachable)?;
        if answer.succeeded {
            return Ok(Format { offset: 0 });
        }
        let found = answer.responses.first().and_then(|response| response.range.as_ref()?.kvs.first());
        Format::decode(found.map_or(&[], |kv| &kv.value))
    }

    /// Reads it where somebody has written it.
    pub(super) async fn read(channel: &Channel, keys: &Keys) -> Result<Format, EtcdError> {
        let request = RangeRequest { key: keys.own(NAME), ..RangeRequest::default() };
        let found: RangeResponse = channel.ask(RANGE, &request, CALL_MAX, TRY_MAX).await.map_err(unreachable)?;
        match found.kvs.first() {
            Some(kv) => Format::decode(&kv.value),
            None => Err(EtcdError::Empty),
        }
    }

    fn decode(text: &[u8]) -> Result<Format, EtcdError> {
        match serde_json::from_slice::<Written>(text).ok() {
            Some(Written { filling: true, .. }) => {
                Err(EtcdError::Format("a migration to it has not come to its end".into()))
            }
            Some(Written { version: VERSION, offset, .. }) => Ok(Format { offset }),
            _ => Err(EtcdError::Format("it was written by another version".into())),
        }
    }

    /// Begins to fill a prefix with what another store holds up to a revision. Nothing may be there.
    pub(super) async fn begin_filling(channel: &Channel, keys: &Keys, newest: Revision) -> Result<Format, EtcdError> {
        let (key, range_end) = keys.range();
        let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
        let found: RangeResponse = channel.ask(RANGE, &request, CALL_MAX, TRY_MAX).await.map_err(unreachable)?;
        if found.count > 0 {
            return Err(EtcdError::NotEmpty);
        }
        let key = keys.own(NAME);
        let written = Written { version: VERSION, offset: newest.get(), filling: true };
        let request = TxnRequest {
            compare: vec![Compare::changed_at(key.clone(), 0)],
            success: vec![Operation::put(key, encode(&written), 0)],
            failure: Vec::new(),
        };
        let answer: TxnResponse = channel.call(TXN, &request, CALL_MAX).await.map_err(unreachable)?;
        if answer.succeeded { Ok(Format { offset: newest.get() }) } else { Err(EtcdError::NotEmpty) }
    }

    /// Says that everything is there.
    pub(super) async fn end_filling(self, channel: &Channel, keys: &Keys) -> Result<(), EtcdError> {
        let written = Written { version: VERSION, offset: self.offset, filling: false };
        let put = Operation::put(keys.own(NAME), encode(&written), 0);
        let request = TxnRequest { success: vec![put], ..TxnRequest::default() };
        let answer: Result<TxnResponse, _> = channel.ask(TXN, &request, CALL_MAX, TRY_MAX).await;
        answer.map(drop).map_err(unreachable)
    }
}

fn encode(written: &Written) -> Bytes {
    serde_json::to_vec(written).expect("numbers can be written").into()
}

pub(super) fn unreachable(error: super::grpc::CallError) -> EtcdError {
    EtcdError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_of_before_a_migration_are_of_nothing() {
        let format = Format { offset: 1000 };
        assert_eq!(format.revision(7).get(), 1007);
        assert_eq!(format.of_etcd(Revision::new(1007)), 7);
        assert_eq!(format.of_etcd(Revision::new(1000)), -1);
        assert_eq!(format.of_etcd(Revision::new(3)), -1);
        assert_eq!(Format { offset: 0 }.of_etcd(Revision::new(3)), 3);
    }
}
