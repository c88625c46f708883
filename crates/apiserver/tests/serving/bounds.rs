//! What happens at the bounds: a clear answer or a closed connection, never a stall.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use setpoint_apiserver::serve::{HEADER_TIMEOUT, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::client::{Alpn, Client, get, http2, raw, read_to_end};
use crate::server::{PATIENCE, Server};

#[tokio::test]
async fn a_header_that_is_too_large_is_answered_with_431() {
    let server = Server::start().await;
    let check = async |headers: String, expected: &str| {
        let stream = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
        let answer = raw(stream, &format!("GET /who HTTP/1.1\r\nconnection: close\r\n{headers}\r\n")).await;
        assert!(answer.starts_with(expected), "{answer}");
    };
    check(format!("a: {}\r\n", "x".repeat(100 * 1024)), "HTTP/1.1 200 ").await;
    check(format!("a: {}\r\n", "x".repeat(256 * 1024)), "HTTP/1.1 431 ").await;
    check("a: x\r\n".repeat(99), "HTTP/1.1 200 ").await;
    check("a: x\r\n".repeat(100), "HTTP/1.1 431 ").await;
    server.stop().await;
}

/// CVE-2019-16276: what could be read in two ways was read, by a proxy in one and by the server in the other.
#[tokio::test]
async fn a_request_that_can_be_read_in_two_ways_is_refused() {
    let server = Server::start().await;
    for headers in [
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length : 4\r\n",
        "content-length: +4\r\n",
        "content-length: 4, 5\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "a\rb: c\r\n",
        " folded: x\r\n",
    ] {
        let stream = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
        let answer = raw(stream, &format!("POST /who HTTP/1.1\r\nhost: a\r\n{headers}\r\nabcd")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{headers:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{headers:?}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_header_list_that_is_too_large_is_answered_with_431() {
    let server = Server::start().await;
    let mut sender = http2(Client::new(&server).connect().await.unwrap()).await;
    let mut check = async |bytes: usize, expected| {
        let request = Request::get("/who").header("a", "x".repeat(bytes)).body(Full::default()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), expected);
    };
    check(100 * 1024, StatusCode::OK).await;
    check(128 * 1024, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE).await;
    check(0, StatusCode::OK).await;
    drop(sender);
    server.stop().await;
}

/// Sends the beginning of something and waits until the server has had enough; time is virtual from then on.
async fn check_silence(alpn: Alpn, beginning: &str) {
    let server = Server::start().await;
    let mut stream = Client::new(&server).alpn(alpn).connect().await.unwrap();
    stream.write_all(beginning.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::pause();
    let start = Instant::now();
    let mut answer = Vec::new();
    // An error is an end as well: the server need not say goodbye to one who never finished a sentence.
    let _ = tokio::time::timeout(2 * HEADER_TIMEOUT, stream.read_to_end(&mut answer)).await.expect("it stays open");
    assert!(start.elapsed() > HEADER_TIMEOUT / 2, "closed too early: {:?}", start.elapsed());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test]
async fn a_slow_header_is_cut_off() {
    check_silence(Alpn::Http1, "GET /who HTTP/1.1\r\nhost: ").await;
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut_off() {
    check_silence(Alpn::Http1, "").await;
    check_silence(Alpn::Http2, "").await;
    check_silence(Alpn::Http2, "PRI * HTTP/2.0\r\n\r\nSM").await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    tokio::time::pause();
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_u8()).await.expect("it stays open");
    assert!(read.is_err());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_tls_is_closed() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it stays open");
    assert!(!answer.starts_with(b"HTTP"));
    server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_others_go_on() {
    let server = Server::with(Limits { connections: 1, ..Limits::default() }).await;
    let mut first = http2(Client::new(&server).connect().await.unwrap()).await;
    get(&mut first, "/who").await.unwrap();
    assert!(Client::new(&server).connect().await.is_err());
    get(&mut first, "/who").await.unwrap();
    drop(first);
    let later = async {
        while Client::new(&server).alpn(Alpn::Http1).connect().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, later).await.expect("the place is not given free");
    server.stop().await;
}

#[tokio::test]
async fn garbage_after_the_handshake_harms_nobody_else() {
    let server = Server::start().await;
    for alpn in [Alpn::Http1, Alpn::Http2] {
        let mut stream = Client::new(&server).alpn(alpn).connect().await.unwrap();
        stream.write_all(&[0xff; 512]).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it stays open");
    }
    let mut stream = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
    stream.write_all(b"BAD\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 400 "));
    assert!(Client::new(&server).get("/who").await.contains("nobody"));
    server.stop().await;
}

/// A client that opens streams and takes each back at once makes work for nothing (CVE-2023-44487).
#[tokio::test]
async fn a_client_that_only_opens_and_resets_streams_is_sent_away() {
    let server = Server::start().await;
    let mut stream = Client::new(&server).connect().await.unwrap();
    let frame = |kind: u8, flags: u8, id: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
    };
    const GO_AWAY: u8 = 7;
    let mut flood = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    for id in (1..20_000).step_by(2) {
        // GET https / of nobody in particular, whole in one frame, then a reset for no reason.
        flood.extend(frame(1, 0b101, id, &[0x82, 0x87, 0x84, 0x41, 1, b'a']));
        flood.extend(frame(3, 0, id, &8_u32.to_be_bytes()));
    }
    // The server may hang up before it has taken everything.
    let _ = stream.write_all(&flood).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it stays open");
    let mut rest = answer.as_slice();
    let mut sent_away = false;
    while let [a, b, c, kind, ..] = *rest {
        sent_away |= kind == GO_AWAY;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    assert!(sent_away, "it was served all of it: {} bytes", answer.len());
    let other = Client::new(&server).get("/who").await;
    assert!(other.starts_with("HTTP/2.0 nobody"), "{other}");
    server.stop().await;
}
