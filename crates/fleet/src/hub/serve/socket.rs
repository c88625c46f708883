//! A session over a WebSocket.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Party, ToVehicle};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::{Body, full, plain};
use crate::hub::{Credential, Hub};

/// How long a vehicle may take to accept a frame.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// Says yes to a WebSocket, which begins once the answer is sent.
pub fn upgrade(mut request: Request<Incoming>, upgraded: &tokio::sync::mpsc::Sender<OnUpgrade>) -> Response<Body> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_asked = header(header::UPGRADE).eq_ignore_ascii_case("websocket")
        && header(header::SEC_WEBSOCKET_VERSION) == "13"
        && !header(header::SEC_WEBSOCKET_KEY).is_empty();
    if !is_asked {
        return plain(StatusCode::UPGRADE_REQUIRED, "this is for WebSockets; long polls go to /v1/poll");
    }
    let accepted = derive_accept_key(header(header::SEC_WEBSOCKET_KEY).as_bytes());
    if upgraded.try_send(hyper::upgrade::on(&mut request)).is_err() {
        return plain(StatusCode::CONFLICT, "this connection is taken");
    }
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::UPGRADE, "websocket")
        .header(header::CONNECTION, "Upgrade")
        .header(header::SEC_WEBSOCKET_ACCEPT, accepted)
        .body(full(""));
    response.unwrap_or_else(|_| plain(StatusCode::BAD_REQUEST, "the key is none"))
}

/// The session, from the upgrade to its end.
pub async fn session(hub: &Hub, party: Party, credential: Credential, upgrading: OnUpgrade) {
    let Ok(stream) = upgrading.await else { return };
    // The default of the library keeps 128 KiB for each connection.
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * FRAME_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await;
    let link = hub.open_with(party, Some(credential));
    loop {
        tokio::select! {
            frame = link.next() => match frame {
                Some(frame) => if !send(&mut socket, &frame).await { break },
                None => break,
            },
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    let heard = FromVehicle::read(&bytes).map_err(|error| error.to_string());
                    if let Err(why) = heard.and_then(|frame| link.hear(frame)) {
                        tracing::debug!(why, "a session ends");
                        break;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    // Politeness: the session is over either way.
    let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
}

async fn send(socket: &mut WebSocketStream<TokioIo<Upgraded>>, frame: &ToVehicle) -> bool {
    let bytes = frame.bytes();
    if bytes.len() > FRAME_BYTES_MAX {
        tracing::warn!(bytes = bytes.len(), "a frame is too large to be sent");
        return true;
    }
    matches!(timeout(SEND_LIMIT, socket.send(Message::binary(bytes))).await, Ok(Ok(())))
}
