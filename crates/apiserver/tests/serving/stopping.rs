//! The end of a server: running requests are answered, new ones refused, nothing is left.

use std::time::Duration;

use setpoint_apiserver::serve::Limits;
use tokio::net::TcpStream;

use crate::client::{Alpn, Client, get, http2, raw};
use crate::server::{PATIENCE, Server};

/// Waits until nobody listens any more.
async fn refused(server: &Server) {
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it still accepts connections");
}

#[tokio::test]
async fn a_running_http2_request_is_answered_and_new_ones_are_refused() {
    let server = Server::start().await;
    let mut sender = http2(Client::new(&server).connect().await.unwrap()).await;
    let mut other = sender.clone();
    let running = tokio::spawn(async move { get(&mut sender, "/hold").await });
    server.gate.arrived.notified().await;
    server.begin_stop();
    refused(&server).await;
    let goaway = async { while get(&mut other, "/who").await.is_ok() {} };
    tokio::time::timeout(PATIENCE, goaway).await.expect("it still takes requests");
    server.gate.open.notify_one();
    assert_eq!(running.await.unwrap().unwrap(), "held");
    drop(other);
    server.stop().await;
}

#[tokio::test]
async fn a_running_http1_request_is_answered_and_its_connection_closed() {
    let server = Server::start().await;
    let stream = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
    let running = tokio::spawn(async move { raw(stream, "GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await });
    server.gate.arrived.notified().await;
    server.begin_stop();
    refused(&server).await;
    server.gate.open.notify_one();
    let answer = running.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("held"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let server = Server::with(Limits { grace: Duration::from_secs(3600), ..Limits::default() }).await;
    let mut http2 = http2(Client::new(&server).connect().await.unwrap()).await;
    get(&mut http2, "/who").await.unwrap();
    let mut http1 = Client::new(&server).alpn(Alpn::Http1).connect().await.unwrap();
    let head = "GET /who HTTP/1.1\r\nhost: a\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut http1, head.as_bytes()).await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut http1).await.unwrap();
    let silent = TcpStream::connect(server.address).await.unwrap();
    server.stop().await;
    drop((http2, http1, silent));
}

#[tokio::test]
async fn a_request_that_never_ends_is_dropped_when_the_grace_is_over() {
    let server = Server::with(Limits { grace: Duration::from_millis(20), ..Limits::default() }).await;
    let mut sender = http2(Client::new(&server).connect().await.unwrap()).await;
    let running = tokio::spawn(async move { get(&mut sender, "/hold").await });
    server.gate.arrived.notified().await;
    server.stop().await;
    assert!(running.await.unwrap().is_err());
}
