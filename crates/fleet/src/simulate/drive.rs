//! A simulated fleet on a link: in memory, or over a socket as a gateway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, ToVehicle};
use setpoint_runtime::clock::Clock;
use setpoint_runtime::retry;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Fleet, Options, Tally};
use crate::certificate::Issued;
use crate::hub::{GATEWAY_LABEL, Link};
use crate::kinds::{Vehicle, VehicleSpec};

/// A connection that frames go over.
pub(super) type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Vehicles that are made at once.
const AT_ONCE: usize = 32;

/// The longest pause without a look.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Frames that are sent in a row before others are heard.
const SENT_IN_A_ROW: usize = 256;

/// How a gateway reaches a hub.
#[derive(Clone)]
pub struct Connection {
    /// `HOST:PORT`.
    pub hub: String,
    /// The gateway's certificate and key.
    pub issued: Issued,
    /// The authority of the hub's certificate, in PEM.
    pub authority: String,
}

/// Makes the vehicles known to the API server; those that are there are left as they are.
pub async fn make_vehicles(client: &Client, options: &Options, gateway: &str) -> Result<(), kube::Error> {
    let api: Api<Vehicle> = Api::namespaced(client.clone(), &options.namespace);
    let make = |number| {
        let api = api.clone();
        async move {
            let mut vehicle = Vehicle::new(
                &options.name(number),
                VehicleSpec { hardware_id: options.hardware_id.clone(), ..VehicleSpec::default() },
            );
            vehicle.metadata.labels = Some([(GATEWAY_LABEL.to_owned(), gateway.to_owned())].into());
            match api.create(&PostParams::default(), &vehicle).await {
                Err(error) if !retry::is_already_exists(&error) => Err(error),
                _ => Ok(()),
            }
        }
    };
    stream::iter((0..options.count).map(make)).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// Runs a fleet on a link of a hub in the same process, until the link ends or `stop` says so.
pub async fn over_memory(fleet: &mut Fleet, link: &Link, clock: Clock, mut stop: impl FnMut(&Fleet) -> bool) {
    fleet.connected(clock.wall());
    while !stop(fleet) {
        fleet.advance(clock.wall());
        while let Some(frame) = fleet.say() {
            if link.hear(frame).is_err() {
                return fleet.disconnected(clock.wall());
            }
        }
        tokio::select! {
            biased;
            frame = link.next() => match frame {
                Some(frame) => fleet.hear(frame, clock.wall()),
                None => return fleet.disconnected(clock.wall()),
            },
            () = sleep(pause(fleet, clock.wall())) => {}
        }
    }
}

/// Runs a fleet over a socket; after each connection that ends it connects again. `told` hears how it is doing about once a second.
pub async fn over_socket(fleet: &mut Fleet, connection: &Connection, clock: Clock, mut told: impl FnMut(&Tally)) {
    loop {
        if let Err(error) = session(fleet, connection, clock, &mut told).await {
            tracing::debug!(%error, "the session with the hub ended");
        }
        fleet.disconnected(clock.wall());
        told(&fleet.tally());
        // Vehicles go on without the hub.
        sleep(PAUSE_MAX).await;
        fleet.advance(clock.wall());
    }
}

async fn session(
    fleet: &mut Fleet,
    connection: &Connection,
    clock: Clock,
    told: &mut impl FnMut(&Tally),
) -> io::Result<()> {
    let mut socket = open(&connection.hub, tls(connection)?, WebSocketConfig::default()).await?;
    fleet.connected(clock.wall());
    let mut last_told = clock.now();
    loop {
        fleet.advance(clock.wall());
        let mut sent = 0;
        while sent < SENT_IN_A_ROW
            && let Some(frame) = fleet.say()
        {
            socket.feed(Message::binary(frame.bytes())).await.map_err(io::Error::other)?;
            sent += 1;
        }
        if sent > 0 {
            socket.flush().await.map_err(io::Error::other)?;
        }
        if clock.now().saturating_duration_since(last_told) >= PAUSE_MAX {
            last_told = clock.now();
            told(&fleet.tally());
        }
        let pause = if sent == SENT_IN_A_ROW { Duration::ZERO } else { pause(fleet, clock.wall()) };
        tokio::select! {
            biased;
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    let frame = ToVehicle::read(&bytes).map_err(io::Error::other)?;
                    fleet.hear(frame, clock.wall());
                }
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(io::Error::other(error)),
            },
            () = sleep(pause) => {}
        }
    }
}

/// A WebSocket to a hub at `HOST:PORT`.
pub(super) async fn open(hub: &str, tls: Arc<ClientConfig>, config: WebSocketConfig) -> io::Result<Socket> {
    let stream = secure(hub, tls).await?;
    let config = config.max_message_size(Some(FRAME_BYTES_MAX)).max_frame_size(Some(FRAME_BYTES_MAX));
    let url = format!("wss://{hub}/v1/connect");
    let (socket, _) = client_async_with_config(url, stream, Some(config)).await.map_err(io::Error::other)?;
    Ok(socket)
}

/// A connection to a hub at `HOST:PORT`.
pub(super) async fn secure(hub: &str, tls: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(hub).await?;
    stream.set_nodelay(true)?;
    let host = hub.rsplit_once(':').map_or(hub, |(host, _)| host);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(tls).connect(name, stream).await
}

pub(super) fn pause(fleet: &Fleet, now: Timestamp) -> Duration {
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    fleet.next_due().map_or(PAUSE_MAX, until).min(PAUSE_MAX)
}

fn tls(connection: &Connection) -> io::Result<Arc<ClientConfig>> {
    let (chain, key) = papers(&connection.issued)?;
    let config = trusting(&connection.authority)?.with_client_auth_cert(chain, key).map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

/// One that takes hubs for what they say if this authority, in PEM, vouches for them.
pub(super) fn trusting(authority: &str) -> io::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(authority.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    Ok(builder.map_err(io::Error::other)?.with_root_certificates(roots))
}

/// A certificate and its key, as TLS takes them.
pub(super) fn papers(issued: &Issued) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(io::Error::other)?;
    Ok((chain.map_err(io::Error::other)?, key))
}
