//! Sessions of long polls: the same frames, each with its length before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Party, Said};
use tokio::time::{Instant, timeout};

use super::{Body, full, plain};
use crate::hub::{Credential, Hub, Link};

/// How long a poll waits for something to say; below what proxies let a connection be silent for.
const WAIT: Duration = Duration::from_secs(50);

/// The sessions that are polled, by who polls.
#[derive(Default)]
pub struct Polls {
    open: Mutex<HashMap<String, Polled>>,
}

struct Polled {
    link: Arc<Link>,
    at: Instant,
}

impl Polls {
    /// The session of a party, from now on this one.
    fn begin(&self, party: &Party, credential: &Credential, hub: &Hub) -> Arc<Link> {
        let link = Arc::new(hub.open_with(party.clone(), Some(credential.clone())));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        open.retain(|_, polled| now.saturating_duration_since(polled.at) < hub.away_after());
        open.insert(party.subject().0, Polled { link: link.clone(), at: now });
        link
    }

    fn find(&self, party: &Party) -> Option<Arc<Link>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = open.get_mut(&party.subject().0)?;
        polled.at = Instant::now();
        Some(polled.link.clone())
    }

    fn end(&self, party: &Party) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&party.subject().0);
    }
}

/// Hears what a request says, and answers with what there is to say, now or within a while.
pub async fn answer(
    hub: &Hub,
    polls: &Polls,
    (party, credential): (&Party, &Credential),
    request: Request<Incoming>,
) -> Response<Body> {
    let waits = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "wait=true"));
    let body = match Limited::new(request.into_body(), 2 * FRAME_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return plain(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
    };
    let frames = match frames(&body) {
        Ok(frames) => frames,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    let begins = frames.iter().any(|frame| matches!(frame.said, Some(Said::Hello(_))));
    let link = if begins { Some(polls.begin(party, credential, hub)) } else { polls.find(party) };
    let Some(link) = link else { return plain(StatusCode::CONFLICT, "there is no session: say hello") };
    for frame in frames {
        if let Err(why) = link.hear(frame) {
            polls.end(party);
            return plain(StatusCode::FORBIDDEN, why);
        }
    }
    let mut out = Vec::new();
    if waits {
        match timeout(WAIT, link.next()).await {
            Ok(Some(frame)) => push(&mut out, &frame.bytes()),
            Ok(None) => {
                polls.end(party);
                return plain(StatusCode::CONFLICT, "the session has ended");
            }
            Err(_) => {}
        }
        while out.len() < FRAME_BYTES_MAX {
            match link.try_next() {
                Ok(Some(frame)) => push(&mut out, &frame.bytes()),
                Ok(None) | Err(_) => break,
            }
        }
    }
    Response::new(full(out))
}

fn push(out: &mut Vec<u8>, frame: &[u8]) {
    if frame.len() <= FRAME_BYTES_MAX {
        out.extend(u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(frame);
    }
}

fn frames(mut bytes: &[u8]) -> Result<Vec<FromVehicle>, String> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (frame, rest) = rest.split_at_checked(length).ok_or("a frame is cut off")?;
        frames.push(FromVehicle::read(frame).map_err(|error| error.to_string())?);
        bytes = rest;
    }
    if bytes.is_empty() { Ok(frames) } else { Err("a frame is cut off".into()) }
}
