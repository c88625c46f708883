//! What is said to etcd and what it answers: the messages of its API that are used here, with the numbers of their fields.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The method that reads keys.
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
/// The method that compares and changes.
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
/// The method that forgets the past.
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
/// The method that follows keys.
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The method that makes a lease.
pub(super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
/// The method that tells how a member is.
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// The method that tells what is wrong with the cluster.
pub(super) const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
/// The method that gives a token for a name and a password.
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Operate", tags = "1, 2, 3")]
    pub(super) operate: Option<Operate>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operate {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
}

impl Operation {
    pub(super) fn range(key: Bytes) -> Operation {
        Operation { operate: Some(Operate::Range(RangeRequest { key, ..RangeRequest::default() })) }
    }

    pub(super) fn put(key: Bytes, value: Bytes, lease: i64) -> Operation {
        Operation { operate: Some(Operate::Put(PutRequest { key, value, lease })) }
    }

    pub(super) fn delete(key: Bytes) -> Operation {
        Operation { operate: Some(Operate::Delete(DeleteRequest { key })) }
    }
}

/// Equality of one number of a key: `target` is 0 for its version and 2 for its mod revision.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub(super) number: Option<Number>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Number {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    /// Holds of a key that was last changed at a revision; at zero, of one that isn't there.
    pub(super) fn changed_at(key: Bytes, revision: i64) -> Compare {
        Compare { result: 0, target: 2, key, number: Some(Number::ModRevision(revision)) }
    }

    /// Holds of a key that was written so many times.
    pub(super) fn written_times(key: Bytes, times: i64) -> Compare {
        Compare { result: 0, target: 0, key, number: Some(Number::Version(times)) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<OperationResponse>,
}

/// Only what was read is of interest.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperationResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

/// An answer of which only the fact that it came matters.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Done {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "Watching", tags = "1, 3")]
    pub(super) watching: Option<Watching>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Watching {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "3")]
    Progress(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(super) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<WatchedEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchedEvent {
    /// 0 for a put, 1 for a delete.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) database_bytes: i64,
    #[prost(int64, tag = "9")]
    pub(super) database_bytes_in_use: i64,
}

/// Without an action it only asks.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmRequest {
    #[prost(int32, tag = "1")]
    pub(super) action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmMember {
    /// 1 for no space, 2 for corruption.
    #[prost(int32, tag = "2")]
    pub(super) alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

/// The revision that an answer's header tells.
pub(super) fn revision(header: Option<&Header>) -> i64 {
    header.map_or(0, |header| header.revision)
}
