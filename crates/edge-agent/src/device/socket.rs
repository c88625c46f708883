//! A session over a WebSocket.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Said, ToVehicle, Told};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::link::{Ending, Heard, Link};
use super::wire::{Stream, at};

/// Where the hub takes WebSockets.
const PATH: &str = "/v1/connect";

/// How long the hub may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

type Socket = WebSocketStream<Box<dyn Stream>>;

/// One session, from the connection to its end.
pub async fn session(link: &mut Link, hub: &str) -> Ending {
    match open(link, hub).await {
        Ok(socket) => converse(link, socket).await,
        Err(ending) => ending,
    }
}

/// A session on an open connection.
async fn converse(link: &mut Link, mut socket: Socket) -> Ending {
    let Some(hello) = link.hello().await else { return Ending::Ended("the agent ends".into()) };
    let seq = hello.report.as_ref().map_or(0, |report| report.seq);
    link.reports.mark_unchanged();
    if let Err(error) = say(&mut socket, Said::Hello(hello)).await {
        return Ending::Unreached(error.to_string());
    }
    link.has_sent(seq);
    // Until the hub says how often it pings.
    let mut patience = ANSWER_LIMIT;
    loop {
        let frame = tokio::select! {
            frame = timeout(patience, socket.next()) => match frame {
                Err(_) => return Ending::Ended("nothing was heard of the hub".into()),
                Ok(None) => return Ending::Ended("the hub closed the connection".into()),
                Ok(Some(Err(error))) => return Ending::Ended(error.to_string()),
                Ok(Some(Ok(Message::Binary(bytes)))) => ToVehicle::read(&bytes),
                Ok(Some(Ok(_))) => continue,
            },
            changed = link.reports.changed() => {
                if changed.is_err() {
                    return Ending::Ended("the agent ends".into());
                }
                let report = link.reports.borrow_and_update().clone();
                let Some(report) = report else { continue };
                let seq = report.seq;
                if let Err(error) = say(&mut socket, Said::Report(report)).await {
                    return Ending::Ended(error.to_string());
                }
                link.has_sent(seq);
                continue;
            }
        };
        let heard = match frame.map(|frame| frame.told) {
            Err(error) => return Ending::Ended(error.to_string()),
            Ok(Some(Told::Welcome(welcome))) => {
                patience = Duration::from_secs(u64::from(welcome.ping_seconds.clamp(1, 3600))) * 3;
                Link::welcomed(&welcome)
            }
            Ok(Some(Told::Desired(desired))) => Heard::Told(desired),
            Ok(Some(Told::Ping(number))) => {
                if let Err(error) = say(&mut socket, Said::Pong(number)).await {
                    return Ending::Ended(error.to_string());
                }
                continue;
            }
            Ok(Some(Told::Goodbye(goodbye))) => {
                return Ending::Goodbye(Duration::from_millis(goodbye.retry_within_ms.into()));
            }
            Ok(None) => continue,
        };
        if link.heard.send(heard).await.is_err() {
            return Ending::Ended("the agent ends".into());
        }
    }
}

async fn open(link: &Link, hub: &str) -> Result<Socket, Ending> {
    let unreached = |error: &dyn std::fmt::Display| Ending::Unreached(error.to_string());
    let url = at(hub, PATH).map_err(|error| unreached(&error))?;
    let stream = link.wire.connect(&url).await.map_err(|error| unreached(&error))?;
    // The default of the library keeps 128 KiB for each connection.
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * FRAME_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let secure = url.to_string().replacen("http", "ws", 1);
    let opening = client_async_with_config(secure, stream, Some(config));
    match timeout(ANSWER_LIMIT, opening).await {
        Err(_) => Err(Ending::Refused("the hub took too long to answer".into())),
        Ok(Ok((socket, _))) => Ok(socket),
        // The hub itself, which is too busy or doesn't know the vehicle: a long poll would be told the same.
        Ok(Err(Error::Http(answer))) if is_of_the_hub(answer.status()) => Err(unreached(&answer.status())),
        Ok(Err(error)) => Err(Ending::Refused(error.to_string())),
    }
}

fn is_of_the_hub(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN)
}

async fn say(socket: &mut Socket, said: Said) -> Result<(), Error> {
    socket.send(Message::binary(FromVehicle::of(said).bytes())).await
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use setpoint_fleet_protocol::{Hello, Welcome};
    use tokio::sync::{mpsc, watch};
    use tokio::time::Instant;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;
    use crate::device::config::Transport;
    use crate::device::wire::Wire;

    /// A network that lets nothing of the hub through any more is found out by the silence, whatever the vehicle itself still says.
    #[tokio::test(start_paused = true)]
    async fn a_vehicle_that_hears_nothing_of_the_hub_for_three_pings_ends_the_session() {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let ours: Box<dyn Stream> = Box::new(ours);
        let socket = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
        let mut hub = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        let (heard, mut hears) = mpsc::channel(8);
        let (reports_in, reports) = watch::channel(None);
        let mut link = Link {
            hubs: vec![String::new()],
            transport: Transport::WebSocket,
            wire: Wire::plain(PathBuf::new()),
            heard,
            reports,
            sent: watch::channel(0).0,
            hub: watch::channel(String::new()).0,
        };
        let told = |told| Message::binary(ToVehicle::of(told).bytes());
        let hub = async {
            hub.next().await.expect("a hello").expect("a message");
            let welcome = Welcome { protocol: 1, ping_seconds: 60, ..Welcome::default() };
            hub.send(told(Told::Welcome(welcome))).await.expect("it is sent");
            tokio::time::sleep(Duration::from_secs(100)).await;
            hub.send(told(Told::Ping(1))).await.expect("it is sent");
            // From now on its words get lost, and those of the vehicle don't.
            loop {
                hub.next().await.expect("the vehicle is there").expect("a message");
            }
        };
        let agent = async {
            loop {
                match hears.recv().await {
                    Some(Heard::Opening(reply)) => drop(reply.send(Hello::default())),
                    Some(_) => drop(reports_in.send(Some(Default::default()))),
                    None => std::future::pending().await,
                }
            }
        };
        let start = Instant::now();
        let ending = tokio::select! {
            ending = converse(&mut link, socket) => ending,
            () = hub => panic!("the hub ended"),
            () = agent => panic!("the agent ended"),
        };
        assert!(matches!(ending, Ending::Ended(why) if why == "nothing was heard of the hub"));
        assert_eq!(start.elapsed().as_secs(), 100 + 180);
    }
}
