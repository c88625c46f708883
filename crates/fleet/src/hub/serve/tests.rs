//! Handshakes: who comes back, who says nothing, and who has no certificate.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;

/// An authority, and a hub's credentials by it.
struct Pki {
    issuer: Issuer<'static, KeyPair>,
    credentials: Credentials,
}

impl Pki {
    fn new() -> Pki {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&own, &issuer).unwrap().pem();
        Pki { issuer, credentials: Credentials { certificate, key: own.serialize_pem(), authority } }
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(self.credentials.config().unwrap()))
    }

    /// A client with a vehicle's certificate, or without any.
    fn client(&self, name: Option<&str>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.credentials.authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let config = match name {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = KeyPair::generate().unwrap();
                let mut params = CertificateParams::default();
                params.distinguished_name.push(DnType::CommonName, name);
                params.distinguished_name.push(DnType::OrganizationName, "system:vehicles");
                let certificate = params.signed_by(&key, &self.issuer).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

async fn connect(connector: &TlsConnector, listener: &TcpListener) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

/// Connects once; whether the whole handshake was done, and who the hub takes it for.
async fn meet(
    connector: &TlsConnector,
    acceptor: &TlsAcceptor,
    listener: &TcpListener,
) -> (HandshakeKind, Option<Caller>) {
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        // What it takes to come back is sent after the handshake, with the first bytes.
        stream.write_all(b"x").await.unwrap();
        stream
    };
    let (mut client, server) = tokio::join!(connect(connector, listener), accepting);
    client.read_u8().await.unwrap();
    (client.get_ref().1.handshake_kind().unwrap(), caller(&server, 0))
}

#[tokio::test]
async fn a_vehicle_that_comes_back_is_known_without_a_whole_handshake() {
    let (pki, listener) = (Pki::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (acceptor, vehicle) = (pki.acceptor(), pki.client(Some("system:vehicle:default:v-1")));
    let mut keys = Vec::new();
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
        let (kind, caller) = meet(&vehicle, &acceptor, &listener).await;
        let Some(Caller::Known(Party::Vehicle(name), credential)) = caller else { panic!("it is not known") };
        assert_eq!((kind, name.to_string().as_str()), (expected, "default/v-1"));
        keys.push(credential.key);
    }
    keys.dedup();
    assert_eq!(keys.len(), 1, "the key of a session that is resumed is that of the first");
}

#[tokio::test]
async fn who_has_no_certificate_is_nobody_and_who_is_no_vehicle_is_not_let_in() {
    let (pki, listener) = (Pki::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let acceptor = pki.acceptor();
    let (_, nobody) = meet(&pki.client(None), &acceptor, &listener).await;
    assert!(matches!(nobody, Some(Caller::Nobody)));
    let (_, admin) = meet(&pki.client(Some("kubernetes-admin")), &acceptor, &listener).await;
    assert!(admin.is_none());
}

#[tokio::test]
async fn a_certificate_whose_time_is_over_brings_nobody_in_again() {
    let (pki, listener) = (Pki::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let acceptor = pki.acceptor();
    let vehicle = pki.client(Some("system:vehicle:default:v-1"));
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.unwrap()
    };
    let (_client, server) = tokio::join!(connect(&vehicle, &listener), accepting);
    let Some(Caller::Known(_, credential)) = caller(&server, 0) else { panic!("it is not known") };
    assert!(caller(&server, credential.until).is_some());
    assert!(caller(&server, credential.until + 1).is_none());
}

/// With one place for handshakes, somebody who connects and says nothing doesn't hold it.
#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let (pki, listener) = (Pki::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (acceptor, vehicle) = (pki.acceptor(), pki.client(Some("system:vehicle:default:v-1")));
    let handshakes = Arc::new(Semaphore::new(1));
    let silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (waiting, _) = listener.accept().await.unwrap();
    let waits = handshake(waiting, acceptor.clone(), handshakes.clone());
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        handshake(stream, acceptor, handshakes).await.expect("a handshake")
    };
    tokio::select! {
        _ = waits => panic!("who says nothing has no handshake"),
        (_client, server) = async { tokio::join!(connect(&vehicle, &listener), accepting) } => {
            assert!(caller(&server, 0).is_some());
        }
    }
    drop(silent);
}
