//! gRPC on one HTTP/2 connection: a message behind five bytes, and a status in the trailers.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use prost::Message;
use setpoint_api::percent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// Largest message that is taken: a page of a list. A larger page is asked for again in smaller ones.
const MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How much of one answer may be under way: so much that a page of a list needs few round trips.
const STREAM_WINDOW: u32 = 4 * 1024 * 1024;

/// The same for all answers together.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// Bytes before each message: whether it is compressed, and its length.
const FRAME_HEADER: usize = 5;

/// Codes of gRPC that are told apart.
const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const UNAUTHENTICATED: u32 = 16;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// It was never sent.
    Unsent(String),
    /// The same, because one side does not believe who the other one is: asking again changes nothing.
    Denied(String),
    /// It was sent, and nobody knows what became of it.
    Lost(String),
    /// An answer that is larger than what is taken.
    TooLarge,
    /// What etcd says instead.
    Refused {
        /// The code of gRPC.
        code: u32,
        /// etcd's words.
        message: String,
    },
}

impl CallError {
    /// Whether etcd itself says that it did not do it, and would not the next time either.
    pub(super) fn is_final(&self) -> bool {
        let CallError::Refused { code, message } = self else { return false };
        if self.is_unauthenticated() {
            return false;
        }
        match *code {
            INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | OUT_OF_RANGE | UNIMPLEMENTED => true,
            RESOURCE_EXHAUSTED => message.contains("space exceeded") || message.contains("larger than max"),
            FAILED_PRECONDITION => !message.contains("not leader"),
            _ => false,
        }
    }

    /// Whether the token of the connection is worth nothing any more.
    pub(super) fn is_unauthenticated(&self) -> bool {
        matches!(self, CallError::Refused { code: UNAUTHENTICATED, .. })
            || self.says("revision of auth store is old")
            || self.says("user name is empty")
    }

    /// Whether etcd's words contain these.
    pub(super) fn says(&self, words: &str) -> bool {
        matches!(self, CallError::Refused { message, .. } if message.contains(words))
    }

    /// Whether nothing was done for sure.
    pub(super) fn is_undone(&self) -> bool {
        matches!(self, CallError::Unsent(_) | CallError::Denied(_))
            || self.is_final()
            || self.is_unauthenticated()
            || self.is_crowded()
    }

    /// Whether the member has too much to do: another one has no less.
    pub(super) fn is_crowded(&self) -> bool {
        self.says("too many requests")
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Unsent(why) | CallError::Denied(why) | CallError::Lost(why) => f.write_str(why),
            CallError::TooLarge => f.write_str("an answer of etcd is too large"),
            CallError::Refused { message, .. } => f.write_str(message),
        }
    }
}

/// One connection to one member. Everything on it ends when it is closed.
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    driver: AbortHandle,
    /// Scheme and host, which each request names.
    base: String,
    token: Option<String>,
    /// How often something was heard from the other side.
    heard: AtomicU64,
    closed: AtomicBool,
}

impl Connection {
    /// Speaks HTTP/2 on a stream. `base` is scheme and host.
    pub(super) async fn open<S>(stream: S, base: String) -> Result<Connection, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW).enable_push(false);
        let (sender, connection) = builder.handshake(stream).await?;
        let driver = tokio::spawn(async move {
            // Those who wait for answers learn why it ended.
            let _ = connection.await;
        });
        let driver = driver.abort_handle();
        Ok(Connection { sender, driver, base, token: None, heard: AtomicU64::new(0), closed: AtomicBool::new(false) })
    }

    /// The same connection, with a token in each request.
    pub(super) fn with_token(self, token: String) -> Connection {
        let mut connection = self;
        connection.token = Some(token);
        connection
    }

    /// Whether it can't be used any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.driver.is_finished()
    }

    /// Ends it, and everything on it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.driver.abort();
    }

    /// How often something was heard from the other side so far.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Who is at the other end.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// One request, one answer.
    pub(super) async fn unary<Q: Message, A: Message + Default>(
        &self,
        method: &str,
        message: &Q,
    ) -> Result<A, CallError> {
        let (response, mut send) = self.send(method, HeaderMap::new()).await?;
        send.send_data(framed(message), true).map_err(lost)?;
        let mut messages = Messages::begin(response.await.map_err(lost)?)?;
        let answer = messages.next(self).await?;
        let answer = answer.ok_or_else(|| CallError::Lost("etcd gave no answer".into()))?;
        messages.end().await?;
        Ok(answer)
    }

    /// Requests and answers that go on until one side ends them. The first request begins it.
    pub(super) async fn stream<Q: Message>(&self, method: &str, first: &Q) -> Result<Stream, CallError> {
        let mut headers = HeaderMap::new();
        // A member that has lost its leader would keep silent; so it ends the stream.
        headers.insert("hasleader", http::HeaderValue::from_static("true"));
        let (response, mut send) = self.send(method, headers).await?;
        send.send_data(framed(first), false).map_err(lost)?;
        let messages = Messages::begin(response.await.map_err(lost)?)?;
        Ok(Stream { send, messages })
    }

    async fn send(
        &self,
        method: &str,
        headers: HeaderMap,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), CallError> {
        let unsent = |error: &dyn fmt::Display| CallError::Unsent(error.to_string());
        let mut request = Request::post(format!("{}{method}", self.base))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", "setpoint");
        if let Some(token) = &self.token {
            request = request.header("token", token);
        }
        let mut request = request.body(()).map_err(|error| unsent(&error))?;
        request.headers_mut().extend(headers);
        let mut sender = self.sender.clone().ready().await.map_err(|error| unsent(&error))?;
        sender.send_request(request, false).map_err(|error| unsent(&error))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// A stream of requests and answers.
pub(super) struct Stream {
    send: SendStream<Bytes>,
    messages: Messages,
}

impl Stream {
    /// Sends one more request.
    pub(super) fn send<Q: Message>(&mut self, message: &Q) -> Result<(), CallError> {
        self.send.send_data(framed(message), false).map_err(lost)
    }

    /// The next answer; none when the other side has ended it. May be dropped and called again.
    pub(super) async fn next<A: Message + Default>(&mut self, connection: &Connection) -> Result<Option<A>, CallError> {
        match self.messages.next(connection).await? {
            Some(answer) => Ok(Some(answer)),
            None => self.messages.end().await.map(|()| None),
        }
    }
}

/// The messages of an answer.
struct Messages {
    body: RecvStream,
    buffer: BytesMut,
}

impl Messages {
    fn begin(response: Response<RecvStream>) -> Result<Messages, CallError> {
        if response.status() != StatusCode::OK {
            return Err(CallError::Lost(format!("not an answer of etcd: {}", response.status())));
        }
        // An answer without any message has its status here.
        check(response.headers())?;
        Ok(Messages { body: response.into_body(), buffer: BytesMut::new() })
    }

    async fn next<A: Message + Default>(&mut self, connection: &Connection) -> Result<Option<A>, CallError> {
        loop {
            if let Some(message) = self.take()? {
                return A::decode(message).map(Some).map_err(|error| CallError::Lost(error.to_string()));
            }
            let Some(chunk) = self.body.data().await else { return Ok(None) };
            let chunk = chunk.map_err(lost)?;
            connection.heard.fetch_add(1, Ordering::Relaxed);
            self.body.flow_control().release_capacity(chunk.len()).map_err(lost)?;
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// A whole message, if there is one.
    fn take(&mut self) -> Result<Option<Bytes>, CallError> {
        let Some(header) = self.buffer.get(..FRAME_HEADER) else { return Ok(None) };
        let compressed = header[0] != 0;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if compressed {
            return Err(CallError::Lost("etcd compressed an answer that was not asked to be".into()));
        }
        if length > MESSAGE_BYTES_MAX {
            return Err(CallError::TooLarge);
        }
        if self.buffer.len() < FRAME_HEADER + length {
            self.buffer.reserve(FRAME_HEADER + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEADER);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Reads the status behind the last message.
    async fn end(&mut self) -> Result<(), CallError> {
        while let Some(chunk) = self.body.data().await {
            let chunk = chunk.map_err(lost)?;
            self.body.flow_control().release_capacity(chunk.len()).map_err(lost)?;
        }
        match self.body.trailers().await.map_err(lost)? {
            Some(trailers) => check(&trailers),
            None => Ok(()),
        }
    }
}

/// Whether these headers tell of a failure.
fn check(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status") else { return Ok(()) };
    match code.parse() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let message = percent::decoded(text("grpc-message").unwrap_or_default());
            Err(CallError::Refused { code, message: String::from_utf8_lossy(&message).into_owned() })
        }
        Err(_) => Err(CallError::Lost(format!("not a status of gRPC: {code}"))),
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_HEADER + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    frame.freeze()
}

fn lost(error: h2::Error) -> CallError {
    CallError::Lost(format!("the connection to etcd was lost: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_what_etcd_said() {
        let mut headers = HeaderMap::new();
        assert_eq!(check(&headers), Ok(()));
        headers.insert("grpc-status", "0".parse().unwrap());
        assert_eq!(check(&headers), Ok(()));
        headers.insert("grpc-status", "11".parse().unwrap());
        headers.insert("grpc-message", "mvcc: gone%0Afor ever".parse().unwrap());
        let refused = check(&headers).unwrap_err();
        assert_eq!(refused.to_string(), "mvcc: gone\nfor ever");
        assert!(refused.is_final());
        headers.insert("grpc-status", "14".parse().unwrap());
        assert!(!check(&headers).unwrap_err().is_undone());
    }
}
