//! A client that can misbehave: any protocol, any certificate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::server::{Authority, PATIENCE, Pair, Server};

/// What the client says that it can speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    Http1,
    Http2,
    None,
}

pub struct Client {
    address: SocketAddr,
    roots: RootCertStore,
    alpn: Alpn,
    certificate: Option<Pair>,
    versions: &'static [&'static SupportedProtocolVersion],
}

impl Client {
    pub fn new(server: &Server) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(server.authority.certificate.clone()).unwrap();
        Client { address: server.address, roots, alpn: Alpn::Http2, certificate: None, versions: rustls::ALL_VERSIONS }
    }

    /// Trusts this authority instead of the server's first.
    pub fn trusting(self, authority: &Authority) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).unwrap();
        Client { roots, ..self }
    }

    pub fn alpn(self, alpn: Alpn) -> Client {
        Client { alpn, ..self }
    }

    pub fn certificate(self, certificate: Pair) -> Client {
        Client { certificate: Some(certificate), ..self }
    }

    pub fn versions(self, versions: &'static [&'static SupportedProtocolVersion]) -> Client {
        Client { versions, ..self }
    }

    pub async fn connect(self) -> io::Result<TlsStream<TcpStream>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(self.roots);
        let mut config = match self.certificate {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match self.alpn {
            Alpn::Http1 => vec![b"http/1.1".to_vec()],
            Alpn::Http2 => vec![b"h2".to_vec()],
            Alpn::None => Vec::new(),
        };
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
    }

    /// The body of the answer, by one connection.
    pub async fn get(self, path: &str) -> String {
        let alpn = self.alpn;
        let stream = self.connect().await.unwrap();
        if alpn == Alpn::Http2 {
            get(&mut http2(stream).await, path).await.unwrap()
        } else {
            let answer = raw(stream, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await;
            answer.split_once("\r\n\r\n").unwrap().1.to_owned()
        }
    }
}

/// A connection ready for requests. Its task ends with the sender or the server.
pub async fn http2(stream: TlsStream<TcpStream>) -> SendRequest<Full<Bytes>> {
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub async fn get(sender: &mut SendRequest<Full<Bytes>>, path: &str) -> hyper::Result<String> {
    let request = Request::get(format!("https://localhost{path}")).body(Full::default()).unwrap();
    let body = sender.send_request(request).await?.collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

/// Sends bytes as they are and reads until the server closes.
pub async fn raw(mut stream: TlsStream<TcpStream>, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    read_to_end(&mut stream).await
}

pub async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let read =
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the server does not close");
    if let Err(error) = read {
        // A server that closes while we still send resets the connection: what came before that counts.
        assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof), "{error}");
    }
    String::from_utf8(answer).unwrap()
}
