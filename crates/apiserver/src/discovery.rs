//! What is served, told to clients: the root's paths, groups, versions and resources, and the documents beside them.

mod aggregated;
pub(crate) mod etag;
mod groups;
mod legacy;
mod negotiation;

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, VARY};
use http::{HeaderMap, Method, Response, StatusCode};
use serde::Serialize;
use setpoint_api::Status;

pub(crate) use groups::{Group, groups};

use crate::body::Body;
use crate::content::ACCEPTED;
use crate::query::Query;
use crate::registry::Registry;
use crate::representation::{self, Form, Media, Representation};
use crate::server::{Inner, unknown_resource};
use crate::{answer, health, metrics, node_metrics, openapi, openid, yaml_out};
use aggregated::{Aggregated, Part};
use negotiation::Wanted;

/// Everything that is neither a resource nor open to all.
pub(crate) fn answer(
    server: &Inner,
    registry: &Arc<Registry>,
    parts: &http::request::Parts,
    segments: &[&str],
) -> Response<Body> {
    let reads = parts.method == Method::GET;
    match segments {
        [""] => document(parts, &legacy::paths(registry)),
        // Upstream's router knows only GET here; the paths below `/apis` are plain handlers that take any method.
        ["api"] | ["api", "v1"] | ["apis", _, _] if !reads => answer::status(&health::method_not_allowed()),
        ["api"] => grouped(parts, registry, Part::Core, || legacy::versions(host(parts))),
        ["apis"] => {
            let beside = metrics_group(server);
            let part = if beside.is_some() { Part::NamedWithMetrics } else { Part::Named };
            grouped(parts, registry, part, || legacy::group_list(registry, beside))
        }
        ["api", "v1"] => document(parts, &legacy::resource_list(registry, "", "v1")),
        ["apis", group] => match groups(registry).iter().find(|found| found.name == *group) {
            Some(group) => document(parts, &legacy::group(group)),
            None => match metrics_group(server).filter(|served| served.name == *group) {
                Some(group) => document(parts, &legacy::group(&group)),
                None => answer::page_not_found(),
            },
        },
        ["apis", group, version] if registry.has_version(group, version) => {
            document(parts, &legacy::resource_list(registry, group, version))
        }
        [_, node_metrics::GROUP, node_metrics::VERSION] if node_metrics::is_served(server) => {
            document(parts, &node_metrics::resource_list())
        }
        ["metrics"] => metrics::answer(Some(&server.metrics), server),
        [".well-known", "openid-configuration"] => openid::configuration(server, parts),
        ["openid", "v1", "jwks"] => openid::keys(server, parts),
        ["openapi", rest @ ..] => openapi::answer(registry, parts, rest),
        ["apis", group, _] if groups::is_builtin(group) => answer::status(&unknown_resource()),
        _ => answer::page_not_found(),
    }
}

/// The group with the figures of nodes and pods, if it is served.
fn metrics_group(server: &Inner) -> Option<Group> {
    let versions = vec![node_metrics::VERSION.to_owned()];
    node_metrics::is_served(server).then(|| Group { name: node_metrics::GROUP.to_owned(), versions })
}

/// A document that clients may ask for in its short old form, or with all its resources at once.
fn grouped<T: Serialize>(
    parts: &http::request::Parts,
    registry: &Arc<Registry>,
    part: Part,
    short: impl FnOnce() -> T,
) -> Response<Body> {
    match Wanted::of(&parts.headers) {
        Wanted::Aggregated => aggregated_answer(&parts.headers, &aggregated::of(registry, part)),
        Wanted::Plain => document(parts, &short()),
    }
}

fn aggregated_answer(headers: &HeaderMap, document: &Aggregated) -> Response<Body> {
    let mut response = if etag::matches(headers, &document.etag) {
        let mut response = Response::new(crate::body::full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = answer::json(StatusCode::OK, document.bytes.clone());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(negotiation::AGGREGATED));
        response
    };
    etag::set(&mut response, &document.etag);
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// A document in the form that the client asked for.
fn document(parts: &http::request::Parts, value: &impl Serialize) -> Response<Body> {
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let headers = negotiation::without_forms(&parts.headers);
    let form =
        representation::check_available(&headers, false).and_then(|()| Representation::of(&headers, &query, false));
    match form {
        Err(status) => answer::status(&status),
        Ok(other) if other.form != Form::Object => answer::status(&Status::not_acceptable(&ACCEPTED)),
        Ok(Representation { media: Media::Yaml, .. }) => {
            let value = serde_json::to_value(value).expect("a document is always encodable");
            let mut response = answer::json(StatusCode::OK, yaml_out::write(&value));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
            response
        }
        Ok(Representation { pretty: true, .. }) => answer::pretty(StatusCode::OK, value),
        Ok(_) => answer::value(StatusCode::OK, value),
    }
}

/// The address under which the client found us.
fn host(parts: &http::request::Parts) -> &str {
    let header = parts.headers.get(http::header::HOST).and_then(|value| value.to_str().ok());
    header.or(parts.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("127.0.0.1:6443")
}
