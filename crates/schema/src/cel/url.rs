//! Locations, read as Go reads those of requests.

/// A location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
    text: String,
}

impl Url {
    /// Reads an absolute location or path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("parse {text:?}: {why}"));
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return wrong("net/url: invalid control character in URL");
        }
        if text.is_empty() {
            return wrong("empty url");
        }
        let (scheme, rest) = match scheme(text) {
            Ok(found) => found,
            Err(why) => return wrong(why),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(Self {
                    scheme,
                    host: String::new(),
                    path: String::new(),
                    query: query.into(),
                    text: text.into(),
                });
            }
            return wrong("invalid URI for request");
        }
        let (mut host, mut path) = ("", rest);
        if (!scheme.is_empty() || rest.starts_with("///"))
            && let Some(inner) = rest.strip_prefix("//")
        {
            let end = inner.find('/').unwrap_or(inner.len());
            (host, path) = (&inner[..end], &inner[end..]);
            host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        }
        if let Err(why) = check_host(host) {
            return wrong(&why);
        }
        if let Some(bad) = bad_escape(path) {
            return wrong(&format!("invalid URL escape {bad:?}"));
        }
        Ok(Self { scheme, host: host.into(), path: escaped(path), query: query.into(), text: text.into() })
    }

    pub(super) fn hostname(&self) -> &str {
        let host = self.port_split().0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(super) fn port(&self) -> &str {
        self.port_split().1
    }

    fn port_split(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (&self.host, ""),
        }
    }

    /// The parameters in the order of their first mention, with all their values.
    pub(super) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (unescaped(key), unescaped(value)) else { continue };
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        found
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((text[..at].to_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((_, after)) = rest.rsplit_once(']') else { return Err("missing ']' in host".to_owned()) };
        return check_port(after);
    }
    if let Some(at) = host.find(':') {
        check_port(&host[host.rfind(':').unwrap_or(at)..])?;
    }
    match host.chars().find(|letter| matches!(letter, ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}')) {
        Some(letter) => Err(format!("invalid character {:?} in host name", letter.to_string())),
        None => Ok(()),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    let sound =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    if sound { Ok(()) } else { Err(format!("invalid port {port:?} after host")) }
}

fn bad_escape(path: &str) -> Option<&str> {
    let mut from = 0;
    while let Some(at) = path[from..].find('%').map(|at| at + from) {
        let bytes = path.as_bytes();
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if !hex(at + 1) || !hex(at + 2) {
            let end = path.char_indices().map(|(at, _)| at).chain([path.len()]).find(|end| *end >= at + 3);
            return path.get(at..end.unwrap_or(path.len()));
        }
        from = at + 3;
    }
    None
}

/// The path with what may not stand in it escaped.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&byte);
    path.bytes().fold(String::new(), |mut text, byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

fn unescaped(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, Vec::with_capacity(bytes.len()));
    while at < bytes.len() {
        match bytes[at] {
            b'+' => found.push(b' '),
            b'%' => {
                let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
                found.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            byte => found.push(byte),
        }
        at += 1;
    }
    String::from_utf8(found).ok()
}
