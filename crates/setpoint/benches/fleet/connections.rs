//! What it costs to let vehicles in and to keep them connected: each has a certificate of its own, and a WebSocket over mutual TLS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use setpoint_fleet::simulate::{Faults, Fleet, Options, Papers, Tally, enrol_vehicles, over_sockets};
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Hello, PROTOCOL_VERSION, Report, Said};
use setpoint_runtime::clock::Clock;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::world::World;

/// How long it takes until nothing is left to do after many vehicles have come.
const SETTLING: Duration = Duration::from_secs(10);

pub type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Lets as many vehicles in as there are and connects them, one socket for each, to a hub that is killed in the end.
pub async fn measure(vehicles: usize) {
    let limit = getrlimit(Resource::Nofile);
    // Where it can't be raised, it is enough or the sockets tell.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let mut world = World::with_hub().await;
    let (options, hubs, authority) = (options(vehicles), [world.hub().to_owned()], world.authority());
    let start = Instant::now();
    let issued = enrol_vehicles(&world.client, &options, &hubs, &authority).await.expect("they are let in");
    let took = start.elapsed().as_secs_f64();
    println!("{vehicles} vehicles made and enrolled by token in {took:.1} s: {:.0} a second", vehicles as f64 / took);
    sleep(SETTLING).await;

    let (before, cpu, start) = (world.part_resident(), world.part_cpu(), Instant::now());
    let (linked_in, mut linked) = watch::channel(0);
    let papers = Papers::of(&issued, &authority).expect("certificates");
    let running = tokio::spawn(async move {
        let clock = Clock::starting_at(Timestamp::now());
        let mut fleet = Fleet::new(options, clock.wall());
        let told = |tally: &Tally| {
            linked_in.send_replace(tally.linked);
        };
        over_sockets(&mut fleet, &papers, &hubs, clock, told).await;
    });
    linked.wait_for(|count| *count == vehicles).await.expect("it is told");
    let (took, cpu) = (start.elapsed(), world.part_cpu() - cpu);
    sleep(SETTLING).await;
    println!(
        "{vehicles} connections over mutual TLS: {:.1} KB resident each, {:.0} a second with both ends here, {:.2} ms of the hub's CPU each, \
         the write about it included",
        (world.part_resident().saturating_sub(before)) as f64 / vehicles as f64 / 1000.0,
        vehicles as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1000.0 / vehicles as f64,
    );

    let start = Instant::now();
    world.restart_part();
    linked.wait_for(|count| *count < vehicles).await.expect("it is told");
    linked.wait_for(|count| *count == vehicles).await.expect("it is told");
    println!("the hub of {vehicles} connections killed: all are back {:.0} s later", start.elapsed().as_secs_f64());
    running.abort();
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
