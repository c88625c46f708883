//! Who signs service account tokens, for those outside of the cluster who read them: OpenID Connect discovery.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::server::Inner;
use crate::tokens::ISSUER;
use crate::{answer, health};

/// How long readers may keep what they got.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The path of the keys.
const KEYS: &str = "/openid/v1/jwks";

/// What is said of the issuer: the part of the provider's metadata that readers of tokens need.
#[derive(Serialize)]
struct Metadata {
    issuer: &'static str,
    jwks_uri: String,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: [&'static str; 1],
}

/// `/.well-known/openid-configuration`.
pub(crate) fn configuration(server: &Inner, parts: &http::request::Parts) -> Response<Body> {
    let address = server.address.get().copied().unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)));
    let address = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    };
    let metadata = Metadata {
        issuer: ISSUER,
        jwks_uri: format!("https://{address}{KEYS}"),
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["ES256"],
    };
    document(server, parts, &metadata, HeaderValue::from_static("application/json"))
}

/// `/openid/v1/jwks`.
pub(crate) fn keys(server: &Inner, parts: &http::request::Parts) -> Response<Body> {
    let keys = server.signer.get().map(|signer| signer.public_keys());
    document(server, parts, &keys, HeaderValue::from_static("application/jwk-set+json"))
}

/// A server that signs no tokens has nothing to say.
fn document(
    server: &Inner,
    parts: &http::request::Parts,
    document: &impl Serialize,
    media: HeaderValue,
) -> Response<Body> {
    if server.signer.get().is_none() {
        return answer::page_not_found();
    }
    if parts.method != Method::GET {
        return answer::status(&health::method_not_allowed());
    }
    let bytes = serde_json::to_vec(document).expect("a document is always encodable");
    let mut response = answer::json(StatusCode::OK, bytes);
    response.headers_mut().insert(CONTENT_TYPE, media);
    response.headers_mut().insert(CACHE_CONTROL, CACHED);
    response
}
