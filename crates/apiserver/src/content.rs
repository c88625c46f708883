//! Reading request bodies: their bounds, their format, and the object in them.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use serde_json::Value;
use setpoint_api::{FieldError, GroupKind, GroupVersion, Path, Status};
use setpoint_schema::decode::{self, DecodeError, Decoded};
use setpoint_schema::json::{self, Json};
use setpoint_schema::{Edit, Emptied, TypeRef, facts};
use setpoint_schema::{Kind, protobuf, yaml};

use crate::body::Body;
use crate::inbox::{in_time, unreadable};
use crate::query::FieldValidation;

/// Largest request body. Same as kube-apiserver (3 MiB), so what one accepts the other does too.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Where upstream's decoders say a kind is not registered.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// How much of an unreadable body an error quotes.
const SUMMARY_BYTES: usize = 30;

/// The whole body.
pub async fn read(body: Body) -> Result<Bytes, Box<Status>> {
    in_time(gather(body)).await
}

async fn gather(mut body: Body) -> Result<Bytes, Box<Status>> {
    let mut pieces = Pieces::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        pieces.push(data);
        if pieces.len() > BODY_BYTES_MAX {
            return Err(Box::new(Status::request_entity_too_large(&format!("limit is {BODY_BYTES_MAX}"))));
        }
    }
    Ok(pieces.join())
}

/// A body in the pieces that it comes in. Most come in one, which is not copied.
#[derive(Default)]
pub(crate) struct Pieces {
    first: Bytes,
    whole: BytesMut,
}

impl Pieces {
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.whole.is_empty() {
            self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.whole.extend_from_slice(&data);
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.whole.len()
    }

    pub(crate) fn join(self) -> Bytes {
        if self.whole.is_empty() { self.first } else { self.whole.freeze() }
    }
}

/// The formats that bodies come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML, of which JSON is a part.
    Yaml,
    /// Protobuf, for built-in kinds.
    Protobuf,
}

/// What an answer to an unknown format lists.
pub const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

impl Format {
    /// The format that the headers name.
    pub fn of(headers: &HeaderMap) -> Result<Format, Box<Status>> {
        let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let media = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        match &*media {
            "" | "application/json" => Ok(Format::Json),
            "application/yaml" => Ok(Format::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
            _ => Err(Box::new(Status::unsupported_media_type(&ACCEPTED))),
        }
    }
}

/// An object read from a body, and what strict reading would have refused.
#[derive(Debug)]
pub struct Read {
    /// The object, in normal form.
    pub object: Value,
    /// Unknown and doubled fields to warn of.
    pub warnings: Vec<String>,
    /// Lists and maps that were given empty.
    pub emptied: Vec<Emptied>,
}

/// Reads the object in a body as one of `kind`.
pub fn object(bytes: &[u8], format: Format, kind: &Kind, validation: FieldValidation) -> Result<Read, Box<Status>> {
    let expected = GroupVersion::new(&*kind.group, &*kind.version);
    let decode = |document: Json<'_>| kind.behaviour.decode(document, kind.root_type());
    read_as(bytes, format, kind.root_type(), &expected, &kind.kind, validation, &decode)
}

/// Reads the object in a body as one of a type: the body of a subresource, or options.
pub fn typed(
    bytes: &[u8],
    format: Format,
    root: TypeRef<'_>,
    expected: &GroupVersion,
    kind: &str,
    validation: FieldValidation,
) -> Result<Read, Box<Status>> {
    read_as(bytes, format, root, expected, kind, validation, &|document| decode::decode(document, root))
}

/// Reads a document into an object.
type Decode<'d> = dyn Fn(Json<'_>) -> Result<Decoded, DecodeError> + 'd;

fn read_as(
    bytes: &[u8],
    format: Format,
    root: TypeRef<'_>,
    expected: &GroupVersion,
    kind: &str,
    validation: FieldValidation,
    decode: &Decode<'_>,
) -> Result<Read, Box<Status>> {
    let custom = root.is_custom();
    let unrecognized = |why: String| {
        let summary = summarize(bytes);
        Box::new(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
        )))
    };
    let holder;
    let (document, mut strict) = match format {
        Format::Json => {
            let document = json::parse(bytes)
                .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?;
            (document, Vec::new())
        }
        Format::Yaml => {
            holder = yaml::parse(bytes).map_err(|error| unrecognized(format!("{error}")))?;
            (holder.json, holder.doubled)
        }
        Format::Protobuf => {
            (protobuf_document(bytes, root).map_err(|error| unrecognized(error.to_string()))?, Vec::new())
        }
    };
    let head = Head::read(&document)
        .map_err(|why| unrecognized(format!("couldn't get version/kind; json parse error: {why}")))?;
    let (found, found_kind) = head.with_defaults(expected, kind).map_err(unrecognized)?;
    let cannot = |why: &dyn std::fmt::Display| {
        Box::new(Status::bad_request(format!(
            "{found_kind} in version \"{}\" cannot be handled as a {kind}: {why}",
            found.version
        )))
    };
    if custom && found != *expected {
        return Err(Box::new(Status::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({expected})"
        ))));
    }
    if custom && found_kind != kind {
        let error = FieldError::invalid(&Path::root("kind"), &*found_kind, format!("must be {kind}"));
        let name = document.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Json::as_str);
        let name = name.map(|name| name.to_string()).unwrap_or_default();
        return Err(Box::new(Status::invalid(&GroupKind::new(&*expected.group, &*found_kind), &name, &[error])));
    }
    if found_kind != kind || found != *expected {
        if !is_registered(&found.to_string(), &found_kind) {
            return Err(cannot(&not_registered(&found, &found_kind)));
        }
        if let Some(other) = facts::kind_type(&found.to_string(), &found_kind).filter(|_| found_kind != kind) {
            decode::decode(document, other).map_err(|error| cannot(&error))?;
        }
        if found != *expected && found_kind == kind {
            return Err(Box::new(Status::bad_request(format!(
                "the API version in the data ({found}) does not match the expected API version ({expected})"
            ))));
        }
        return Err(cannot(&not_convertible(&found, &found_kind, expected, kind)));
    }
    let Decoded { mut value, strict: unknown, emptied, .. } = decode(document).map_err(|error| cannot(&error))?;
    value.set("apiVersion", expected.to_string());
    value.set("kind", kind);
    strict.extend(unknown);
    match validation {
        FieldValidation::Strict if !strict.is_empty() => {
            Err(cannot(&format!("strict decoding error: {}", strict.join(", "))))
        }
        FieldValidation::Ignore => Ok(Read { object: value, warnings: Vec::new(), emptied }),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Read { object: value, warnings: strict, emptied }),
    }
}

/// Reads the DeleteOptions in a body. They may come under any version, even one that is made up, and unknown fields are passed over.
pub fn options(bytes: &[u8], format: Format) -> Result<Value, Box<Status>> {
    const OPTIONS_SCHEME: &str = "pkg/apis/meta/internalversion/scheme/register.go:27";
    let bad = |message: String| Box::new(Status::bad_request(message));
    let holder;
    let document = match format {
        Format::Json => {
            json::parse(bytes).map_err(|error| bad(format!("couldn't get version/kind; json parse error: {error}")))?
        }
        Format::Yaml => {
            holder = yaml::parse(bytes).map_err(|error| bad(format!("{error}")))?;
            holder.json
        }
        Format::Protobuf => {
            let ty = facts::type_named(DELETE_OPTIONS).expect("a built-in type");
            protobuf_document(bytes, ty).map_err(|error| bad(error.to_string()))?
        }
    };
    let head =
        Head::read(&document).map_err(|why| bad(format!("couldn't get version/kind; json parse error: {why}")))?;
    let (version, kind) = head.with_defaults(&GroupVersion::new("", "v1"), "DeleteOptions").map_err(bad)?;
    if kind != "DeleteOptions" {
        let message =
            format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{OPTIONS_SCHEME}\"");
        return Err(bad(message));
    }
    let ty = facts::type_named(DELETE_OPTIONS).expect("a built-in type");
    Ok(decode::decode(document, ty).map_err(|error| bad(error.to_string()))?.value)
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// A protobuf body as the document that it stands for.
fn protobuf_document(bytes: &[u8], ty: TypeRef<'_>) -> Result<Json<'static>, protobuf::ProtobufError> {
    let envelope = protobuf::open(bytes)?;
    let mut object = protobuf::read(envelope.raw, ty)?;
    object.set("apiVersion", envelope.api_version);
    object.set("kind", envelope.kind);
    Ok(Json::from(object))
}

/// Whether Kubernetes knows such a kind, served or not.
pub(crate) fn is_registered(version: &str, kind: &str) -> bool {
    facts::kind_type(version, kind).is_some() || facts::is_unserved_kind(version, kind)
}

/// Why a kind that nobody knows can't be read.
pub(crate) fn not_registered(version: &GroupVersion, kind: &str) -> String {
    format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{SCHEME}\"")
}

/// Why one kind can't stand for another.
pub(crate) fn not_convertible(found: &GroupVersion, found_kind: &str, expected: &GroupVersion, kind: &str) -> String {
    format!("converting ({}.{found_kind}) to ({}.{kind}): unknown conversion", found.version, go_package(expected))
}

fn go_package(version: &GroupVersion) -> &str {
    match &*version.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Why what a document says of its kind can't be read.
pub(crate) fn unreadable_kind(document: &Json<'_>) -> Option<String> {
    Head::read(document).err().map(|why| format!("couldn't get version/kind; json parse error: {why}"))
}

/// What a document says that it is.
struct Head {
    api_version: String,
    kind: String,
}

impl Head {
    fn read(document: &Json<'_>) -> Result<Head, String> {
        let Json::Object(_) = document else {
            if matches!(document, Json::Null) {
                return Ok(Head { api_version: String::new(), kind: String::new() });
            }
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                document.kind()
            ));
        };
        let text = |name: &str, go: &str| match document.get(name) {
            None | Some(Json::Null) => Ok(String::new()),
            Some(Json::String(text)) => Ok(text.to_string()),
            Some(other) => {
                Err(format!("json: cannot unmarshal {} into Go struct field .{name} of type {go}", other.kind()))
            }
        };
        Ok(Head { api_version: text("apiVersion", "string")?, kind: text("kind", "string")? })
    }

    fn with_defaults(self, expected: &GroupVersion, kind: &str) -> Result<(GroupVersion, String), String> {
        let found_kind = if self.kind.is_empty() { kind.to_owned() } else { self.kind };
        let found = match &*self.api_version {
            "" => expected.clone(),
            text => text.parse().map_err(|error| format!("{error}"))?,
        };
        Ok((found, found_kind))
    }
}

/// The beginning of a body, for an error message.
fn summarize(bytes: &[u8]) -> String {
    match bytes {
        [] => "<empty>".to_owned(),
        [b'{', ..] if bytes.len() > SUMMARY_BYTES => {
            format!("{} ...", String::from_utf8_lossy(&bytes[..SUMMARY_BYTES]))
        }
        [b'{', ..] => String::from_utf8_lossy(bytes).into_owned(),
        _ => {
            bytes.iter().take(SUMMARY_BYTES).map(|byte| format!("{byte:02x}")).collect::<String>()
                + if bytes.len() > SUMMARY_BYTES { " ..." } else { "" }
        }
    }
}
