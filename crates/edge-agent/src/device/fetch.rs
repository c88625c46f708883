//! The download: into the other slot, from where it broke off.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
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
        let (parts, mut body) = answer.into_parts();
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
        let (mut synced, mut said) = (have, have);
        loop {
            let frame =
                timeout(STALL_LIMIT, body.frame()).await.map_err(|_| FetchError::Broken("it stalled".into()))?;
            let Some(frame) = frame else { break };
            let Ok(bytes) = frame.map_err(|error| FetchError::Broken(error.to_string()))?.into_data() else { continue };
            have += bytes.len() as u64;
            if have > *size {
                return Err(FetchError::TooLong);
            }
            file.write_all(&bytes).await.map_err(on_disk)?;
            if have - synced >= SYNC_BYTES {
                file.sync_data().await.map_err(on_disk)?;
                synced = have;
            }
            if have - said >= TELL_BYTES {
                told(have);
                said = have;
            }
        }
        file.sync_all().await.map_err(on_disk)?;
        told(have);
        if have < *size { Err(FetchError::Broken(format!("it ended after {have} of {size} bytes"))) } else { Ok(()) }
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::NoSpace(error.to_string()),
        _ => broken(error),
    }
}

fn broken(error: io::Error) -> FetchError {
    FetchError::Broken(error.to_string())
}
