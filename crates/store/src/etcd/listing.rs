//! Everything at one revision, in pages.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use setpoint_api::Revision;

use super::channel::Channel;
use super::error::EtcdError;
use super::format::Format;
use super::grpc::CallError;
use super::keys::{Keys, Place, Reader};
use super::messages::{KeyValue, RANGE, RangeRequest, RangeResponse, revision};
use crate::head::Head;
use crate::object::Object;

/// Keys in a page. As many as kube-apiserver asks for.
const PAGE_KEYS: i64 = 500;

/// How long a page may take.
const PAGE_MAX: Duration = Duration::from_secs(20);

/// How long it is tried to get a page from one member after another.
const TRY_MAX: Duration = Duration::from_secs(30);

/// How often a list begins anew because etcd has forgotten the revision that it was of.
const TRIES_MAX: usize = 4;

/// All objects, and the revision of etcd that they are of.
pub(super) async fn read(
    channel: &Channel,
    keys: &Keys,
    reader: &mut Reader,
    format: Format,
) -> Result<(Head, i64), EtcdError> {
    let mut tries = 0;
    loop {
        match read_once(channel, keys, reader, format).await {
            Err(Failed::Compacted) if tries < TRIES_MAX => tries += 1,
            Err(Failed::Compacted) => {
                return Err(EtcdError::Unreachable("etcd forgets faster than it can be read".into()));
            }
            Err(Failed::Other(error)) => return Err(error),
            Ok(read) => return Ok(read),
        }
    }
}

enum Failed {
    Compacted,
    Other(EtcdError),
}

async fn read_once(channel: &Channel, keys: &Keys, reader: &mut Reader, format: Format) -> Result<(Head, i64), Failed> {
    let (mut key, range_end) = keys.range();
    let (mut at, mut limit) = (0, PAGE_KEYS);
    let mut head = Head::default();
    loop {
        let request = RangeRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            limit,
            revision: at,
            ..RangeRequest::default()
        };
        let page: RangeResponse = match channel.ask(RANGE, &request, PAGE_MAX, TRY_MAX).await {
            Ok(page) => page,
            Err(CallError::TooLarge) if limit > 1 => {
                limit /= 2;
                continue;
            }
            Err(error) if error.says("compacted") => return Err(Failed::Compacted),
            Err(error) => return Err(Failed::Other(EtcdError::Unreachable(error.to_string()))),
        };
        if at == 0 {
            at = revision(page.header.as_ref());
        }
        for kv in &page.kvs {
            take(&mut head, reader, format, kv).map_err(Failed::Other)?;
        }
        match page.kvs.last() {
            Some(last) if page.more => key = behind(&last.key),
            _ => break,
        }
    }
    head.revision = format.revision(at);
    Ok((head, at))
}

fn take(head: &mut Head, reader: &mut Reader, format: Format, kv: &KeyValue) -> Result<(), EtcdError> {
    let shown = || String::from_utf8_lossy(&kv.key).into_owned();
    match reader.place(&kv.key) {
        Place::Own(_) => Ok(()),
        Place::Foreign => Err(EtcdError::Foreign(shown())),
        Place::Object(key) => {
            let draft = reader.draft(&key, &kv.value).map_err(|why| EtcdError::Unreadable { key: shown(), why })?;
            let revision: Revision = format.revision(kv.mod_revision);
            let object = Object::new(&draft.plain, draft.insert_at, draft.facts, revision);
            head.tables.set(&key, Some(Arc::new(object)));
            Ok(())
        }
    }
}

/// The first key behind another one.
fn behind(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.extend_from_slice(&[0]);
    next.freeze()
}
