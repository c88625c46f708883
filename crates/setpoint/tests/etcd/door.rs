//! One address before several servers, as a load balancer is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::server::Server;

/// Takes connections, and passes each on to the first server that takes it.
pub struct Door {
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Door {
    pub async fn before(servers: &[Server]) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let servers = Arc::new(Mutex::new(servers.iter().map(address_of).collect::<Vec<_>>()));
        let behind = Arc::clone(&servers);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let behind = behind.lock().unwrap().clone();
                tokio::spawn(async move {
                    for address in behind {
                        if let Ok(mut server) = TcpStream::connect(address).await {
                            // Either side may end it as it likes.
                            let _ = copy_bidirectional(&mut client, &mut server).await;
                            return;
                        }
                    }
                });
            }
        });
        Door { servers, address, task }
    }

    /// Tells where a server is now.
    pub fn moved(&self, at: usize, server: &Server) {
        self.servers.lock().unwrap()[at] = address_of(server);
    }

    /// A kubeconfig that leads through the door.
    pub fn kubeconfig(&self, server: &Server, folder: &Path) -> PathBuf {
        let text = std::fs::read_to_string(&server.kubeconfig).unwrap();
        let file = folder.join("door.kubeconfig");
        std::fs::write(&file, text.replace(&server.url(), &format!("https://{}", self.address))).unwrap();
        file
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn address_of(server: &Server) -> SocketAddr {
    server.url().strip_prefix("https://").unwrap().parse().unwrap()
}
