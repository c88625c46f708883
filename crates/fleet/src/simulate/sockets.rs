//! A simulated fleet of which each vehicle has a certificate and a socket of its own, as real ones do.

use std::io;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rustls::ClientConfig;
use rustls::client::Resumption;
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, ToVehicle, Told};
use setpoint_runtime::clock::Clock;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::drive::{PAUSE_MAX, Socket, open, papers, pause, trusting};
use super::{Fleet, Tally};
use crate::certificate::Issued;

/// Connections that are being opened at once: a fleet that comes back together should not starve the vehicles that are there.
const OPENED_AT_ONCE: usize = 32;

/// What was heard and isn't looked at yet, of all vehicles together. Sockets wait when there is more.
const HEARD_MAX: usize = 1024;

/// Frames of a vehicle that aren't sent yet. It says few, so one that has more is cut off.
const UNSENT_MAX: usize = 16;

/// What the connections of one vehicle are opened with.
#[derive(Clone)]
pub struct Papers {
    config: Arc<ClientConfig>,
}

impl Papers {
    /// Those of each vehicle; hubs have certificates of this authority, in PEM.
    pub fn of(issued: &[Issued], authority: &str) -> io::Result<Vec<Papers>> {
        let trusting = trusting(authority)?;
        let one = |issued: &Issued| {
            let (chain, key) = papers(issued)?;
            let mut config = trusting.clone().with_client_auth_cert(chain, key).map_err(io::Error::other)?;
            // Each comes back to one hub, with one ticket.
            config.resumption = Resumption::in_memory_sessions(1);
            Ok(Papers { config: Arc::new(config) })
        };
        issued.iter().map(one).collect()
    }
}

/// What happened on the socket of a vehicle. Sockets are numbered: what is left of an old one doesn't count.
enum Happened {
    Opened { number: u32, socket: u64, outgoing: mpsc::Sender<Vec<u8>> },
    NotOpened { number: u32 },
    Heard { number: u32, socket: u64, told: Told },
    Ended { number: u32, socket: u64 },
}

/// Runs a fleet over sockets, one for each vehicle, at hubs that are `HOST:PORT` each. Those that end are opened again. `told` hears how it
/// is doing about once a second.
pub async fn over_sockets(
    fleet: &mut Fleet,
    papers: &[Papers],
    hubs: &[String],
    clock: Clock,
    mut told: impl FnMut(&Tally),
) {
    let (happened_in, mut happened) = mpsc::channel(HEARD_MAX);
    let places = Arc::new(Semaphore::new(OPENED_AT_ONCE));
    let mut sockets = Sockets { open: papers.iter().map(|_| None).collect(), tasks: JoinSet::new(), last: 0 };
    let mut last_told = clock.now();
    fleet.part(clock.wall());
    loop {
        fleet.advance(clock.wall());
        while let Some((number, failed)) = fleet.calling() {
            let (at, turn) = (number as usize, number as usize + usize::from(failed));
            let (papers, hub) = (papers[at].clone(), hubs[turn % hubs.len()].clone());
            sockets.last += 1;
            let (socket, places, happened) = (sockets.last, places.clone(), happened_in.clone());
            sockets.tasks.spawn(async move {
                let call = Call { number, socket, happened };
                call.run(papers, &hub, &places).await;
            });
        }
        sockets.send(fleet, clock);
        while let Some(number) = fleet.leaving() {
            sockets.open[number as usize] = None;
        }
        while sockets.tasks.try_join_next().is_some() {}
        if clock.now().saturating_duration_since(last_told) >= PAUSE_MAX {
            last_told = clock.now();
            told(&fleet.tally());
        }
        tokio::select! {
            biased;
            Some(first) = happened.recv() => {
                sockets.take(fleet, first, clock);
                // What else is there is taken along.
                for _ in 0..HEARD_MAX {
                    let Ok(next) = happened.try_recv() else { break };
                    sockets.take(fleet, next, clock);
                }
            }
            () = sleep(pause(fleet, clock.wall())) => {}
        }
    }
}

/// The sockets of all vehicles.
struct Sockets {
    /// That of each vehicle: its number, and where frames go.
    open: Vec<Option<(u64, mpsc::Sender<Vec<u8>>)>>,
    tasks: JoinSet<()>,
    last: u64,
}

impl Sockets {
    /// Hands out what vehicles say.
    fn send(&mut self, fleet: &mut Fleet, clock: Clock) {
        while let Some(frame) = fleet.say() {
            let Some(number) = fleet.speaker(&frame) else { continue };
            let open = &mut self.open[number as usize];
            if open.as_ref().is_some_and(|(_, outgoing)| outgoing.try_send(frame.bytes()).is_err()) {
                *open = None;
                fleet.unlinked(number, clock.wall());
            }
        }
    }

    fn take(&mut self, fleet: &mut Fleet, happened: Happened, clock: Clock) {
        let is_its = |open: &Option<(u64, _)>, socket: u64| open.as_ref().is_some_and(|(known, _)| *known == socket);
        match happened {
            Happened::Opened { number, socket, outgoing } => {
                if fleet.linked(number, clock.wall()) {
                    self.open[number as usize] = Some((socket, outgoing));
                }
            }
            Happened::NotOpened { number } => fleet.unlinked(number, clock.wall()),
            Happened::Heard { number, socket, told } => {
                if is_its(&self.open[number as usize], socket) {
                    fleet.hear_own(number, told, clock.wall());
                }
            }
            Happened::Ended { number, socket } => {
                if is_its(&self.open[number as usize], socket) {
                    self.open[number as usize] = None;
                    fleet.unlinked(number, clock.wall());
                }
            }
        }
    }
}

/// A socket of one vehicle, from the first try to its end.
struct Call {
    number: u32,
    socket: u64,
    happened: mpsc::Sender<Happened>,
}

impl Call {
    async fn run(self, papers: Papers, hub: &str, places: &Semaphore) {
        let Call { number, socket, .. } = self;
        let opened = {
            let _place = places.acquire().await;
            // The default of the library keeps 128 KiB for each connection.
            let config = WebSocketConfig::default()
                .read_buffer_size(4096)
                .write_buffer_size(0)
                .max_write_buffer_size(2 * FRAME_BYTES_MAX);
            open(hub, papers.config, config).await
        };
        let Ok(stream) = opened else { return self.say(Happened::NotOpened { number }).await };
        let (outgoing, frames) = mpsc::channel(UNSENT_MAX);
        self.say(Happened::Opened { number, socket, outgoing }).await;
        self.converse(stream, frames).await;
        self.say(Happened::Ended { number, socket }).await;
    }

    async fn converse(&self, mut stream: Socket, mut frames: mpsc::Receiver<Vec<u8>>) {
        let Call { number, socket, .. } = *self;
        loop {
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => if stream.send(Message::binary(frame)).await.is_err() { return },
                    // It has no use for it any more, and its end is told by the end of the connection.
                    None => return,
                },
                message = stream.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        let Ok(ToVehicle { told: Some(told), .. }) = ToVehicle::read(&bytes) else { continue };
                        self.say(Happened::Heard { number, socket, told }).await;
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => {}
                },
            }
        }
    }

    async fn say(&self, happened: Happened) {
        // Nobody listens any more once the simulation ends.
        let _ = self.happened.send(happened).await;
    }
}
