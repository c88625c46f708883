//! TLS: our certificate, and client certificates that are optional and never end a handshake.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio::sync::watch;

/// How connections are secured, and which client certificates are trusted: at the moment, for both can change while a server runs.
#[derive(Clone)]
pub struct Tls(watch::Sender<Arc<Present>>);

/// What holds at the moment.
pub(super) struct Present {
    pub(super) config: Arc<ServerConfig>,
    /// Checks a client certificate against the CAs and the time, after the handshake.
    pub(super) clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// Serves with a certificate chain and its key, and trusts client certificates that one of `client_cas` signed.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: Vec<CertificateDer<'static>>,
    ) -> Result<Tls, rustls::Error> {
        Ok(Tls(watch::Sender::new(Arc::new(Present::new(chain, key, client_cas)?))))
    }

    /// The same with others from now on. Who connects sees the new chain; who is connected with a certificate that none of
    /// `client_cas` signed is cut off.
    pub fn renew(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: Vec<CertificateDer<'static>>,
    ) -> Result<(), rustls::Error> {
        self.0.send_replace(Arc::new(Present::new(chain, key, client_cas)?));
        Ok(())
    }

    /// What holds at the moment, and whatever will.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Present>> {
        self.0.subscribe()
    }
}

impl Present {
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: Vec<CertificateDer<'static>>,
    ) -> Result<Present, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let clients = client_verifier(client_cas, Arc::clone(&provider))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(Arc::new(AnyCertificate(Arc::clone(&clients))))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Present { config: Arc::new(config), clients })
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
