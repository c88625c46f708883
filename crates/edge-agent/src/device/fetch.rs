//! The download: into the other slot, from where it broke off.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use setpoint_fleet_protocol::{Desired, hex};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
use tokio::time::timeout;

use super::wire::{Wire, at};
use crate::FetchError;
use crate::slots::replace;

/// Bytes after which what came is made durable: as much may have to come again after a kill.
const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes after which the agent hears how far it is.
const TELL_BYTES: u64 = 256 * 1024;

/// How long nothing may come before the download counts as broken off.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// What to wait for if a busy server doesn't say.
const BUSY_PAUSE: Duration = Duration::from_secs(30);
/// The longest wait that a server is believed.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(3600);

/// One download.
pub struct Fetch {
    /// The artifact's file in the other slot.
    pub file: PathBuf,
    /// Where a path without a host is.
    pub hub: String,
    pub wire: Wire,
    pub desired: Desired,
    /// Whether what is there is worthless.
    pub anew: bool,
}

impl Fetch {
    /// Brings what is missing. `told` hears how many bytes are there.
    pub async fn run(self, told: impl Fn(u64)) -> Result<(), FetchError> {
        let Desired { url, size, digest, .. } = &self.desired;
        let tag = if self.anew { None } else { known_tag(&self.file, digest) };
        let mut file = open(&self.file, tag.is_some()).await.map_err(on_disk)?;
        let mut have = file.metadata().await.map_err(on_disk)?.len();
        if have > *size {
            file.set_len(0).await.map_err(on_disk)?;
            have = 0;
        }
        if tag.is_none() || have == 0 {
            note(&self.file, digest, "").map_err(on_disk)?;
        }
        told(have);
        if have == *size {
            return file.sync_all().await.map_err(on_disk);
        }
        // What has no room isn't begun: the bytes would be paid for, and fetched again.
        if room(&self.file).map_err(on_disk)? < size - have {
            return Err(FetchError::NoSpace);
        }
        let url = if url.starts_with('/') { at(&self.hub, url) } else { url.parse().map_err(io::Error::other) };
        let url: Uri = url.map_err(|error| FetchError::NotFound(error.to_string()))?;
        let mut request = Request::new(Full::new(Bytes::new()));
        if have > 0 {
            let headers = request.headers_mut();
            let range = format!("bytes={have}-").parse().map_err(|_| FetchError::TooLong)?;
            headers.insert(header::RANGE, range);
            if let Some(tag) = tag.as_deref().filter(|tag| !tag.is_empty()).and_then(|tag| tag.parse().ok()) {
                headers.insert(header::IF_RANGE, tag);
            }
        }
        let answer = timeout(STALL_LIMIT, self.wire.request(&url, request)).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(broken)?;
        let (parts, body) = answer.into_parts();
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match parts.status {
            StatusCode::OK => {
                file.set_len(0).await.map_err(on_disk)?;
                have = 0;
            }
            StatusCode::PARTIAL_CONTENT if header(header::CONTENT_RANGE).starts_with(&format!("bytes {have}-")) => {}
            StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN => {
                return Err(FetchError::NotFound(format!("{url}: {}", parts.status)));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = header(header::RETRY_AFTER).parse().map(Duration::from_secs);
                return Err(FetchError::Busy(seconds.unwrap_or(BUSY_PAUSE).min(BUSY_PAUSE_MAX)));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                file.set_len(0).await.map_err(on_disk)?;
                return Err(FetchError::Broken(format!("{url}: {}", parts.status)));
            }
            status => return Err(FetchError::Broken(format!("{url}: {status}"))),
        }
        let told_length = match parts.status {
            StatusCode::OK => header(header::CONTENT_LENGTH),
            _ => header(header::CONTENT_RANGE).rsplit('/').next().unwrap_or_default(),
        };
        // What can't be whole isn't waited for.
        match told_length.parse::<u64>() {
            Ok(length) if length > *size => return Err(FetchError::TooLong),
            Ok(length) if length < *size => return Err(FetchError::TooShort),
            _ => {}
        }
        note(&self.file, digest, header(header::ETAG)).map_err(on_disk)?;
        file.seek(SeekFrom::Start(have)).await.map_err(on_disk)?;
        let received = receive(body, &mut file, &mut have, *size, &told).await;
        // However it ended: what came is in the file before somebody goes on from there.
        file.sync_all().await.map_err(on_disk)?;
        received?;
        told(have);
        if have < *size { Err(FetchError::Broken(format!("it ended after {have} of {size} bytes"))) } else { Ok(()) }
    }
}

/// Writes what comes behind the bytes that a file has.
async fn receive(
    mut body: Incoming,
    file: &mut File,
    have: &mut u64,
    size: u64,
    told: &impl Fn(u64),
) -> Result<(), FetchError> {
    let (mut synced, mut said) = (*have, *have);
    loop {
        let frame = timeout(STALL_LIMIT, body.frame()).await.map_err(|_| FetchError::Broken("it stalled".into()))?;
        let Some(frame) = frame else { return Ok(()) };
        let Ok(bytes) = frame.map_err(|error| FetchError::Broken(error.to_string()))?.into_data() else { continue };
        if *have + bytes.len() as u64 > size {
            return Err(FetchError::TooLong);
        }
        file.write_all(&bytes).await.map_err(on_disk)?;
        *have += bytes.len() as u64;
        if *have - synced >= SYNC_BYTES {
            file.sync_data().await.map_err(on_disk)?;
            synced = *have;
        }
        if *have - said >= TELL_BYTES {
            told(*have);
            said = *have;
        }
    }
}

/// The length and the SHA-256 of a file.
pub async fn digest(path: &Path) -> Result<(u64, String), String> {
    let read = async {
        let mut file = File::open(path).await?;
        let (mut context, mut length) = (Context::new(&SHA256), 0);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).await? {
                0 => return Ok::<_, io::Error>((length, hex::encode(context.finish().as_ref()))),
                count => {
                    context.update(&buffer[..count]);
                    length += count as u64;
                }
            }
        }
    };
    read.await.map_err(|error| error.to_string())
}

/// Bytes that can still be written beside a file.
fn room(file: &Path) -> io::Result<u64> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let space = rustix::fs::statvfs(folder)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

async fn open(path: &Path, keep: bool) -> io::Result<File> {
    OpenOptions::new().create(true).write(true).truncate(!keep).open(path).await
}

/// The entity tag of what a file holds a part of, if it is a part of this artifact.
fn known_tag(file: &Path, digest: &str) -> Option<String> {
    let text = std::fs::read_to_string(note_path(file)).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    (value["digest"] == digest).then(|| value["etag"].as_str().unwrap_or_default().to_owned())
}

fn note(file: &Path, digest: &str, etag: &str) -> io::Result<()> {
    replace(&note_path(file), json!({"digest": digest, "etag": etag}).to_string().as_bytes())
}

fn note_path(file: &Path) -> PathBuf {
    file.with_extension("partial")
}

fn on_disk(error: io::Error) -> FetchError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::NoSpace,
        _ => broken(error),
    }
}

fn broken(error: io::Error) -> FetchError {
    FetchError::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::net::TcpListener;

    use super::*;

    /// What an artifact's server was asked for, and how it answers.
    #[derive(Clone, Default)]
    struct Shelf {
        bytes: Vec<u8>,
        tag: &'static str,
        /// Bytes of an answer after which the connection is cut, one for each answer; later ones are whole.
        cuts: Arc<Mutex<Vec<usize>>>,
        /// An answer without the artifact, in its place.
        instead: &'static str,
        asked: Arc<Mutex<Vec<(String, String)>>>,
    }

    impl Shelf {
        /// Answers requests, one after another; where.
        async fn open(&self) -> String {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let shelf = self.clone();
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let answer = shelf.answer(&String::from_utf8(head).unwrap());
                    // The other end may have heard enough.
                    let _ = stream.write_all(&answer).await;
                }
            });
            format!("http://{address}/artifact")
        }

        fn answer(&self, head: &str) -> Vec<u8> {
            let header = |name: &str| {
                let line = head.lines().find_map(|line| line.split_once(": ").filter(|(known, _)| *known == name));
                line.map_or(String::new(), |(_, value)| value.to_owned())
            };
            let (range, if_range) = (header("range"), header("if-range"));
            self.asked.lock().unwrap().push((range.clone(), if_range.clone()));
            if !self.instead.is_empty() {
                return self.instead.as_bytes().to_vec();
            }
            let from: usize = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or_default();
            let total = self.bytes.len();
            let is_same = if_range.is_empty() || if_range == self.tag;
            let (line, from) = match from > 0 && is_same {
                true => (format!("206 Partial Content\r\ncontent-range: bytes {from}-{}/{total}", total - 1), from),
                false => ("200 OK".to_owned(), 0),
            };
            let body = &self.bytes[from..];
            let head = format!("HTTP/1.1 {line}\r\netag: {}\r\ncontent-length: {}\r\n\r\n", self.tag, body.len());
            let mut cuts = self.cuts.lock().unwrap();
            let sent = if cuts.is_empty() { body.len() } else { cuts.remove(0).min(body.len()) };
            [head.as_bytes(), &body[..sent]].concat()
        }
    }

    struct Slot {
        _folder: tempfile::TempDir,
        fetch: Fetch,
    }

    async fn slot(shelf: &Shelf, size: u64) -> Slot {
        let folder = tempfile::tempdir().unwrap();
        let desired = Desired { url: shelf.open().await, size, digest: "d-1".into(), ..Desired::default() };
        let file = folder.path().join("firmware.bin");
        let wire = Wire::plain(folder.path().join("ca.pem"));
        Slot { fetch: Fetch { file, hub: String::new(), wire, desired, anew: false }, _folder: folder }
    }

    impl Slot {
        async fn run(&self) -> (Result<(), FetchError>, Vec<u64>) {
            let Fetch { file, hub, wire, desired, anew } = &self.fetch;
            let (file, hub, wire) = (file.clone(), hub.clone(), wire.clone());
            let fetch = Fetch { file, hub, wire, desired: desired.clone(), anew: *anew };
            let told = Mutex::new(Vec::new());
            let ended = fetch.run(|have| told.lock().unwrap().push(have)).await;
            (ended, told.into_inner().unwrap())
        }

        fn bytes(&self) -> Vec<u8> {
            std::fs::read(&self.fetch.file).unwrap()
        }
    }

    fn shelf(cuts: &[usize]) -> Shelf {
        let bytes = (0..=255).cycle().take(1000).collect();
        Shelf { bytes, tag: "\"t-1\"", cuts: Arc::new(Mutex::new(cuts.to_vec())), ..Shelf::default() }
    }

    fn asked(shelf: &Shelf) -> Vec<(String, String)> {
        shelf.asked.lock().unwrap().clone()
    }

    fn pair(range: &str, tag: &str) -> (String, String) {
        (range.to_owned(), tag.to_owned())
    }

    #[tokio::test]
    async fn a_download_goes_on_from_where_it_broke_off() {
        let shelf = shelf(&[300, 200]);
        let slot = slot(&shelf, 1000).await;
        for (start, end) in [(0, 300), (300, 500)] {
            let (ended, told) = slot.run().await;
            assert!(matches!(ended, Err(FetchError::Broken(_))), "{ended:?}");
            assert_eq!((told[0], slot.bytes().len()), (start, end));
        }
        assert_eq!(slot.run().await, (Ok(()), vec![500, 1000]));
        assert_eq!(slot.bytes(), shelf.bytes);
        let tag = "\"t-1\"";
        assert_eq!(asked(&shelf), [pair("", ""), pair("bytes=300-", tag), pair("bytes=500-", tag)]);
        // What is whole isn't asked for again.
        assert_eq!(slot.run().await, (Ok(()), vec![1000]));
        assert_eq!(asked(&shelf).len(), 3);
    }

    #[tokio::test]
    async fn what_has_changed_meanwhile_or_is_worthless_is_fetched_from_the_beginning() {
        let old = shelf(&[300]);
        let mut slot = slot(&old, 1000).await;
        assert!(slot.run().await.0.is_err());
        let new = Shelf { bytes: vec![7; 1000], tag: "\"t-2\"", ..Shelf::default() };
        slot.fetch.desired.url = new.open().await;
        assert_eq!(slot.run().await.0, Ok(()));
        assert_eq!((slot.bytes(), asked(&new)), (new.bytes.clone(), vec![pair("bytes=300-", "\"t-1\"")]));
        slot.fetch.anew = true;
        assert_eq!(slot.run().await.0, Ok(()));
        assert_eq!(asked(&new)[1], pair("", ""));
        // A part of another artifact is no part of this one.
        (slot.fetch.anew, slot.fetch.desired.digest) = (false, "d-2".into());
        assert_eq!(slot.run().await.0, Ok(()));
        assert_eq!(asked(&new)[2], pair("", ""));
    }

    #[tokio::test]
    async fn what_can_not_be_whole_is_not_fetched() {
        for (size, expected) in [(999, FetchError::TooLong), (1001, FetchError::TooShort)] {
            let slot = slot(&shelf(&[]), size).await;
            assert_eq!(slot.run().await.0, Err(expected));
            assert_eq!(slot.bytes(), b"");
        }
    }

    #[tokio::test]
    async fn an_artifact_without_room_for_it_is_not_asked_for() {
        let shelf = shelf(&[]);
        let slot = slot(&shelf, u64::MAX).await;
        assert_eq!(slot.run().await.0, Err(FetchError::NoSpace));
        assert_eq!(asked(&shelf), []);
    }

    #[tokio::test]
    async fn a_server_says_why_there_is_nothing() {
        let busy = Duration::from_secs(7);
        for (instead, expected) in [
            ("HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", FetchError::Busy(busy)),
            ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", FetchError::Busy(BUSY_PAUSE)),
        ] {
            let slot = slot(&Shelf { instead, ..shelf(&[]) }, 1000).await;
            assert_eq!(slot.run().await.0, Err(expected), "{instead}");
        }
        for (instead, is_final) in
            [("404 Not Found", true), ("403 Forbidden", true), ("500 Internal Server Error", false)]
        {
            let instead: &str = format!("HTTP/1.1 {instead}\r\ncontent-length: 0\r\n\r\n").leak();
            let slot = slot(&Shelf { instead, ..shelf(&[]) }, 1000).await;
            let ended = slot.run().await.0.unwrap_err();
            assert_eq!(matches!(ended, FetchError::NotFound(_)), is_final, "{instead}: {ended:?}");
        }
    }
}
