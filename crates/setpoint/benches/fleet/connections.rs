//! What a connection costs the hub: vehicles with a WebSocket over mutual TLS each.

use std::sync::Arc;
use std::time::Instant;

use futures_util::SinkExt;
use futures_util::stream::{self, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use setpoint_fleet::simulate::{Faults, Options, make_vehicles};
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Hello, PROTOCOL_VERSION, Report, Said};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::world::World;

/// Connections that are opened at once.
const AT_ONCE: usize = 32;

pub type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Opens as many connections as there are vehicles, one for each, and tells what is resident for each of them.
pub async fn measure(vehicles: usize) {
    let world = World::start(&[]).await;
    make_vehicles(&world.client, &options(vehicles), "sim").await.expect("they are made");
    let door = Door::of(&world).await;
    // What the first ones cost is not what each costs.
    let warm: Vec<Socket> = stream::iter(0..100.min(vehicles)).then(|_| door.open()).collect().await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let (before, cpu, start) = (world.server.resident(), world.server.cpu(), Instant::now());
    let open = |number: usize| {
        let door = &door;
        async move {
            let mut socket = door.open().await;
            socket.send(Message::binary(hello(number).bytes())).await.expect("it is sent");
            socket.next().await.expect("an answer").expect("a message");
            socket
        }
    };
    let sockets: Vec<Socket> = stream::iter(0..vehicles).map(open).buffer_unordered(AT_ONCE).collect().await;
    let took = start.elapsed();
    let cpu = world.server.cpu() - cpu;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    println!(
        "{vehicles} connections over mutual TLS: {:.1} KB resident each, {:.0} a second with both ends here, {:.2} ms of CPU each, the \
         write about it included",
        (world.server.resident().saturating_sub(before)) as f64 / vehicles as f64 / 1000.0,
        vehicles as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1000.0 / vehicles as f64,
    );
    drop((sockets, warm));
}

/// How simulated vehicles are called.
pub fn options(count: usize) -> Options {
    Options {
        namespace: "default".into(),
        prefix: "sim".into(),
        count,
        hardware_id: "sim-1".into(),
        initial_version: "1.0.0".into(),
        speed: 1.0,
        faults: Faults::default(),
        seed: 1,
    }
}

/// The first word of a vehicle.
pub fn hello(number: usize) -> FromVehicle {
    let report =
        Report { firmware_version: "1.0.0".into(), active_slot: "a".into(), healthy: true, ..Report::default() };
    let hello = Hello { protocol: PROTOCOL_VERSION, agent_version: "bench".into(), epoch: 1, report: Some(report) };
    FromVehicle { vehicle: format!("default/sim-{number}"), said: Some(Said::Hello(hello)) }
}

/// The way to the hub, as the gateway of all vehicles.
pub struct Door {
    hub: String,
    tls: TlsConnector,
}

impl Door {
    pub async fn of(world: &World) -> Door {
        let (issued, authority) = world.gateway().await;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.expect("a certificate")).expect("an authority");
        }
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.expect("certificates"), key)
            .expect("a certificate and its key");
        // Each connection is that of another vehicle: none has been here before.
        config.resumption = rustls::client::Resumption::disabled();
        Door { hub: world.hub().to_owned(), tls: TlsConnector::from(Arc::new(config)) }
    }

    pub async fn open(&self) -> Socket {
        let stream = TcpStream::connect(&self.hub).await.expect("the hub listens");
        stream.set_nodelay(true).expect("an open connection");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let stream = self.tls.connect(name, stream).await.expect("a handshake");
        let config = WebSocketConfig::default()
            .read_buffer_size(4096)
            .write_buffer_size(0)
            .max_write_buffer_size(2 * FRAME_BYTES_MAX);
        let url = format!("wss://{}/v1/connect", self.hub);
        client_async_with_config(url, stream, Some(config)).await.expect("a WebSocket").0
    }
}
