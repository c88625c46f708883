//! A real server on a real socket, called by a real TLS client.

mod bounds;
mod callers;
mod client;
mod server;
mod stopping;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use client::{Alpn, Client, http2};
use server::Server;

#[tokio::test]
async fn both_protocols_are_spoken_as_the_client_prefers() {
    let server = Server::start().await;
    let check = async |alpn, expected: &str| {
        let answer = Client::new(&server).alpn(alpn).get("/who").await;
        assert!(answer.starts_with(expected), "{answer}");
    };
    check(Alpn::Http2, "HTTP/2.0 ").await;
    check(Alpn::Http1, "HTTP/1.1 ").await;
    check(Alpn::None, "HTTP/1.1 ").await;
    server.stop().await;
}

#[tokio::test]
async fn tls_1_2_is_enough() {
    let server = Server::start().await;
    static TLS12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let answer = Client::new(&server).versions(TLS12).get("/who").await;
    assert!(answer.starts_with("HTTP/2.0 nobody"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_tells_where_it_came_from() {
    let server = Server::start().await;
    let stream = Client::new(&server).connect().await.unwrap();
    let address = stream.get_ref().0.local_addr().unwrap();
    let mut sender = http2(stream).await;
    let request = Request::get("/who").body(Full::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap().collect().await.unwrap().to_bytes();
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    assert!(answer.ends_with(&format!("from {address}")), "{answer}");
    drop(sender);
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_pass_both_ways_unchanged() {
    let server = Server::start().await;
    let body = Bytes::from_iter((0..3 * 1024 * 1024_u32).map(|n| (n % 251) as u8));
    let mut sender = http2(Client::new(&server).connect().await.unwrap()).await;
    let request = Request::post("http://server/echo").body(Full::new(body.clone())).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.collect().await.unwrap().to_bytes(), body);
    drop(sender);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_can_be_upgraded() {
    let server = Server::start().await;
    let mut stream = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
    let head = "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    drop(stream);
    server.stop().await;
}
