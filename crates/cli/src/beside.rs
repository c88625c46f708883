//! Whether a server of ours runs on this machine, by what it leaves in its data directory.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::connection::data_folder;

/// How long to wait for somebody to answer on this machine.
const ANSWER: Duration = Duration::from_millis(200);

/// The address of the server that keeps its data in the usual place, if it runs.
pub fn running() -> Option<String> {
    let text = std::fs::read_to_string(data_folder()?.join("admin.kubeconfig")).ok()?;
    let address = text.lines().find_map(|line| line.trim().strip_prefix("server: https://"))?.to_owned();
    let socket: SocketAddr = address.parse().ok()?;
    TcpStream::connect_timeout(&socket, ANSWER).ok()?;
    Some(format!("https://{address}"))
}
