//! Small files that all servers on one etcd have in common: their authority and the keys that they sign with.

use std::time::Duration;

use bytes::Bytes;

use super::EtcdOptions;
use super::channel::Channel;
use super::error::EtcdError;
use super::format::unreachable;
use super::keys::Keys;
use super::messages::{Compare, Operation, RANGE, RangeRequest, RangeResponse, TXN, TxnRequest, TxnResponse};

/// Where they are among what is the servers' own.
const FOLDER: &str = "files/";

/// How long a member may take, and how long it is tried with one after another when a server starts.
const CALL_MAX: Duration = Duration::from_secs(5);
const TRY_MAX: Duration = Duration::from_secs(30);

/// The files in common, as they are in etcd.
pub struct EtcdFiles {
    channel: Channel,
    keys: Keys,
}

impl EtcdFiles {
    /// Those under the prefix of these options.
    pub fn new(options: &EtcdOptions) -> Result<EtcdFiles, EtcdError> {
        let (channel, keys) = options.connect()?;
        Ok(EtcdFiles { channel, keys })
    }

    /// All of them by name; empty if nobody has written any.
    pub async fn read(&self) -> Result<Vec<(String, Bytes)>, EtcdError> {
        let key = self.keys.own(FOLDER);
        let request = RangeRequest { key: key.clone(), range_end: self.keys.own("files0"), ..RangeRequest::default() };
        let found: RangeResponse = self.channel.ask(RANGE, &request, CALL_MAX, TRY_MAX).await.map_err(unreachable)?;
        let name = |whole: &[u8]| String::from_utf8_lossy(&whole[key.len()..]).into_owned();
        Ok(found.kvs.into_iter().map(|kv| (name(&kv.key), kv.value)).collect())
    }

    /// Writes all of them, unless somebody has written any before. Says whether it did.
    pub async fn write_first(&self, files: &[(String, Vec<u8>)]) -> Result<bool, EtcdError> {
        let key = |name: &str| self.keys.own(&format!("{FOLDER}{name}"));
        let request = TxnRequest {
            compare: files.iter().map(|(name, _)| Compare::changed_at(key(name), 0)).collect(),
            success: files.iter().map(|(name, text)| Operation::put(key(name), text.clone().into(), 0)).collect(),
            failure: Vec::new(),
        };
        // Sent once: whether a lost one was done shows when they are read.
        let answer: TxnResponse = self.channel.call(TXN, &request, CALL_MAX).await.map_err(unreachable)?;
        Ok(answer.succeeded)
    }

    /// Writes one, whatever was there.
    pub async fn write(&self, name: &str, text: Vec<u8>) -> Result<(), EtcdError> {
        let put = Operation::put(self.keys.own(&format!("{FOLDER}{name}")), text.into(), 0);
        let request = TxnRequest { success: vec![put], ..TxnRequest::default() };
        let answer: Result<TxnResponse, _> = self.channel.ask(TXN, &request, CALL_MAX, TRY_MAX).await;
        answer.map(drop).map_err(unreachable)
    }
}
