//! The connection to the hub: one after another, for as long as the agent lives.

use std::time::Duration;

use ring::rand::SecureRandom;
use setpoint_fleet_protocol::{Desired, Hello, Report, Welcome};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::config::Transport;
use super::papers::Validity;
use super::wire::Wire;
use super::{poll, socket};

/// The first pause after a connection that failed, doubled with each in a row.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// WebSockets that were refused in a row before long polls are tried in their place.
const REFUSED_MAX: u32 = 2;
/// Sessions of long polls before WebSockets are tried again.
const POLLS_BEFORE_SOCKET: u32 = 10;

/// What the connection tells the agent.
pub enum Heard {
    /// A session is about to begin: with what?
    Opening(oneshot::Sender<Hello>),
    /// The hub welcomed the vehicle, says what time it is, and how long its certificate counts.
    Open(Validity),
    /// The hub says what should be.
    Told(Box<Desired>),
    /// The session has ended.
    Closed(String),
}

/// How a session ended.
pub enum Ending {
    /// There was none: the hub was not reached.
    Unreached(String),
    /// There was none: something on the way, or the hub, doesn't take this sort.
    Refused(String),
    /// There was one.
    Ended(String),
    /// The hub asked to come back within a time.
    Goodbye(Duration),
}

/// What a session needs.
pub struct Link {
    pub hubs: Vec<String>,
    pub transport: Transport,
    pub wire: Wire,
    pub heard: mpsc::Sender<Heard>,
    /// The latest report.
    pub reports: watch::Receiver<Option<Report>>,
    /// The number of the latest report that was sent.
    pub sent: watch::Sender<u64>,
    /// The hub of the present session, for downloads.
    pub hub: watch::Sender<String>,
}

impl Link {
    /// Connects again and again.
    pub async fn run(mut self) {
        let (mut failures, mut refused, mut polls) = (0u32, 0u32, 0u32);
        for turn in 0usize.. {
            let hub = self.hubs[turn % self.hubs.len()].clone();
            self.hub.send_replace(hub.clone());
            let polling = match self.transport {
                Transport::Auto => refused >= REFUSED_MAX,
                Transport::WebSocket => false,
                Transport::LongPoll => true,
            };
            let ending =
                if polling { poll::session(&mut self, &hub).await } else { socket::session(&mut self, &hub).await };
            polls = if polling { polls + 1 } else { 0 };
            if polls >= POLLS_BEFORE_SOCKET {
                (refused, polls) = (0, 0);
            }
            let (why, pause) = match ending {
                Ending::Unreached(why) => {
                    failures += 1;
                    (why, drawn(PAUSE.saturating_mul(1 << failures.min(10)).min(PAUSE_MAX)))
                }
                Ending::Refused(why) => {
                    (failures, refused) = (failures + 1, refused + 1);
                    (why, drawn(PAUSE.saturating_mul(1 << failures.min(10)).min(PAUSE_MAX)))
                }
                Ending::Ended(why) => {
                    failures = 0;
                    (why, drawn(PAUSE))
                }
                Ending::Goodbye(within) => {
                    failures = 0;
                    ("the hub said goodbye".to_owned(), drawn(within.min(PAUSE_MAX)))
                }
            };
            if self.heard.send(Heard::Closed(why)).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    }

    /// The first frame of a new session; none if the agent is ending.
    pub async fn hello(&self) -> Option<Hello> {
        let (reply, hello) = oneshot::channel();
        self.heard.send(Heard::Opening(reply)).await.ok()?;
        hello.await.ok()
    }

    /// What the agent hears of a welcome.
    pub fn welcomed(welcome: &Welcome) -> Heard {
        let Welcome { certificate_from, certificate_until, now, .. } = *welcome;
        Heard::Open(Validity { from: certificate_from, until: certificate_until, now })
    }

    /// A report was sent.
    pub fn has_sent(&self, seq: u64) {
        self.sent.send_replace(seq);
    }
}

/// A span up to this one, by chance, so that vehicles which were cut off together don't come back together.
pub fn drawn(most: Duration) -> Duration {
    let mut bytes = [0; 4];
    let _ = ring::rand::SystemRandom::new().fill(&mut bytes);
    most.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn vehicles_that_were_cut_off_together_come_back_at_all_times_up_to_the_longest() {
        const MOST: u64 = 30;
        let mut seconds = [0; MOST as usize];
        for _ in 0..3000 {
            let span = drawn(Duration::from_secs(MOST));
            assert!(span <= Duration::from_secs(MOST));
            seconds[usize::try_from(span.as_secs().min(MOST - 1)).unwrap()] += 1;
        }
        // About 100 each: of a fair draw, one in ten to the nine is as far from it as this.
        assert!(seconds.iter().all(|count| (40..=160).contains(count)), "{seconds:?}");
    }

    /// Something before a hub that refuses whatever it is asked; what it was asked.
    async fn refusing() -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hub = format!("http://{}", listener.local_addr().unwrap());
        let (asked_in, asked) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n")
                    && let Ok(byte) = stream.read_u8().await
                {
                    head.push(byte);
                }
                let path = String::from_utf8(head).unwrap().split(['?', ' ']).nth(1).unwrap_or_default().to_owned();
                // The other end may be gone already.
                let _ = stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").await;
                if !path.is_empty() && asked_in.send(path).await.is_err() {
                    return;
                }
            }
        });
        (hub, asked)
    }

    async fn paths(transport: Transport, count: usize) -> Vec<String> {
        let (hub, mut asked) = refusing().await;
        let (heard_in, mut heard) = mpsc::channel(1);
        let folder = tempfile::tempdir().unwrap();
        let link = Link {
            hubs: vec![hub.clone()],
            transport,
            wire: Wire::plain(folder.path().join("ca.pem")),
            heard: heard_in,
            reports: watch::channel(None).1,
            sent: watch::channel(0).0,
            hub: watch::channel(hub).0,
        };
        let running = tokio::spawn(link.run());
        let answering = tokio::spawn(async move {
            while let Some(heard) = heard.recv().await {
                if let Heard::Opening(reply) = heard {
                    let _ = reply.send(Hello::default());
                }
            }
        });
        let mut found = Vec::new();
        while found.len() < count {
            found.push(asked.recv().await.expect("the link goes on"));
        }
        running.abort();
        answering.abort();
        found
    }

    /// The clock stands still but for what waits on it: pauses of minutes are over at once.
    #[tokio::test(start_paused = true)]
    async fn where_web_sockets_are_refused_long_polls_take_their_place_and_they_are_tried_again_later() {
        let found = paths(Transport::Auto, 14).await;
        let polls = found.iter().filter(|path| *path == "/v1/poll").count();
        assert_eq!(found[..3], ["/v1/connect", "/v1/connect", "/v1/poll"], "{found:?}");
        assert!(found[3..].contains(&"/v1/connect".to_owned()) && polls >= 9, "{found:?}");
        assert!(paths(Transport::WebSocket, 4).await.iter().all(|path| path == "/v1/connect"));
        assert!(paths(Transport::LongPoll, 4).await.iter().all(|path| path == "/v1/poll"));
    }
}
