//! Firmware from a folder: files named by their SHA-256, whole or from where a download broke off.

use std::io::{self, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use setpoint_fleet_protocol::Party;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::Semaphore;

use super::budget::Budget;
use super::{Body, Desk, full, plain};

/// Where firmware is.
pub const PATH: &str = "/v1/firmware/";

/// Bytes that are read and sent at a time.
const CHUNK: usize = 64 * 1024;

/// Downloads at once; each holds a file and a chunk.
const DOWNLOADS: usize = 256;

/// Seconds over which those are spread that are sent away.
const SPREAD_SECONDS: u64 = 30;

/// The folder, and how fast it is emptied.
pub struct Depot {
    folder: Option<PathBuf>,
    budget: Arc<Budget>,
    places: Arc<Semaphore>,
}

impl Depot {
    pub fn new(folder: Option<PathBuf>, bytes_per_second: Option<u64>) -> Depot {
        let budget = Arc::new(Budget::new(bytes_per_second));
        Depot { folder, budget, places: Arc::new(Semaphore::new(DOWNLOADS)) }
    }
}

/// Answers a download.
pub async fn answer(desk: &Desk, party: &Party, request: &Request<Incoming>) -> Response<Body> {
    let depot = &desk.depot;
    let digest = request.uri().path().strip_prefix(PATH).unwrap_or_default();
    let is_digest =
        digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let Some(folder) = depot.folder.as_ref().filter(|_| is_digest) else {
        return plain(StatusCode::NOT_FOUND, "there is no such firmware");
    };
    if !desk.hub.may_download(party, digest) {
        return plain(StatusCode::FORBIDDEN, "no task of yours asks for this firmware");
    }
    let (Ok(()), Ok(place)) = (depot.budget.admits(), depot.places.clone().try_acquire_owned()) else {
        return busy(desk);
    };
    let opened = async {
        let file = File::open(folder.join(digest)).await?;
        let length = file.metadata().await?.len();
        Ok::<_, io::Error>((file, length))
    };
    let Ok((mut file, length)) = opened.await else {
        return plain(StatusCode::NOT_FOUND, "there is no such firmware");
    };
    let tag = format!("\"{digest}\"");
    let Some((status, start, end)) = part(request, &tag, length) else {
        let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "there are no such bytes");
        insert(&mut response, header::CONTENT_RANGE, format!("bytes */{length}"));
        return response;
    };
    if file.seek(SeekFrom::Start(start)).await.is_err() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the firmware can't be read");
    }
    let budget = depot.budget.clone();
    let chunks = stream::try_unfold((file, end - start, place), move |(mut file, left, place)| {
        let budget = budget.clone();
        async move {
            if left == 0 {
                return Ok::<_, io::Error>(None);
            }
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            let count = file.read(&mut chunk).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            chunk.truncate(count);
            budget.spend(count).await;
            Ok(Some((Frame::data(Bytes::from(chunk)), (file, left - count as u64, place))))
        }
    });
    let body = if request.method() == http::Method::HEAD { full("") } else { StreamBody::new(chunks).boxed() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    insert(&mut response, header::ACCEPT_RANGES, "bytes".to_owned());
    insert(&mut response, header::ETAG, tag);
    insert(&mut response, header::CONTENT_LENGTH, (end - start).to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        insert(&mut response, header::CONTENT_RANGE, format!("bytes {start}-{}/{length}", end.saturating_sub(1)));
    }
    response
}

/// Which bytes are asked for: from, to (not included). None if there are no such.
fn part(request: &Request<Incoming>, tag: &str, length: u64) -> Option<(StatusCode, u64, u64)> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_same = text(header::IF_RANGE).is_none_or(|known| known == tag);
    range(text(header::RANGE).filter(|_| is_same), length)
}

fn range(asked: Option<&str>, length: u64) -> Option<(StatusCode, u64, u64)> {
    let whole = Some((StatusCode::OK, 0, length));
    // Several ranges, or what can't be read, is answered with the whole.
    let Some((from, to)) = asked.and_then(|text| text.strip_prefix("bytes=")).and_then(|text| text.split_once('-'))
    else {
        return whole;
    };
    let Ok(from) = from.parse::<u64>() else { return whole };
    let end = match to {
        "" => length,
        to => match to.parse::<u64>() {
            Ok(to) => to.saturating_add(1).min(length),
            Err(_) => return whole,
        },
    };
    (from < end).then_some((StatusCode::PARTIAL_CONTENT, from, end))
}

fn busy(desk: &Desk) -> Response<Body> {
    let seconds = desk.depot.budget.admits().err().map_or(1, |wait| wait.as_secs() + 1);
    let seconds = seconds + desk.hub.shared.chance.below(SPREAD_SECONDS);
    let mut response = plain(StatusCode::TOO_MANY_REQUESTS, "too many download at once");
    insert(&mut response, header::RETRY_AFTER, seconds.to_string());
    response
}

fn insert(response: &mut Response<Body>, name: header::HeaderName, value: String) {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_from_where_it_broke_off() {
        let whole = Some((StatusCode::OK, 0, 100));
        let partial = |from, to| Some((StatusCode::PARTIAL_CONTENT, from, to));
        for (asked, expected) in [
            (None, whole),
            (Some("bytes=0-"), partial(0, 100)),
            (Some("bytes=40-"), partial(40, 100)),
            (Some("bytes=40-49"), partial(40, 50)),
            (Some("bytes=40-1000"), partial(40, 100)),
            (Some("bytes=100-"), None),
            (Some("bytes=-5"), whole),
            (Some("bytes=1-2,4-5"), whole),
            (Some("rows=1-"), whole),
        ] {
            assert_eq!(range(asked, 100), expected, "{asked:?}");
        }
    }
}
