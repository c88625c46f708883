//! One request as the audit log sees it, from its beginning to its end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use setpoint_api::Status;
use setpoint_api::time::Timestamp;

use super::event::{AuthenticationMetadata, Event, Outcome, Reference};
use super::policy::Decision;
use super::{Audit, Level, Log, Noted, Stage};
use crate::authorization::{Acting, Asked, Narrowed, What};
use crate::body::Body;
use crate::clock::{Chance, Clock};
use crate::path::Target;
use crate::query::Query;
use crate::serve::RemoteAddress;
use crate::user::User;

/// Longest name of a client's program that is kept.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// The header with which a client names its request, and the server the one that it answers.
const HEADER: &str = "audit-id";

/// What a request is called: as its client says, or anything that no other is.
pub(crate) fn request_id(headers: &HeaderMap, chance: &Chance) -> String {
    let given = headers.get(HEADER).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    given.map_or_else(|| chance.uid(), str::to_owned)
}

/// A request that is written down.
pub(crate) struct Record {
    log: Log,
    clock: Clock,
    decision: Decision,
    /// Large, and passed on with the request.
    event: Box<Event>,
    /// Whether it may run for hours: its beginning is written down too.
    is_long: bool,
    /// Whether what it carries is nobody else's business.
    is_confidential: bool,
}

impl Record {
    /// A request has come from somebody, or from one whose credentials are no good. None if it is not to be written down.
    pub(crate) fn begin(
        audit: &Audit,
        clock: &Clock,
        id: &str,
        parts: &Parts,
        target: &Target<'_>,
        user: Option<&Arc<User>>,
    ) -> Option<Record> {
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let method = parts.method.as_str().to_ascii_lowercase();
        let narrowed;
        let asked = match target {
            Target::Other(_) => Asked::of_path(&method, parts.uri.path()),
            Target::Resource(path) => {
                narrowed = Narrowed::of(path, &query);
                Asked::of_resource(&parts.method, path, &query, &narrowed)
            }
        };
        let mut decision = audit.policy.decide(user.map(|user| &**user), &asked);
        let is_confidential = is_confidential(&asked.what);
        if is_confidential {
            decision.level = decision.level.min(Level::Metadata);
        }
        audit.levels[decision.level as usize].add(1);
        if decision.level == Level::None {
            return None;
        }
        let received = micro(clock.now());
        let event = Box::new(Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: decision.level,
            audit_id: id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: without_tokens(&parts.uri),
            verb: asked.verb.to_owned(),
            user: user.cloned().unwrap_or_default(),
            authentication_metadata: None,
            impersonated_user: None,
            source_ips: source_addresses(parts),
            user_agent: user_agent(&parts.headers),
            object_ref: reference(&asked.what, target),
            response_status: None,
            request_object: None,
            response_object: None,
            stage_timestamp: received.clone(),
            request_received_timestamp: received,
            annotations: BTreeMap::new(),
        });
        let is_long = is_long(&asked);
        Some(Record { log: audit.log.clone(), clock: clock.clone(), decision, event, is_long, is_confidential })
    }

    /// Says that it was received.
    pub(crate) fn received(&mut self) {
        self.write(Stage::RequestReceived);
    }

    /// Notes for the handlers to fill.
    pub(crate) fn notes(&self) -> Noted {
        let Decision { level, omit_managed_fields, .. } = self.decision;
        let level = if self.is_long { level.min(Level::Request) } else { level };
        Noted { level, omit_managed_fields, ..Noted::default() }
    }

    /// It is for somebody else.
    pub(crate) fn acts_as(&mut self, acting: &Acting) {
        self.event.impersonated_user = Some(acting.user.clone());
        self.event.authentication_metadata =
            acting.constraint.map(|constraint| AuthenticationMetadata { impersonation_constraint: constraint });
    }

    /// Takes what the handlers have noted.
    pub(crate) fn take(&mut self, noted: Noted) {
        self.event.annotations.extend(noted.annotations);
        self.event.request_object = noted.request;
        self.event.response_object = noted.response;
        let (Some(reference), Some(sent)) = (&mut self.event.object_ref, noted.sent) else { return };
        let fill = |field: &mut String, sent: String| {
            if field.is_empty() {
                *field = sent;
            }
        };
        fill(&mut reference.name, sent.name);
        fill(&mut reference.namespace, sent.namespace);
        fill(&mut reference.uid, sent.uid);
        fill(&mut reference.resource_version, sent.resource_version);
    }

    /// It has its answer. A long one ends when its body does.
    pub(crate) fn answered(mut self, response: Response<Body>) -> Response<Body> {
        let status = response.extensions().get::<Arc<Status>>();
        let mut outcome = Outcome::of(status.map(|status| &**status), response.status().as_u16());
        if self.is_confidential && matches!(outcome.code, 400 | 422) {
            // What is wrong with an object is told with its words.
            outcome.message = String::new();
            outcome.details.iter_mut().for_each(|details| details.causes.clear());
        }
        self.event.response_status = Some(outcome);
        if !self.is_long {
            self.write(Stage::ResponseComplete);
            return response;
        }
        self.write(Stage::ResponseStarted);
        let ending = Ending(self);
        response.map(|body| {
            let held = move |frame| {
                let _ = &ending;
                frame
            };
            body.map_frame(held).boxed_unsync()
        })
    }

    /// Nobody knows whose it is: it goes no further than this.
    pub(crate) fn turned_away(mut self, response: &Response<Body>) {
        let status = response.extensions().get::<Arc<Status>>();
        self.event.response_status = Some(Outcome::of(status.map(|status| &**status), response.status().as_u16()));
        self.write(Stage::ResponseStarted);
    }

    /// Its handler broke.
    pub(crate) fn panicked(mut self) {
        self.event.response_status = Some(Outcome {
            status: "Failure".to_owned(),
            message: "APIServer panic'd".to_owned(),
            reason: "InternalError".to_owned(),
            code: 500,
            ..Outcome::default()
        });
        self.write(Stage::Panic);
    }

    fn write(&mut self, stage: Stage) {
        if self.decision.omits(stage) {
            return;
        }
        self.event.stage = stage;
        if stage != Stage::RequestReceived {
            self.event.stage_timestamp = micro(self.clock.now());
        }
        let mut line = Vec::with_capacity(1024);
        serde_json::to_writer(&mut line, &self.event).expect("an event is always encodable");
        line.push(b'\n');
        self.log.append(&line);
    }
}

/// Tells the end of a long answer, however it comes.
struct Ending(Record);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.write(Stage::ResponseComplete);
    }
}

/// Adds the name of its request to an answer.
pub(crate) fn name_answer(response: &mut Response<Body>, id: &str) {
    if let Ok(mut value) = header::HeaderValue::from_str(id) {
        // No other answer has it: it would only push the headers that all have out of the table of a connection.
        value.set_sensitive(true);
        response.headers_mut().insert(HEADER, value);
    }
}

/// Whether the bodies of such requests hold secrets or tokens.
fn is_confidential(what: &What<'_>) -> bool {
    match *what {
        What::Resource { group: "", resource: "secrets", .. }
        | What::Resource { group: "", resource: "serviceaccounts", subresource: "token", .. }
        | What::Resource { group: "authentication.k8s.io", resource: "tokenreviews", .. } => true,
        What::Resource { .. } | What::Path(_) => false,
    }
}

fn is_long(asked: &Asked<'_>) -> bool {
    let What::Resource { subresource, .. } = asked.what else { return false };
    asked.verb == "watch" || matches!(subresource, "attach" | "exec" | "proxy" | "log" | "portforward")
}

fn reference(what: &What<'_>, target: &Target<'_>) -> Option<Reference> {
    let (What::Resource { group, resource, subresource, namespace, name }, Target::Resource(path)) = (what, target)
    else {
        return None;
    };
    Some(Reference {
        resource: (*resource).to_owned(),
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
        api_group: (*group).to_owned(),
        api_version: path.version.to_owned(),
        subresource: (*subresource).to_owned(),
        ..Reference::default()
    })
}

/// What was asked for, but for a token that somebody put there.
fn without_tokens(uri: &http::Uri) -> String {
    let (path, query) = (uri.path(), uri.query().unwrap_or(""));
    if query.is_empty() {
        return path.to_owned();
    }
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key @ ("access_token" | "token"), _)) => format!("{key}=REDACTED"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

fn user_agent(headers: &HeaderMap) -> String {
    let text = headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let text = text.unwrap_or_default();
    if text.len() <= USER_AGENT_BYTES_MAX {
        return text.into_owned();
    }
    let mut end = USER_AGENT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...TRUNCATED", &text[..end])
}

/// Where a request says that it comes from, and last where it really does.
fn source_addresses(parts: &Parts) -> Vec<String> {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let forwarded = text("x-forwarded-for").split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok());
    let mut addresses: Vec<IpAddr> = forwarded.collect();
    if let Ok(real) = text("x-real-ip").trim().parse()
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    if let Some(RemoteAddress(remote)) = parts.extensions.get() {
        let remote = remote.ip().to_canonical();
        if addresses.last() != Some(&remote) {
            addresses.push(remote);
        }
    }
    addresses.iter().map(IpAddr::to_string).collect()
}

fn micro(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanoseconds: time.subsec_nanos() }.to_rfc3339_micro()
}
