//! Which form of discovery a client asks for.

use http::HeaderMap;
use http::header::{ACCEPT, HeaderValue};

/// The media type of discovery in one document. Its beta form is gone since Kubernetes 1.35.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All groups and resources in one document.
    Aggregated,
    /// The old documents.
    Plain,
}

impl Wanted {
    /// The first form in the client's order that we have.
    pub(super) fn of(headers: &HeaderMap) -> Wanted {
        let text = accept(headers);
        let mut clauses: Vec<Clause<'_>> = text.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        for clause in clauses.iter().filter(|clause| clause.is_json()) {
            match (clause.group, clause.version, clause.form) {
                ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => return Wanted::Aggregated,
                (_, _, "") => return Wanted::Plain,
                _ => {}
            }
        }
        Wanted::Plain
    }
}

/// The headers with the forms of objects (tables and the like) left out of `Accept` where a plain one is acceptable too:
/// the old documents have no other form.
pub(super) fn without_forms(headers: &HeaderMap) -> HeaderMap {
    let text = accept(headers);
    let plain: Vec<&str> = text.split(',').filter(|clause| Clause::parse(clause).form.is_empty()).collect();
    let mut headers = headers.clone();
    if let Ok(value) = HeaderValue::from_str(&plain.join(","))
        && !plain.is_empty()
    {
        headers.insert(ACCEPT, value);
    }
    headers
}

fn accept(headers: &HeaderMap) -> String {
    headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}

#[derive(Default)]
struct Clause<'a> {
    media: &'a str,
    quality: f32,
    group: &'a str,
    version: &'a str,
    form: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Clause { media: parts.next().unwrap_or(""), quality: 1.0, ..Clause::default() };
        for part in parts {
            match part.split_once('=') {
                Some(("q", value)) => clause.quality = value.parse().unwrap_or(1.0),
                Some(("g", value)) => clause.group = value,
                Some(("v", value)) => clause.version = value,
                Some(("as", value)) => clause.form = value,
                _ => {}
            }
        }
        clause
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &'static str, expected: Wanted) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(Wanted::of(&headers), expected, "{accept}");
    }

    #[test]
    fn the_first_known_form_wins() {
        check(AGGREGATED, Wanted::Aggregated);
        check("application/json", Wanted::Plain);
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            Wanted::Plain,
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
             application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Wanted::Aggregated,
        );
        check("application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", Wanted::Plain);
        check(
            "application/json;q=0.5, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;q=0.9",
            Wanted::Aggregated,
        );
    }
}
