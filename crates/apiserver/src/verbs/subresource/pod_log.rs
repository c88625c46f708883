//! The log of a container: its end, what came since, or all that follows until the container ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use setpoint_api::field::{FieldError, Path};
use setpoint_api::time::Timestamp;
use setpoint_api::{GroupKind, Status};
use setpoint_schema::Edit;
use setpoint_store::Store;
use tokio::sync::watch;

use crate::answer::{self, Answer};
use crate::body::BoxError;
use crate::call::Call;
use crate::clock::Clock;
use crate::nearby::{Log, LogLine, NearbyNodes};
use crate::objects;
use crate::registry::Served;

/// How often a log that is followed is looked at for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Which part of a log is wanted, and in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    /// So many of the last lines.
    tail: Option<usize>,
    /// Lines from this moment on.
    since: Option<Duration>,
    /// So many bytes at most.
    bytes: Option<usize>,
}

impl Options {
    /// Reads the parameters, and refuses what makes no sense.
    pub(super) fn read(call: &Call<'_>) -> Result<Options, Box<Status>> {
        let query = &call.query;
        let (tail, bytes) = (query.number("tailLines")?, query.number("limitBytes")?);
        let (seconds, time) = (query.number("sinceSeconds")?, query.get("sinceTime"));
        let mut errors = Vec::new();
        if let Some(tail) = tail.filter(|tail| *tail < 0) {
            errors.push(FieldError::invalid(&Path::root("tailLines"), tail, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid(&Path::root("limitBytes"), bytes, "must be greater than 0"));
        }
        match seconds {
            Some(_) if !time.is_empty() => errors.push(FieldError::forbidden(
                &Path::root(""),
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            )),
            Some(seconds) if seconds < 1 => {
                errors.push(FieldError::invalid(&Path::root("sinceSeconds"), seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if !errors.is_empty() {
            return Err(Box::new(Status::invalid(&GroupKind::new("", "PodLogOptions"), call.object_name(), &errors)));
        }
        let time = match time {
            "" => None,
            text => Some(Timestamp::parse(text).map_err(|error| Box::new(Status::bad_request(error.to_string())))?),
        };
        let ago = |seconds: i64| {
            call.server.clock.now().saturating_sub(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        let moment = |time: Timestamp| Duration::from_secs(u64::try_from(time.seconds).unwrap_or(0));
        Ok(Options {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail: tail.and_then(|tail| usize::try_from(tail).ok()),
            since: seconds.map(ago).or(time.map(moment)),
            bytes: bytes.and_then(|bytes| usize::try_from(bytes).ok()),
        })
    }

    /// The lines of a whole log that are wanted.
    fn choose(&self, mut lines: Vec<LogLine>) -> Vec<LogLine> {
        lines.retain(|line| self.since.is_none_or(|since| line.at >= since));
        let skipped = self.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        lines.split_off(skipped)
    }

    /// Lines as text, as far as the bytes go that are left.
    fn write(&self, lines: &[LogLine], left: &mut Option<usize>) -> String {
        let mut text = String::new();
        for line in lines {
            if self.timestamps {
                text.push_str(&time(line.at));
                text.push(' ');
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        if let Some(left) = left {
            let end = (0..=text.len().min(*left)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            *left -= end;
        }
        text
    }
}

/// As nodes write times of lines: with nanoseconds.
fn time(at: Duration) -> String {
    let second = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let whole = setpoint_api::time::format_rfc3339(second);
    format!("{}.{:09}Z", whole.trim_end_matches('Z'), at.subsec_nanos())
}

/// Answers with the log of a container of a pod on a nearby node.
pub(super) fn run(
    call: &Call<'_>,
    options: Options,
    nodes: &Arc<dyn NearbyNodes>,
    pod: &Value,
    container: &str,
) -> Answer {
    let found = nodes.log(pod, container, options.previous, call.server.clock.now());
    let Log { lines, is_open } = found.map_err(|why| Box::new(Status::bad_request(why)))?;
    let last = lines.last().map(|line| line.at);
    let mut left = options.bytes;
    let first = options.write(&options.choose(lines), &mut left);
    let mut response = answer::text(StatusCode::OK, first.clone());
    if options.follow && is_open && left != Some(0) {
        let tail = Tail {
            nodes: Arc::clone(nodes),
            store: call.server.store.clone(),
            clock: call.server.clock.clone(),
            stopping: call.server.stopping.clone(),
            served: call.served_shared(),
            namespace: call.namespace.unwrap_or_default().to_owned(),
            name: call.object_name().to_owned(),
            uid: pod["metadata"].text("uid").to_owned(),
            container: container.to_owned(),
            options,
            last,
            left,
        };
        let frame = |text: String| -> Result<Frame<Bytes>, BoxError> { Ok(Frame::data(text.into())) };
        let frames = stream::unfold((Some(tail), Some(first)), move |(tail, first)| async move {
            if let Some(first) = first {
                return Some((frame(first), (tail, None)));
            }
            let mut tail = tail?;
            let (text, is_open) = tail.next().await?;
            Some((frame(text), (is_open.then_some(tail), None)))
        });
        *response.body_mut() = StreamBody::new(frames).boxed_unsync();
    }
    Ok(response)
}

/// A log that is followed.
struct Tail {
    nodes: Arc<dyn NearbyNodes>,
    store: Store,
    clock: Clock,
    stopping: watch::Receiver<bool>,
    served: Arc<Served>,
    namespace: String,
    name: String,
    uid: String,
    container: String,
    options: Options,
    /// The time of the last line that was sent.
    last: Option<Duration>,
    left: Option<usize>,
}

impl Tail {
    /// The next lines, and whether more may come. None once the pod is gone or the server goes down.
    async fn next(&mut self) -> Option<(String, bool)> {
        loop {
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let found = objects::find(&self.store.snapshot(), &self.served, Some(&self.namespace), &self.name).ok()?;
            let pod = objects::value(&found);
            if pod["metadata"].text("uid") != self.uid {
                return None;
            }
            let Log { mut lines, is_open } = self.nodes.log(&pod, &self.container, false, self.clock.now()).ok()?;
            lines.retain(|line| self.last.is_none_or(|last| line.at > last));
            self.last = lines.last().map(|line| line.at).or(self.last);
            if !lines.is_empty() || !is_open {
                let text = self.options.write(&lines, &mut self.left);
                return Some((text, is_open && self.left != Some(0)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &Options, expected: &str) {
        let line = |second: u64, text: &str| LogLine { at: Duration::from_secs(second), text: text.to_owned() };
        let mut left = options.bytes;
        let lines = options.choose(vec![line(10, "one"), line(20, "two"), line(30, "three")]);
        assert_eq!(options.write(&lines, &mut left), expected, "{options:?}");
    }

    #[test]
    fn parts_of_a_log_can_be_asked_for() {
        let all = Options::default();
        check(&all, "one\ntwo\nthree\n");
        check(&Options { tail: Some(1), ..all.clone() }, "three\n");
        check(&Options { tail: Some(0), ..all.clone() }, "");
        check(&Options { tail: Some(9), ..all.clone() }, "one\ntwo\nthree\n");
        check(&Options { since: Some(Duration::from_secs(20)), ..all.clone() }, "two\nthree\n");
        check(&Options { bytes: Some(5), ..all.clone() }, "one\nt");
        let stamped = Options { timestamps: true, tail: Some(1), ..all };
        check(&stamped, "1970-01-01T00:00:30.000000000Z three\n");
    }
}
