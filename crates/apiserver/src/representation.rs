//! How the client wants its answer: as the object, a table, or metadata only; JSON or YAML.

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::{Edit, Kind};

use crate::content::ACCEPTED;
use crate::query::Query;

/// What the answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All of it.
    Object,
    /// A row of its table.
    Table,
    /// Metadata only.
    Partial,
    /// A list of metadata only.
    PartialList,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// What the client asked for.
#[derive(Clone, Copy, Debug)]
pub struct Representation {
    /// What it shows.
    pub form: Form,
    /// How it is written.
    pub media: Media,
    /// With line breaks.
    pub pretty: bool,
    /// Version of the `meta.k8s.io` form: `v1` or `v1beta1`.
    pub version: &'static str,
}

/// Group, version and kind of a stored object are shorter than this.
const TYPE_BYTES_MAX: usize = 512;

const WATCH_MEDIA: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Whether there is anything that a client reads of what a built-in kind is written in. Kubernetes asks this of all but custom kinds,
/// before anything else: a collection may be followed, so it has the forms of watches too.
pub fn check_available(headers: &HeaderMap, is_collection: bool) -> Result<(), Box<Status>> {
    let accept = accepted(headers);
    let known = |clause: &str| clause == "*/*" || ACCEPTED.contains(&clause);
    if accept.trim().is_empty() || accept.split(',').any(|clause| known(Clause::parse(clause).media)) {
        return Ok(());
    }
    Err(nothing_available(is_collection))
}

/// How a refusal is written: it is never a table.
pub fn media_of_refusal(headers: &HeaderMap) -> Media {
    let accept = accepted(headers);
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    let media = clauses.iter().filter(|clause| clause.shape.is_empty()).find_map(Clause::media);
    media.unwrap_or(Media::Json)
}

/// All that `Accept` says.
fn accepted(headers: &HeaderMap) -> String {
    headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}

impl Representation {
    /// Reads it from the headers.
    pub fn of(headers: &HeaderMap, query: &Query<'_>, watch: bool) -> Result<Representation, Box<Status>> {
        let accept = accepted(headers);
        let pretty = wants_pretty(headers, query);
        let plain = Representation { form: Form::Object, media: Media::Json, pretty, version: "v1" };
        if accept.trim().is_empty() {
            return Ok(plain);
        }
        let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        for clause in &clauses {
            let Some(media) = clause.media() else { continue };
            if let Some((form, version)) = clause.form() {
                if watch && media == Media::Yaml {
                    return Err(Box::new(Status::not_acceptable(&WATCH_MEDIA)));
                }
                return Ok(Representation { form, media, pretty, version });
            }
        }
        Err(Box::new(Status::not_acceptable(&ACCEPTED)))
    }
}

fn nothing_available(is_collection: bool) -> Box<Status> {
    let mut available = ACCEPTED.to_vec();
    if is_collection {
        available.extend(WATCH_MEDIA);
    }
    let mut status = Status::not_acceptable(&[]);
    status.message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    status.details = Some(setpoint_api::StatusDetails::default());
    Box::new(status)
}

/// `pretty` decides; without it people's tools get line breaks and programs don't.
pub fn wants_pretty(headers: &HeaderMap, query: &Query<'_>) -> bool {
    match query.get("pretty") {
        "" if query.has("pretty") => false,
        "" => {
            let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

struct Clause<'a> {
    media: &'a str,
    quality: f32,
    shape: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let mut clause = Clause { media, quality: 1.0, shape: "", group: "", version: "" };
        for part in parts {
            match part.split_once('=') {
                Some(("q", value)) => clause.quality = value.parse().unwrap_or(1.0),
                Some(("as", value)) => clause.shape = value,
                Some(("g", value)) => clause.group = value,
                Some(("v", value)) => clause.version = value,
                _ => {}
            }
        }
        clause
    }

    fn media(&self) -> Option<Media> {
        match self.media {
            "*/*" | "application/json" => Some(Media::Json),
            "application/yaml" => Some(Media::Yaml),
            _ => None,
        }
    }

    fn form(&self) -> Option<(Form, &'static str)> {
        let version = match self.version {
            "v1beta1" => "v1beta1",
            _ => "v1",
        };
        let known = self.group == "meta.k8s.io" && matches!(self.version, "v1" | "v1beta1");
        match self.shape {
            "" => Some((Form::Object, "v1")),
            "Table" if known => Some((Form::Table, version)),
            "PartialObjectMetadata" if known => Some((Form::Partial, version)),
            "PartialObjectMetadataList" if known => Some((Form::PartialList, version)),
            _ => None,
        }
    }
}

/// What a table shows of the objects beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Their metadata.
    Metadata,
    /// All of them.
    Object,
}

impl Include {
    /// Reads `includeObject`.
    pub fn of(query: &Query<'_>) -> Result<Include, Box<Status>> {
        match query.get("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "None" => Ok(Include::None),
            "Object" => Ok(Include::Object),
            other => Err(Box::new(Status::bad_request(format!(
                "unrecognized includeObject value: {}",
                setpoint_api::quote::quote(other)
            )))),
        }
    }
}

/// A table of these objects.
pub fn table(
    kind: &Kind,
    objects: &[Value],
    metadata: Value,
    include: Include,
    version: &str,
    now: i64,
    headings: bool,
) -> Value {
    let columns = kind.behaviour.columns();
    let rows: Vec<Value> = objects.iter().map(|object| row(kind, &columns, object, include, version, now)).collect();
    let definitions: Vec<Value> =
        if headings { columns.iter().map(setpoint_schema::Column::definition).collect() } else { Vec::new() };
    let definitions = if headings { json!(definitions) } else { Value::Null };
    // Where a kind has no columns of its own, Kubernetes prints no rows as null.
    let plain = std::ptr::eq(columns.as_ptr(), setpoint_schema::columns::DEFAULT.as_ptr());
    let rows = if rows.is_empty() && plain { Value::Null } else { json!(rows) };
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn row(
    kind: &Kind,
    columns: &[setpoint_schema::Column<'_>],
    object: &Value,
    include: Include,
    version: &str,
    now: i64,
) -> Value {
    let mut cells: Vec<Value> = columns.iter().map(|column| column.cell(object, now)).collect();
    cells.extend(kind.behaviour.cells_without_column(object, now));
    let conditions = kind.behaviour.row_conditions(object);
    let mut row = json!({"cells": cells});
    if !conditions.is_empty() {
        row.set("conditions", conditions);
    }
    let shown = match include {
        Include::None => Value::Null,
        Include::Metadata => {
            let mut shown = partial(object, version);
            kind.behaviour.row_metadata(&mut shown["metadata"]);
            shown
        }
        Include::Object => object.clone(),
    };
    row.set("object", shown);
    row
}

/// Writes the metadata of an object from its stored form, in which it follows the type: what comes after isn't read.
/// Says whether it could be.
pub fn write_partial(stored: &[u8], version: &str, out: &mut Vec<u8>) -> bool {
    const NAME: &[u8] = b"\"metadata\":";
    let Some(at) = stored.windows(NAME.len()).take(TYPE_BYTES_MAX).position(|window| window == NAME) else {
        return false;
    };
    let mut values = serde_json::Deserializer::from_slice(&stored[at + NAME.len()..]).into_iter::<&RawValue>();
    let Some(Ok(metadata)) = values.next() else { return false };
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    out.extend_from_slice(metadata.get().as_bytes());
    out.push(b'}');
    true
}

/// The metadata of an object.
pub fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_taken_from_the_stored_form() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "\"}"}}, "spec": {"metadata": {}}});
        let (stored, _) = crate::objects::encode(&object, false);
        let mut out = b"before ".to_vec();
        assert!(write_partial(&stored, "v1", &mut out));
        let written: Value = serde_json::from_slice(&out["before ".len()..]).unwrap();
        assert_eq!(written, partial(&object, "v1"));
    }

    #[test]
    fn refusals_are_written_as_the_client_reads_them() {
        for (accept, media) in [
            ("application/json;q=0.5,application/yaml", Media::Yaml),
            ("application/yaml;as=Table;g=meta.k8s.io;v=v1", Media::Json),
            ("application/yaml;as=Table;g=meta.k8s.io;v=v1,application/yaml", Media::Yaml),
            ("text/html", Media::Json),
            ("", Media::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, http::HeaderValue::from_static(accept))]);
            assert_eq!(media_of_refusal(&headers), media, "{accept}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_left_alone() {
        for text in ["", "{}", "{\"metadata\":", "{\"metadata\":{\"name\":", "[1, 2]"] {
            let mut out = Vec::new();
            assert!(!write_partial(text.as_bytes(), "v1", &mut out), "{text}");
            assert!(out.is_empty());
        }
    }
}
