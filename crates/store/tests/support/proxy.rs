//! A way to a member of etcd that can lose requests, lose answers, or be cut.

use std::io;
use std::sync::Arc;

use setpoint_store::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a way does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Requests get through, answers don't.
    Mute,
    /// Requests don't get through.
    Deaf,
    /// Nobody is there.
    Cut,
}

/// The way as it is, and how often it was cut: one that is open again at once has lost its connections all the same.
#[derive(Clone, Copy)]
struct State {
    way: Way,
    cuts: usize,
}

/// A proxy before one member.
pub struct Proxy {
    state: Arc<watch::Sender<State>>,
    /// How often something was lost.
    lost: Arc<watch::Sender<usize>>,
    /// Where it is reached.
    pub endpoint: Endpoint,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before a member, which is open.
    pub async fn before(member: &Endpoint) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(watch::Sender::new(State { way: Way::Open, cuts: 0 }));
        let lost = Arc::new(watch::Sender::new(0));
        let (states, member, losses) = (Arc::clone(&state), member.clone(), Arc::clone(&lost));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let states = states.subscribe();
                if states.borrow().way != Way::Cut {
                    tokio::spawn(forward(client, member.clone(), states, Arc::clone(&losses)));
                }
            }
        });
        Proxy { state, lost, endpoint: Endpoint { host: "127.0.0.1".to_owned(), port }, task }
    }

    /// Changes what it does, for connections that there are, too.
    pub fn set(&self, way: Way) {
        self.lost.send_replace(0);
        self.state.send_modify(|state| *state = State { way, cuts: state.cuts + usize::from(way == Way::Cut) });
    }

    /// Waits until something was lost since the last change.
    pub async fn has_lost(&self) {
        let mut lost = self.lost.subscribe();
        lost.wait_for(|lost| *lost > 0).await.expect("the sender is here");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    client: TcpStream,
    member: Endpoint,
    mut states: watch::Receiver<State>,
    lost: Arc<watch::Sender<usize>>,
) {
    let cuts = states.borrow().cuts;
    let Ok(server) = TcpStream::connect((&*member.host, member.port)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) = (states.clone(), states.clone());
    tokio::select! {
        _ = copy(from_client, to_server, up, Way::Deaf, &lost) => {}
        _ = copy(from_server, to_client, down, Way::Mute, &lost) => {}
        _ = states.wait_for(|state| state.cuts != cuts) => {}
    }
}

/// Copies bytes until the way loses some. From then on all are lost, as a network would have it: a connection never goes on behind a gap.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    states: watch::Receiver<State>,
    loses: Way,
    lost: &watch::Sender<usize>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut is_lost = false;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        is_lost |= states.borrow().way == loses;
        match is_lost {
            true => lost.send_modify(|lost| *lost += 1),
            false => to.write_all(&buffer[..read]).await?,
        }
    }
}
