//! Connections to the hub and to where firmware is: TCP, TLS with the vehicle's certificate, HTTP/1.1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Config;

/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// A byte stream, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects as the vehicle. Clones change their certificate together.
#[derive(Clone)]
pub struct Wire {
    files: Files,
    tls: Arc<RwLock<TlsConnector>>,
}

/// Where the certificates are.
#[derive(Clone)]
struct Files {
    ca: PathBuf,
    /// The vehicle's own, and its key.
    own: Option<(PathBuf, PathBuf)>,
}

impl Wire {
    /// With the certificates of a configuration.
    pub fn new(config: &Config) -> Result<Wire, String> {
        Wire::of(Files { ca: config.ca.clone(), own: Some((config.certificate.clone(), config.key.clone())) })
    }

    /// For a vehicle that has no certificate yet.
    pub fn without_certificate(config: &Config) -> Result<Wire, String> {
        Wire::of(Files { ca: config.ca.clone(), own: None })
    }

    /// The same hubs, met without a certificate.
    pub fn anonymous(&self) -> Result<Wire, String> {
        Wire::of(Files { ca: self.files.ca.clone(), own: None })
    }

    /// One that reaches nobody over TLS, for tests.
    #[cfg(test)]
    pub fn plain(ca: PathBuf) -> Wire {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let config = config.expect("TLS 1.3").with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let tls = Arc::new(RwLock::new(TlsConnector::from(Arc::new(config))));
        Wire { files: Files { ca, own: None }, tls }
    }

    fn of(files: Files) -> Result<Wire, String> {
        let tls = Arc::new(RwLock::new(files.read()?));
        Ok(Wire { files, tls })
    }

    /// Reads the certificate again: connections from now on are made with it.
    pub fn renew(&self) -> Result<(), String> {
        let tls = self.files.read()?;
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        Ok(())
    }

    /// Connects to where a URL points to.
    pub async fn connect(&self, url: &Uri) -> io::Result<Box<dyn Stream>> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {why}"));
        let host = url.host().ok_or_else(|| wrong("it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("only http and https are known")),
        };
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let connecting = async {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            if !is_secure {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong("its host is no name"))?;
            // The same settings for all connections: they keep what it takes to come back without a whole handshake.
            let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(Box::new(tls.connect(name, stream).await?) as Box<dyn Stream>)
        };
        timeout(CONNECT_LIMIT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a request on a connection of its own.
    pub async fn request(&self, url: &Uri, mut request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>> {
        let stream = self.connect(url).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends with the body of the answer, or when that is dropped.
        tokio::spawn(connection);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(io::Error::other)?;
        let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
        request.headers_mut().insert(header::HOST, host.parse().map_err(io::Error::other)?);
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

impl Files {
    fn read(&self) -> Result<TlsConnector, String> {
        let shown = |path: &Path, why: String| format!("can't use {}: {why}", path.display());
        let read = |path: &Path| fs::read(path).map_err(|error| shown(path, error.to_string()));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&read(&self.ca)?) {
            let certificate = certificate.map_err(|error| shown(&self.ca, error.to_string()))?;
            roots.add(certificate).map_err(|error| shown(&self.ca, error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.own else {
            return Ok(TlsConnector::from(Arc::new(builder.with_no_client_auth())));
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
        let chain = chain.map_err(|error| shown(certificate, error.to_string()))?;
        let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| shown(key, error.to_string()))?;
        let tls = builder.with_client_auth_cert(chain, private);
        tls.map(|tls| TlsConnector::from(Arc::new(tls))).map_err(|error| shown(certificate, error.to_string()))
    }
}

/// A path on a hub.
pub fn at(hub: &str, path: &str) -> io::Result<Uri> {
    format!("{}{path}", hub.trim_end_matches('/')).parse().map_err(io::Error::other)
}
