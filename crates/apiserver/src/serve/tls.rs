//! TLS: our certificate, and client certificates that are optional and never end a handshake.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

/// How connections are secured, and which client certificates are trusted.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    /// Checks a client certificate against the CA and the time, after the handshake.
    pub(super) clients: Arc<dyn ClientCertVerifier>,
    shown: Arc<Shown>,
}

impl Tls {
    /// Serves with a certificate chain and its key, and trusts client certificates that one of `client_cas` signed.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: Vec<CertificateDer<'static>>,
    ) -> Result<Tls, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let clients = client_verifier(client_cas, Arc::clone(&provider))?;
        let certified = CertifiedKey::from_der(chain, key, &provider)?;
        let shown = Arc::new(Shown(RwLock::new(Arc::new(certified))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(Arc::new(AnyCertificate(Arc::clone(&clients))))
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), clients, shown })
    }

    /// Shows another certificate to those who connect from now on.
    pub fn renew(&self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), rustls::Error> {
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certified);
        Ok(())
    }
}

/// The certificate of the moment, whatever name a client asks for.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn client_verifier(
    cas: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    cas.into_iter().try_for_each(|ca| roots.add(ca))?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))
}

/// Lets every certificate pass the handshake whose key the client proves to have.
///
/// Whether it is trusted is decided afterwards: a client with a foreign or an expired certificate gets an answer that says
/// so (401), where a failed handshake would leave it with a broken connection.
#[derive(Debug)]
struct AnyCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }
}
