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

/// A proxy before one member.
pub struct Proxy {
    way: Arc<watch::Sender<Way>>,
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
        let way = Arc::new(watch::Sender::new(Way::Open));
        let lost = Arc::new(watch::Sender::new(0));
        let (ways, member, losses) = (Arc::clone(&way), member.clone(), Arc::clone(&lost));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *ways.borrow() != Way::Cut {
                    tokio::spawn(forward(client, member.clone(), ways.subscribe(), Arc::clone(&losses)));
                }
            }
        });
        Proxy { way, lost, endpoint: Endpoint { host: "127.0.0.1".to_owned(), port }, task }
    }

    /// Changes what it does, for connections that there are, too.
    pub fn set(&self, way: Way) {
        self.lost.send_replace(0);
        self.way.send_replace(way);
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

async fn forward(client: TcpStream, member: Endpoint, mut ways: watch::Receiver<Way>, lost: Arc<watch::Sender<usize>>) {
    let Ok(server) = TcpStream::connect((&*member.host, member.port)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) = (ways.clone(), ways.clone());
    tokio::select! {
        _ = copy(from_client, to_server, up, Way::Deaf, &lost) => {}
        _ = copy(from_server, to_client, down, Way::Mute, &lost) => {}
        _ = ways.wait_for(|way| *way == Way::Cut) => {}
    }
}

/// Copies bytes, but those that come while the way loses them. What was lost stays so: the connection is of no use then.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    ways: watch::Receiver<Way>,
    loses: Way,
    lost: &watch::Sender<usize>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let is_lost = *ways.borrow() == loses;
        match is_lost {
            true => lost.send_modify(|lost| *lost += 1),
            false => to.write_all(&buffer[..read]).await?,
        }
    }
}
