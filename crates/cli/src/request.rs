//! Requests to an API server, and what comes back: JSON, or why not.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::{Value, json};

use crate::connection::plain;
use crate::failure::{CONFLICT, FORBIDDEN, Failure, UNREACHABLE, note};
use crate::terminal::with_progress;

/// Most bytes of one answer: what a list of a hundred thousand objects takes.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Most bytes of one event of a watch: far more than the largest object.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// Plain JSON.
pub const JSON: &str = "application/json";
/// The form that is printed.
pub const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// Objects without spec and status.
pub const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// An API server as one user sees it.
#[derive(Clone)]
pub struct Server {
    /// Sends requests.
    pub client: kube::Client,
    /// Where it is.
    pub url: http::Uri,
    /// The namespace that is meant where none is said.
    pub namespace: String,
    /// Whether it was said.
    pub explicit_namespace: bool,
    /// How long a request may take.
    pub limit: Option<Duration>,
    /// What is told of requests.
    pub voice: Voice,
}

/// What is told of requests on standard error, for `-v`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Voice {
    /// The level.
    pub verbosity: u8,
    /// Whether a token goes with requests. It is never shown.
    pub has_token: bool,
}

/// From this level on requests are told of with their answers, as in kubectl.
const TELLS_ANSWERS: u8 = 6;

/// From this level on requests are told of as curl would send them.
const TELLS_REQUESTS: u8 = 7;

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The server said no: a `Status`.
    Refused(Value),
    /// Nobody listens there.
    Nobody(String),
    /// It can't be reached or understood.
    Unreachable(String),
}

/// What to send.
pub struct Ask<'a> {
    /// The verb.
    pub method: Method,
    /// The path, with every segment escaped.
    pub path: String,
    /// The query.
    pub query: Vec<(&'a str, String)>,
    /// Which form to answer in.
    pub accept: &'a str,
    /// What goes with it, and its form.
    pub body: Option<(&'a str, Vec<u8>)>,
    /// Whether warnings about it are kept from people, who did not ask for it themselves.
    pub quietly: bool,
}

impl<'a> Ask<'a> {
    /// A GET.
    pub fn get(path: impl Into<String>) -> Ask<'a> {
        Ask { method: Method::GET, path: path.into(), query: Vec::new(), accept: JSON, body: None, quietly: false }
    }

    /// Without warnings.
    pub fn quietly(self) -> Ask<'a> {
        Ask { quietly: true, ..self }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &'a str, value: impl Into<String>) -> Ask<'a> {
        self.query.push((name, value.into()));
        self
    }

    /// Adds a parameter unless it is empty.
    pub fn with_some(self, name: &'a str, value: Option<&str>) -> Ask<'a> {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// In another form.
    pub fn accept(self, accept: &'a str) -> Ask<'a> {
        Ask { accept, ..self }
    }

    /// The path with its query.
    fn target(&self) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }

    /// The whole address.
    fn address(&self, server: &http::Uri) -> String {
        format!("{}{}", server.to_string().trim_end_matches('/'), self.target())
    }

    fn request(self) -> Result<Request<Body>, Trouble> {
        let uri = self.target();
        let mut request = Request::builder().method(self.method).uri(uri).header(header::ACCEPT, self.accept);
        request = request.header(header::USER_AGENT, concat!("setpoint/", env!("CARGO_PKG_VERSION")));
        let body = match self.body {
            Some((form, bytes)) => {
                request = request.header(header::CONTENT_TYPE, form);
                Body::from(bytes)
            }
            None => Body::empty(),
        };
        request.body(body).map_err(|error| Trouble::Unreachable(error.to_string()))
    }
}

impl Server {
    /// Sends a request and reads the answer as JSON, with its code.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<(StatusCode, Value), Trouble> {
        let (code, bytes) = self.within(self.exchange(ask)).await?;
        let value = match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(_) if !code.is_success() => json!({
                "kind": "Status", "code": code.as_u16(), "message": String::from_utf8_lossy(&bytes).trim(),
            }),
            Err(error) => return Err(Trouble::Unreachable(format!("the answer is no JSON: {error}"))),
        };
        if code.is_success() { Ok((code, value)) } else { Err(Trouble::Refused(value)) }
    }

    /// The JSON at a path.
    pub async fn get(&self, ask: Ask<'_>) -> Result<Value, Trouble> {
        Ok(self.ask(ask).await?.1)
    }

    /// The text at a path, with its code.
    pub async fn text(&self, path: &str) -> Result<(StatusCode, String), Trouble> {
        let (code, bytes) = self.within(self.exchange(Ask::get(path).accept("*/*"))).await?;
        Ok((code, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Seconds since 1970 by the clock of the server.
    pub async fn clock(&self) -> Result<i64, Trouble> {
        let response = self.within(self.send(Ask::get("/version"))).await?;
        let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let read = date.and_then(|date| k8s_openapi::jiff::fmt::rfc2822::parse(date).ok());
        read.map(|zoned| zoned.timestamp().as_second())
            .ok_or_else(|| Trouble::Unreachable("it tells no time".to_owned()))
    }

    /// Begins a watch: events as they come, each with its type.
    pub async fn watch(&self, ask: Ask<'_>) -> Result<Watch, Trouble> {
        let response = self.within(self.send(ask.with("watch", "true"))).await?;
        if !response.status().is_success() {
            let bytes = self.within(self.read(response.into_body())).await?;
            return Err(Trouble::Refused(serde_json::from_slice(&bytes).unwrap_or(Value::Null)));
        }
        let pieces = response.into_body().into_data_stream().map(|piece| piece.ok());
        Ok(Watch { pieces: Box::pin(pieces), read: Vec::new() })
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<(StatusCode, Vec<u8>), Trouble> {
        let quietly = ask.quietly;
        let response = self.send(ask).await?;
        for warning in response.headers().get_all(header::WARNING) {
            if let Some(text) = warning.to_str().ok().and_then(warned).filter(|_| !quietly) {
                note(&format!("Warning: {text}"));
            }
        }
        let code = response.status();
        Ok((code, self.read(response.into_body()).await?))
    }

    async fn send(&self, ask: Ask<'_>) -> Result<http::Response<Body>, Trouble> {
        if self.voice.verbosity >= TELLS_REQUESTS {
            note(&curl(&ask, &self.url, self.voice.has_token));
        }
        let told =
            (self.voice.verbosity >= TELLS_ANSWERS).then(|| format!("{} {}", ask.method, ask.address(&self.url)));
        let begin = std::time::Instant::now();
        let answer = self.client.send(ask.request()?).await;
        if let Some(told) = told {
            let outcome = match &answer {
                Ok(response) => response.status().to_string(),
                Err(error) => plain(error),
            };
            note(&format!("{told} {outcome} in {} ms", begin.elapsed().as_millis()));
        }
        answer.map_err(|error| trouble(&error, &self.url))
    }

    async fn read(&self, body: Body) -> Result<Vec<u8>, Trouble> {
        let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        read.map(|read| read.to_bytes().to_vec()).map_err(|error| Trouble::Unreachable(plain(&*error)))
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let limited = async {
            match self.limit {
                None => work.await,
                Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
                    Err(Trouble::Unreachable(format!("no answer within {limit:?} (`--request-timeout`)")))
                }),
            }
        };
        let host = self.url.authority().map_or("the server", |authority| authority.as_str());
        with_progress(&format!("waiting for {host}"), limited).await
    }
}

/// Events as they come.
pub struct Watch {
    pieces: std::pin::Pin<Box<dyn Stream<Item = Option<bytes::Bytes>> + Send>>,
    read: Vec<u8>,
}

impl Watch {
    /// The next event: its type and its object. None when the watch has ended.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).ok()?;
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                return Some((kind, event["object"].take()));
            }
            if self.read.len() > EVENT_BYTES_MAX {
                return None;
            }
            self.read.extend_from_slice(&self.pieces.next().await.flatten()?);
        }
    }
}

impl Trouble {
    /// Whether the server gave this reason.
    pub fn is(&self, reason: &str) -> bool {
        matches!(self, Trouble::Refused(status) if status["reason"] == reason)
    }

    /// The same, with what was being done and with which file.
    pub fn while_doing(mut self, verb: &str, source: &str) -> Trouble {
        match &mut self {
            Trouble::Refused(status) if !source.is_empty() => {
                let message = status["message"].as_str().unwrap_or_default();
                status["message"] = format!("error when {verb} {source:?}: {message}").into();
            }
            _ => {}
        }
        self
    }

    /// What kubectl says in this case.
    pub fn words(&self) -> String {
        match self {
            Trouble::Refused(status) => refused(status),
            Trouble::Nobody(host) => {
                format!("The connection to the server {host} was refused - did you specify the right host or port?")
            }
            Trouble::Unreachable(why) => format!("Unable to connect to the server: {why}"),
        }
    }

    /// The exit code.
    fn code(&self) -> u8 {
        match self {
            Trouble::Refused(status) => match status["reason"].as_str() {
                Some("Forbidden") => FORBIDDEN,
                Some("Unauthorized") => UNREACHABLE,
                Some("Conflict") => CONFLICT,
                _ => crate::failure::FAILED,
            },
            Trouble::Nobody(_) | Trouble::Unreachable(_) => UNREACHABLE,
        }
    }

    fn advice(&self) -> Option<String> {
        match self {
            Trouble::Nobody(host) => Some(match crate::beside::running() {
                Some(other) => format!("a setpoint on this machine listens at {other}; its kubeconfig says so"),
                None => format!("no setpoint runs on this machine: `setpoint up` starts one, or check who should be at {host}"),
            }),
            Trouble::Unreachable(why) if why.contains("ertificate") || why.contains("UnknownIssuer") => {
                Some("the kubeconfig is of another server, or older than its certificates: take the one that `setpoint up` writes".into())
            }
            Trouble::Unreachable(_) => Some("`setpoint doctor` looks at what is between here and there".into()),
            Trouble::Refused(status) => match status["reason"].as_str().unwrap_or_default() {
                "NotFound" => Some(match status["details"]["kind"].as_str().filter(|kind| !kind.is_empty()) {
                    Some(kind) => format!("`setpoint get {kind} -A` lists those that are there"),
                    None => "`setpoint get --raw /` lists the paths that there are".to_owned(),
                }),
                "Invalid" => Some(match (status["details"]["kind"].as_str(), first_field(&status["details"])) {
                    (Some(kind), Some(field)) => {
                        format!("`kubectl explain {}.{field}` tells what it takes", kind.to_lowercase())
                    }
                    _ => "correct what it names and try again; `--dry-run=server` only checks".to_owned(),
                }),
                "Forbidden" => Some(forbidden(&message(status))),
                "Unauthorized" => Some("the server knows neither the certificate nor the token that was sent; `setpoint up` says where its kubeconfig is".into()),
                "Conflict" => Some("somebody else changed it: read it again, then try again".into()),
                "Expired" => Some("the list took too long: try again".into()),
                "TooManyRequests" => Some("the server is busy: try again in a moment".into()),
                "BadRequest" => Some(bad_request(&message(status))),
                "AlreadyExists" => Some("it is there already: choose another name, or change it with `setpoint apply`".into()),
                "MethodNotAllowed" => Some("this kind can't do that: `kubectl api-resources -o wide` shows what it can".into()),
                "RequestEntityTooLarge" => Some("make it smaller: an object has at most some 1.5 MB".into()),
                "ServiceUnavailable" | "InternalError" | "Timeout" => {
                    Some("`setpoint status` tells whether the server is well, and its log why not".into())
                }
                _ => Some(unnamed(status)),
            },
        }
    }
}

/// What could not be done, in the server's words and without the form that they came in.
pub fn refusal(what: impl std::fmt::Display, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let trouble = Trouble::Refused(serde_json::to_value(status).unwrap_or_default());
            let failure = Failure::new(what, &status.message).with_code(trouble.code());
            trouble.advice().into_iter().fold(failure, Failure::hint)
        }
        other => Failure::new(what, plain(other))
            .hint("`setpoint doctor` looks at what is between here and there")
            .with_code(UNREACHABLE),
    }
}

impl From<Trouble> for Failure {
    /// As kubectl says it, with an exit code that tells what kind of trouble it is; a hint follows.
    fn from(trouble: Trouble) -> Failure {
        let failure = Failure::said(trouble.words()).with_code(trouble.code());
        match trouble.advice() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn message(status: &Value) -> String {
    status["message"].as_str().unwrap_or_default().to_owned()
}

/// What to do about something that one may not: who may tells whom to ask.
fn forbidden(message: &str) -> String {
    let quoted = |after: &str| message.split_once(after).and_then(|(_, rest)| rest.split('"').next());
    let verb = message.split_once(" cannot ").and_then(|(_, rest)| rest.split(' ').next());
    let who = match (verb, quoted(" resource \"")) {
        (Some(verb), Some(resource)) => {
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let part = if part.is_empty() { String::new() } else { format!(" --subresource={part}") };
            let group = quoted("in API group \"").filter(|group| !group.is_empty());
            let resource = group.map_or(resource.to_owned(), |group| format!("{resource}.{group}"));
            let place = quoted("in the namespace \"").map_or(String::new(), |name| format!(" -n {name}"));
            format!(
                "`setpoint who-can {verb} {resource}{part}{place}` tells an administrator who may, and by which role"
            )
        }
        _ => "a Role and a RoleBinding give more".to_owned(),
    };
    format!("`kubectl auth can-i --list` tells what you may do; {who}")
}

/// What to do about a request that the server can't make sense of.
fn bad_request(message: &str) -> String {
    if message.contains("field label") {
        return "fields that can be chosen by are few: `metadata.name`, `metadata.namespace`, and those that a kind has, \
                such as `status.phase` and `spec.nodeName` of pods"
            .to_owned();
    }
    if message.contains("parse") && message.contains("requirement") || message.contains("selector") {
        return "a selector is `key=value`, `key!=value`, `key in (a,b)`, `key` or `!key`, parted by commas".to_owned();
    }
    "correct what it names; `kubectl explain KIND` tells what a kind takes".to_owned()
}

/// What to do about a refusal without a reason that is known: what it says decides.
fn unnamed(status: &Value) -> String {
    let said = message(status);
    if let Some(field) = said.split(": .").nth(1).and_then(|rest| rest.split(':').next()) {
        let kind = said.split("Kind=").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or("KIND").to_lowercase();
        // The last name of the path is the one that is wrong; what it may be stands in its parent.
        let parent = field.rsplit_once('.').map(|(parent, _)| format!(".{parent}")).unwrap_or_default();
        let known = said.contains("expected");
        let path = if known { format!(".{field}") } else { parent };
        let path: String = path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
        return format!("`kubectl explain {kind}{path}` tells what it takes");
    }
    "`-v=7` shows what was asked; the log of the server tells more".to_owned()
}

/// A request as a line for a shell. Credentials are left to whoever runs it.
fn curl(ask: &Ask<'_>, server: &http::Uri, has_token: bool) -> String {
    let mut line = format!("curl -X {} -H {}", ask.method, quoted(&format!("Accept: {}", ask.accept)));
    if has_token {
        line.push_str(" -H 'Authorization: Bearer <masked>'");
    }
    if let Some((form, bytes)) = &ask.body {
        let body = String::from_utf8_lossy(bytes);
        line.push_str(&format!(" -H {} -d {}", quoted(&format!("Content-Type: {form}")), quoted(&body)));
    }
    format!("{line} {}", quoted(&ask.address(server)))
}

/// Text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What a refusal is in kubectl's words.
fn refused(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (reason, message, details) = (text(&status["reason"]), text(&status["message"]), &status["details"]);
    match reason.as_str() {
        "Invalid" => {
            let (kind, name) = (text(&details["kind"]), text(&details["name"]));
            let causes: Vec<String> = causes(details);
            let mut said = "The request is invalid".to_owned();
            if !kind.is_empty() || !name.is_empty() {
                said = format!("The {kind} {name:?} is invalid");
            } else if !message.is_empty() && causes.is_empty() {
                said = format!("{said}: {message}");
            }
            match &causes[..] {
                [] => said,
                [one] => format!("{said}: {one}"),
                many => format!("{said}: \n* {}", many.join("\n* ")),
            }
        }
        "Unauthorized" => format!("error: You must be logged in to the server ({message})"),
        "" => format!("Error from server: {message}"),
        _ => format!("Error from server ({reason}): {message}"),
    }
}

fn causes(details: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for cause in details["causes"].as_array().into_iter().flatten() {
        let text = |name: &str| cause[name].as_str().unwrap_or_default();
        let said = format!("{}: {}", text("field"), text("message"));
        if !all.contains(&said) {
            all.push(said);
        }
    }
    all
}

/// The path of the first cause, as `explain` takes it: without places in lists and what stands in them.
fn first_field(details: &Value) -> Option<String> {
    let field = details["causes"].as_array()?.first()?["field"].as_str()?;
    let plain: String = field
        .split('[')
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once(']').map_or("", |(_, rest)| rest) })
        .collect();
    Some(plain).filter(|plain| !plain.is_empty() && plain != "<nil>")
}

/// The text of a warning header: `299 - "text"`.
fn warned(value: &str) -> Option<String> {
    let (_, quoted) = value.split_once('"')?;
    let text = quoted.rsplit_once('"')?.0;
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn trouble(error: &kube::Error, url: &http::Uri) -> Trouble {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Trouble::Nobody(url.authority().map_or_else(|| url.to_string(), ToString::to_string));
        }
        cause = inner.source();
    }
    let said = plain(error);
    let known = ["ServiceError: ", "HyperError: ", "client error (Connect): "];
    let short = known.iter().fold(said.as_str(), |said, prefix| said.strip_prefix(prefix).unwrap_or(said));
    Trouble::Unreachable(short.to_owned())
}

/// A segment of a path.
pub fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Value, expected: &str) {
        assert_eq!(Trouble::Refused(status).words(), expected);
    }

    #[test]
    fn a_refusal_is_told_as_kubectl_tells_it() {
        check(
            json!({"reason": "NotFound", "message": "pods \"a\" not found"}),
            "Error from server (NotFound): pods \"a\" not found",
        );
        check(json!({"message": "no"}), "Error from server: no");
        check(
            json!({"reason": "Unauthorized", "message": "Unauthorized"}),
            "error: You must be logged in to the server (Unauthorized)",
        );
        let cause = |field: &str| json!({"field": field, "message": "Required value"});
        let invalid = |causes: Vec<Value>| {
            json!({
                "reason": "Invalid", "message": "long",
                "details": {"kind": "Pod", "name": "a", "causes": causes},
            })
        };
        check(invalid(vec![cause("spec")]), "The Pod \"a\" is invalid: spec: Required value");
        check(
            invalid(vec![cause("spec"), cause("x"), cause("x")]),
            "The Pod \"a\" is invalid: \n* spec: Required value\n* x: Required value",
        );
        check(invalid(vec![]), "The Pod \"a\" is invalid");
        check(json!({"reason": "Invalid", "message": "bad"}), "The request is invalid: bad");
    }

    #[test]
    fn a_request_is_told_as_a_line_for_curl_without_its_token() {
        let ask = Ask { body: Some((JSON, b"it's".to_vec())), ..Ask::get("/api/v1/pods").with("limit", "5") };
        let line = curl(&ask, &"https://a:1/".parse().unwrap(), true);
        let expected = "curl -X GET -H 'Accept: application/json' -H 'Authorization: Bearer <masked>' \
                        -H 'Content-Type: application/json' -d 'it'\\''s' 'https://a:1/api/v1/pods?limit=5'";
        assert_eq!(line, expected);
    }

    #[test]
    fn the_exit_code_tells_what_kind_of_trouble_it_is() {
        for (reason, code) in [("Forbidden", 4), ("Conflict", 5), ("Unauthorized", 3), ("NotFound", 1), ("Invalid", 1)]
        {
            assert_eq!(Trouble::Refused(json!({"reason": reason})).code(), code, "{reason}");
        }
        assert_eq!(Trouble::Nobody("a".to_owned()).code(), 3);
        assert_eq!(Trouble::Unreachable("a".to_owned()).code(), 3);
    }

    #[test]
    fn whoever_may_not_is_told_how_to_find_who_may() {
        let said = |message: &str| forbidden(message).split("; ").nth(1).unwrap_or_default().to_owned();
        assert_eq!(
            said(
                r#"deployments.apps "web" is forbidden: User "jane" cannot delete resource "deployments" in API group "apps" in the namespace "shop""#
            ),
            "`setpoint who-can delete deployments.apps -n shop` tells an administrator who may, and by which role"
        );
        assert_eq!(
            said(
                r#"pods "a" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "shop""#
            ),
            "`setpoint who-can get pods --subresource=log -n shop` tells an administrator who may, and by which role"
        );
        assert_eq!(
            said(
                r#"nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope"#
            ),
            "`setpoint who-can list nodes` tells an administrator who may, and by which role"
        );
        assert_eq!(said("exceeded quota"), "a Role and a RoleBinding give more");
    }

    #[test]
    fn a_warning_is_what_stands_in_quotes() {
        assert_eq!(warned(r#"299 - "a \"b\" c""#), Some(r#"a "b" c"#.to_owned()));
        assert_eq!(warned("299 - a"), None);
    }

    #[test]
    fn names_with_odd_letters_stay_one_segment() {
        assert_eq!(segment("system:a b/c"), "system%3Aa%20b%2Fc");
    }
}
