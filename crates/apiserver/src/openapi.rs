//! OpenAPI: version 2 as one document, version 3 as one per group version. Clients explain and check objects with them.

mod cache;
mod custom;
mod definitions;
mod document;
mod operations;
mod parameters;
mod proto;

use std::sync::Arc;

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::body::{Body, full};
use crate::discovery::{etag, groups};
use crate::query::Query;
use crate::registry::{Registry, Served};
use crate::{answer, compression};
use cache::Document;
use definitions::Dialect;
use document::Encoding;

/// Answers the paths below `/openapi`.
pub(crate) fn answer(registry: &Registry, parts: &http::request::Parts, rest: &[&str]) -> Response<Body> {
    match rest {
        ["v2"] => match encoding(&parts.headers, Dialect::V2) {
            None => empty(StatusCode::NOT_ACCEPTABLE),
            Some(encoding) => {
                let document = cache::document("", &all(registry), Dialect::V2, encoding);
                send(&parts.headers, &document, Dialect::V2, encoding)
            }
        },
        ["v3"] => index(registry, &parts.headers),
        ["v3", "api", version] => group_version(registry, parts, "", version),
        ["v3", "apis", group, version] => group_version(registry, parts, group, version),
        ["v3", ..] => empty(StatusCode::NOT_FOUND),
        _ => answer::page_not_found(),
    }
}

/// `/openapi/v3`: where the documents are, under addresses that change with their content.
fn index(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    let mut paths = Map::new();
    for group in groups(registry) {
        for version in &group.versions {
            let name = name(&group.name, version);
            let etag = cache::etag(&name, &of_version(registry, &group.name, version), Dialect::V3);
            paths.insert(name.clone(), json!({"serverRelativeURL": address(&name, &etag)}));
        }
    }
    let bytes = Value::from(Map::from_iter([("paths".to_owned(), Value::Object(paths))])).to_string();
    let tag = etag::of(bytes.as_bytes());
    let mut response = if etag::matches(headers, &tag) {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        answer::json(StatusCode::OK, bytes)
    };
    etag::set(&mut response, &tag);
    response
}

fn group_version(registry: &Registry, parts: &http::request::Parts, group: &str, version: &str) -> Response<Body> {
    let kinds = of_version(registry, group, version);
    if kinds.is_empty() {
        return empty(StatusCode::NOT_FOUND);
    }
    let Some(encoding) = encoding(&parts.headers, Dialect::V3) else { return empty(StatusCode::NOT_ACCEPTABLE) };
    let name = name(group, version);
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let hash = query.get("hash");
    if !hash.is_empty() {
        let etag = cache::etag(&name, &kinds, Dialect::V3);
        if hash != &*etag {
            return moved(&address(&name, &etag));
        }
    }
    let document = cache::document(&name, &kinds, Dialect::V3, encoding);
    let mut response = send(&parts.headers, &document, Dialect::V3, encoding);
    if !hash.is_empty() {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    response
}

fn all(registry: &Registry) -> Vec<Arc<Served>> {
    registry.kinds().cloned().collect()
}

fn of_version(registry: &Registry, group: &str, version: &str) -> Vec<Arc<Served>> {
    let kinds = registry.kinds();
    kinds.filter(|served| served.kind.group == group && served.kind.version == version).cloned().collect()
}

fn name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn address(name: &str, etag: &str) -> String {
    format!("/openapi/v3/{name}?hash={etag}")
}

/// The first encoding in the client's order that we have.
fn encoding(headers: &HeaderMap, dialect: Dialect) -> Option<Encoding> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).filter(|text| !text.trim().is_empty());
    let Some(accept) = accept else { return Some(Encoding::Json) };
    let quality = |clause: &str| {
        let given = clause.split(';').filter_map(|part| part.trim().strip_prefix("q=")).find_map(|q| q.parse().ok());
        given.unwrap_or(1.0f32)
    };
    let mut clauses: Vec<&str> = accept.split(',').collect();
    clauses.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
    clauses.iter().find_map(|clause| match clause.split(';').next().unwrap_or("").trim() {
        "*/*" | "application/*" | "application/json" => Some(Encoding::Json),
        media if media == protobuf(dialect) || media == protobuf_of_old(dialect) => Some(Encoding::Protobuf),
        _ => None,
    })
}

fn protobuf(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V2 => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        Dialect::V3 => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    }
}

/// The name that clients ask for: it has a character that media types can't have, so answers use the other one.
fn protobuf_of_old(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V2 => "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        Dialect::V3 => "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    }
}

fn send(headers: &HeaderMap, document: &Document, dialect: Dialect, encoding: Encoding) -> Response<Body> {
    let mut response = if etag::matches(headers, &document.etag) {
        empty(StatusCode::NOT_MODIFIED)
    } else if compression::is_taken(headers) {
        let mut response = Response::new(full(document.gzip()));
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        Response::new(full(document.plain()))
    };
    let media = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => protobuf(dialect),
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    etag::set(&mut response, &document.etag);
    response
}

fn moved(address: &str) -> Response<Body> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    if let Ok(value) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, value);
    }
    response
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests;
