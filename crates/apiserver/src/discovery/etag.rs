//! Entity tags: a client that has a document already isn't sent it again.

use http::header::{ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Response};
use ring::digest;

/// The tag of a document.
pub(crate) fn of(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA512, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Whether the client has the document with this tag.
pub(crate) fn matches(headers: &HeaderMap, etag: &str) -> bool {
    let is_ours = |text: &str| {
        let text = text.trim();
        let text = text.strip_prefix("W/").unwrap_or(text);
        text == "*" || text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) == Some(etag)
    };
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(is_ours)
}

/// Tells the client the tag.
pub(crate) fn set(response: &mut Response<crate::body::Body>, etag: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        response.headers_mut().insert(ETAG, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_a_list_quoted_or_weak() {
        for (given, expected) in [
            ("\"AB\"", true),
            ("W/\"AB\"", true),
            ("\"X\", \"AB\"", true),
            ("*", true),
            ("AB", false),
            ("\"ABC\"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(given));
            assert_eq!(matches(&headers, "AB"), expected, "{given}");
        }
    }
}
