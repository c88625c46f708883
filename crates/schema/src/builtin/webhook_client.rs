//! Where a webhook is: a URL or a service. Shared by admission webhooks and the conversion of custom kinds.

use setpoint_api::name;
use setpoint_api::quote::quote;

use crate::errors::Errors;
use crate::node::Node;

const FORM: &str = "; desired format: https://host[/path]";

/// A webhook's URL is https with a host, and with nothing that only a browser needs.
pub fn validate_url(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(reason) => {
            let detail = format!("url must be a valid URL: parse {}: {reason}{FORM}", quote(text));
            return errs.required(at, detail);
        }
    };
    if url.scheme != "https" {
        errs.invalid(at, url.scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        errs.invalid(at, "", format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        errs.invalid(at, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errs.invalid(at, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errs.invalid(at, url.query, "query parameters are not permitted in the URL");
    }
}

/// A webhook's service has a name, a namespace, a port, and a path of DNS names.
pub fn validate_service(service: &Node<'_>, errs: &mut Errors) {
    // Upstream mixes the two up: what it misses is called by the other's name.
    if service.str("namespace").is_empty() {
        errs.required(&service.get("name"), "");
    }
    if service.str("name").is_empty() {
        errs.required(&service.get("namespace"), "");
    }
    let port = service.get("port");
    let complaints = name::is_valid_port_num(port.as_int().unwrap_or(0));
    if !complaints.is_empty() {
        errs.invalid(&port, port.as_int().unwrap_or(0), format!("port is not valid: {}", complaints.join(", ")));
    }
    validate_path(&service.get("path"), errs);
}

fn validate_path(at: &Node<'_>, errs: &mut Errors) {
    let path = at.as_str();
    match path {
        "" | "/" => return,
        "//" => return errs.invalid(at, path, "segment[0] may not be empty"),
        _ => {}
    }
    if !path.starts_with('/') {
        errs.invalid(at, path, "must start with a '/'");
    }
    let mut rest = path.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errs.invalid(at, path, format!("segment[{index}] may not be empty"));
            continue;
        }
        for complaint in name::dns1123_subdomain(segment) {
            errs.invalid(at, path, format!("segment[{index}]: {complaint}"));
        }
    }
}

/// The parts of a URL, split as Go splits them.
struct Url {
    scheme: String,
    user: Option<String>,
    host: String,
    query: String,
    fragment: String,
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if rest.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = split_scheme(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            user: None,
            host: String::new(),
            query: query.to_owned(),
            fragment: fragment.to_owned(),
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        let has_authority = rest.starts_with("//") && (!scheme.is_empty() || !rest.starts_with("///"));
        if let Some(rest) = rest.strip_prefix("//").filter(|_| has_authority) {
            let (authority, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (url.user, url.host) = split_authority(&url.scheme, authority)?;
            path = after;
        }
        check_escapes(path, |_| true)?;
        check_escapes(fragment, |_| true)?;
        Ok(url)
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn split_authority(scheme: &str, authority: &str) -> Result<(Option<String>, String), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let port = if let Some(literal) = host.strip_prefix('[') {
        let Some((address, port)) = literal.rsplit_once(']') else { return Err("missing ']' in host".to_owned()) };
        if address.split('%').next().is_none_or(|text| text.parse::<std::net::Ipv6Addr>().is_err()) {
            return Err(format!("invalid host: ParseAddr({}): unable to parse IP", quote(address)));
        }
        port
    } else if host.contains('[') {
        return Err("invalid IP-literal".to_owned());
    } else {
        // A host name of the web has one colon at most.
        let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
        let port = colon.map_or("", |at| &host[at..]);
        check_port(port)?;
        check_escapes(host, |byte| byte >= 0x80)?;
        check_host(host)?;
        ""
    };
    check_port(port)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if user.is_some_and(|user| !user.chars().all(allowed)) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    Ok((user.map(str::to_owned), host.to_owned()))
}

fn check_port(port: &str) -> Result<(), String> {
    let digits = port.strip_prefix(':').unwrap_or(port);
    let good = port.is_empty() || (port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if good { Ok(()) } else { Err(format!("invalid port {} after host", quote(port))) }
}

fn check_host(host: &str) -> Result<(), String> {
    let good = |c: &char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(*c);
    match host.chars().find(|c| !good(c)) {
        Some(bad) => Err(format!("invalid character {} in host name", quote(&bad.to_string()))),
        None => Ok(()),
    }
}

/// That every `%` starts two hex digits, and stands for an allowed byte.
fn check_escapes(text: &str, allowed: impl Fn(u8) -> bool) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte =
            digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|d| u8::from_str_radix(d, 16).ok());
        if !byte.is_some_and(|byte| byte == b'%' || allowed(byte)) {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_as_go_splits_it() {
        for (text, expected) in [
            ("https://u:p@h:1/a%20b?q#f", Ok(("https", Some("u:p"), "h:1", "q", "f"))),
            ("HTTPS://h", Ok(("https", None, "h", "", ""))),
            ("mailto:x", Ok(("mailto", None, "", "", ""))),
            ("/path", Ok(("", None, "", "", ""))),
            ("https://[::1]:8443", Ok(("https", None, "[::1]:8443", "", ""))),
            (":x", Err("missing protocol scheme")),
            ("1a:x", Err("first path segment in URL cannot contain colon")),
            ("https://h:x", Err("invalid port \":x\" after host")),
            ("https://a b", Err("invalid character \" \" in host name")),
            ("https://h/%zz", Err("invalid URL escape \"%zz\"")),
            ("https://h\n", Err("net/url: invalid control character in URL")),
        ] {
            let got = Url::parse(text);
            let got = got.as_ref().map(|u| (&*u.scheme, u.user.as_deref(), &*u.host, &*u.query, &*u.fragment));
            assert_eq!(got.map_err(|error| error.as_str()), expected, "{text}");
        }
    }
}
