//! A session of long polls: the same frames, for networks that let nothing else through.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use setpoint_fleet_protocol::{FRAME_BYTES_MAX, FromVehicle, Said, ToVehicle, Told};
use tokio::time::timeout;

use super::link::{Ending, Heard, Link};
use super::wire::{Wire, at};

/// Where the hub takes long polls.
const PATH: &str = "/v1/poll";

/// How long the hub may take for an answer: it has something to say, or says after a while that it hasn't.
const ANSWER_LIMIT: Duration = Duration::from_secs(150);

/// One session, from the first answer to the first failure.
pub async fn session(link: &mut Link, hub: &str) -> Ending {
    let Some(hello) = link.hello().await else { return Ending::Ended("the agent ends".into()) };
    let epoch = hello.epoch;
    let seq = hello.report.as_ref().map_or(0, |report| report.seq);
    link.reports.mark_unchanged();
    let mut said = vec![Said::Hello(hello)];
    let mut is_open = false;
    link.has_sent(seq);
    loop {
        let answer = exchange(&link.wire, hub, epoch, std::mem::take(&mut said), true);
        tokio::pin!(answer);
        let frames = loop {
            tokio::select! {
                frames = &mut answer => break frames,
                changed = link.reports.changed(), if is_open => {
                    if changed.is_err() {
                        return Ending::Ended("the agent ends".into());
                    }
                    let report = link.reports.borrow_and_update().clone();
                    let Some(report) = report else { continue };
                    let seq = report.seq;
                    // The poll under way waits for the hub; what the vehicle has to say goes beside it.
                    match exchange(&link.wire, hub, epoch, vec![Said::Report(report)], false).await {
                        Err(error) => return Ending::Ended(error.to_string()),
                        Ok(_) => link.has_sent(seq),
                    }
                }
            }
        };
        let frames = match frames {
            Ok(frames) => frames,
            Err(error) if is_open => return Ending::Ended(error.to_string()),
            Err(error) => return Ending::Unreached(error.to_string()),
        };
        for frame in frames {
            let heard = match frame.told {
                Some(Told::Welcome(welcome)) => Link::welcomed(&welcome),
                Some(Told::Desired(desired)) => Heard::Told(desired),
                Some(Told::Ping(number)) => {
                    said.push(Said::Pong(number));
                    continue;
                }
                Some(Told::Goodbye(goodbye)) => {
                    return Ending::Goodbye(Duration::from_millis(goodbye.retry_within_ms.into()));
                }
                None => continue,
            };
            is_open = true;
            if link.heard.send(heard).await.is_err() {
                return Ending::Ended("the agent ends".into());
            }
        }
    }
}

/// Says something, and hears what the hub has to say: at once, or as soon as there is something.
async fn exchange(wire: &Wire, hub: &str, epoch: u64, said: Vec<Said>, wait: bool) -> io::Result<Vec<ToVehicle>> {
    let url = at(hub, &format!("{PATH}?epoch={epoch}&wait={wait}"))?;
    let mut body = Vec::new();
    for said in said {
        let bytes = FromVehicle::of(said).bytes();
        body.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend(bytes);
    }
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    let exchange = async {
        let answer = wire.request(&url, request).await?;
        if answer.status() != StatusCode::OK {
            return Err(io::Error::other(format!("the hub answered {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), 2 * FRAME_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        frames(&body.to_bytes())
    };
    timeout(ANSWER_LIMIT, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn frames(mut bytes: &[u8]) -> io::Result<Vec<ToVehicle>> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (frame, rest) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        frames.push(ToVehicle::read(frame).map_err(io::Error::other)?);
        bytes = rest;
    }
    Ok(frames)
}
