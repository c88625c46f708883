//! The events of a watch on their way to the process under test: counted, and hidden where the course says so.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use setpoint_apiserver::body::{Body, BoxError};
use tokio::time::Instant;

use crate::course::Course;

/// How long after an event was hidden its watch is too old.
const UNTIL_EXPIRED: Duration = Duration::from_secs(30);

/// What a watch says that is too old.
const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
                       \"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

/// Passes a watch on, but for what the course hides.
pub(crate) fn follow(body: Body, course: Course) -> Body {
    let follower = Follower { body, course, rest: Vec::new(), expires: None };
    StreamBody::new(stream::unfold(Some(follower), step)).boxed_unsync()
}

struct Follower {
    body: Body,
    course: Course,
    /// The begin of a line whose end has not come yet.
    rest: Vec<u8>,
    expires: Option<Instant>,
}

type Step = Option<(Result<Frame<Bytes>, BoxError>, Option<Follower>)>;

async fn step(follower: Option<Follower>) -> Step {
    let mut follower = follower?;
    loop {
        let expires = follower.expires;
        let expired = async {
            match expires {
                Some(moment) => tokio::time::sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        let frame = tokio::select! {
            biased;
            frame = follower.body.frame() => frame,
            () = expired => None,
        };
        // Also a watch whose time is over must not be resumed as if nothing were missing.
        let Some(frame) = frame else {
            let expired = Frame::data(Bytes::from_static(EXPIRED.as_bytes()));
            return expires.is_some().then_some((Ok(expired), None));
        };
        match frame {
            Err(error) => return Some((Err(error), None)),
            Ok(frame) => {
                let passed = follower.pass(&frame.into_data().unwrap_or_default());
                if !passed.is_empty() {
                    return Some((Ok(Frame::data(passed.into())), Some(follower)));
                }
            }
        }
    }
}

impl Follower {
    /// The whole lines in what came, without those that are hidden.
    fn pass(&mut self, data: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(data);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        let mut passed = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match self.is_hidden(line) {
                true => self.expires = Some(Instant::now() + UNTIL_EXPIRED),
                false => passed.extend_from_slice(line),
            }
        }
        passed
    }

    fn is_hidden(&self, line: &[u8]) -> bool {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED" | "DELETED") => {
                let (object, metadata) = (&event["object"], &event["object"]["metadata"]);
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let what = || {
                    let (kind, namespace) = (text(&object["kind"]), text(&metadata["namespace"]));
                    format!("the event {} {kind} {namespace}/{}", text(&event["type"]), text(&metadata["name"]))
                };
                self.course.event(metadata["resourceVersion"].as_str(), what)
            }
            _ => false,
        }
    }
}
