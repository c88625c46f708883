//! YAML in: the first document as the same tree that JSON gives, by the rules of YAML 1.1 that Kubernetes clients rely
//! on (`yes` is true, `0777` is octal), with its aliases expanded within bounds.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use setpoint_api::quote;

use crate::base64;
use crate::json::{Json, NESTING_MAX};

/// Most bytes of text that aliases may add. A body is at most 3 MiB, so this leaves room for any honest use.
const ALIAS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most values that aliases may add: where upstream draws the line for small documents.
const ALIAS_VALUES_MAX: usize = 400_000;

/// A YAML document.
#[derive(Debug)]
pub struct Yaml {
    /// The document, fields sorted by key as a conversion to JSON sorts them.
    pub json: Json<'static>,
    /// Keys that stand twice in a map, in document order: `line 7: key "a" already set in map`. The last one won.
    pub doubled: Vec<String>,
}

/// Not YAML, or YAML that JSON can't say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError(String);

impl fmt::Display for YamlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for YamlError {}

/// Reads the first document; what follows it is not looked at. No document at all is null.
pub fn parse(bytes: &[u8]) -> Result<Yaml, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| error("invalid leading UTF-8 octet"))?;
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        doubled: Vec::new(),
        alias_values: 0,
        alias_bytes: 0,
    };
    let json = reader.document()?;
    Ok(Yaml { json, doubled: reader.doubled })
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Json<'static>>,
    doubled: Vec<String>,
    alias_values: usize,
    alias_bytes: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Json<'static>, YamlError> {
        loop {
            match self.next()?.0 {
                Event::StreamEnd => return Ok(Json::Null),
                Event::DocumentStart(_) => break,
                _ => {}
            }
        }
        let (event, _) = self.next()?;
        self.value(event, 0)
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(problem)) => {
                // The parser says what it was doing, then what went wrong; the second part is what clients know.
                let what = match problem.info() {
                    tabs if tabs.contains("tabs disallowed") => "found character that cannot start any token",
                    info => info.rsplit(", ").next().unwrap_or_default(),
                };
                // Upstream counts lines from zero when the grammar is broken, and from one when a token is.
                let zero_based = usize::from(problem.info().starts_with("while parsing"));
                match problem.marker().line().saturating_sub(zero_based) {
                    0 => Err(error(what)),
                    line => Err(error(&format!("line {line}: {what}"))),
                }
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Json<'static>, YamlError> {
        if depth > NESTING_MAX {
            return Err(error("exceeded max depth"));
        }
        let (anchor, json) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(anchor, _) => (anchor, self.sequence(depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(depth)?),
            Event::Alias(anchor) => return self.alias(anchor, depth),
            _ => (0, Json::Null),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, json.clone());
        }
        Ok(json)
    }

    fn sequence(&mut self, depth: usize) -> Result<Json<'static>, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()?.0 {
                Event::SequenceEnd => return Ok(Json::Array(items)),
                event => items.push(self.value(event, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Json<'static>, YamlError> {
        let mut fields: std::collections::BTreeMap<String, Json<'static>> = std::collections::BTreeMap::new();
        loop {
            let (event, _) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Json::Object(fields.into_iter().map(|(key, value)| (Cow::Owned(key), value)).collect()));
            }
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.value(event, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.value(event, depth + 1)?;
            if merge {
                merge_into(&mut fields, value)?;
                continue;
            }
            let shown = if let Json::String(text) = &key { quote::quote(text) } else { String::new() };
            let key = key_text(key)?;
            let shown = if shown.is_empty() { key.clone() } else { shown };
            if fields.insert(key, value).is_some() {
                self.doubled.push(format!("line {}: key {shown} already set in map", span.start.line()));
            }
        }
    }

    fn alias(&mut self, anchor: usize, depth: usize) -> Result<Json<'static>, YamlError> {
        let Some(json) = self.anchors.get(&anchor) else { return Err(error("anchor value contains itself")) };
        let size = measure(json);
        self.alias_values += size.values;
        self.alias_bytes += size.bytes;
        if self.alias_values > ALIAS_VALUES_MAX || self.alias_bytes > ALIAS_BYTES_MAX {
            return Err(error("document contains excessive aliasing"));
        }
        if depth + size.depth > NESTING_MAX {
            return Err(error("exceeded max depth"));
        }
        Ok(json.clone())
    }
}

struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

fn measure(json: &Json<'_>) -> Size {
    let parts: Vec<(usize, &Json<'_>)> = match json {
        Json::Array(items) => items.iter().map(|item| (0, item)).collect(),
        Json::Object(fields) => fields.iter().map(|(key, value)| (key.len(), value)).collect(),
        Json::String(text) | Json::Number(text) => return Size { values: 1, bytes: text.len(), depth: 0 },
        Json::Null | Json::Bool(_) => return Size { values: 1, bytes: 0, depth: 0 },
    };
    let mut total = Size { values: 1, bytes: 0, depth: 0 };
    for (key_bytes, part) in parts {
        let size = measure(part);
        total.values += size.values;
        total.bytes += size.bytes + key_bytes;
        total.depth = total.depth.max(size.depth + 1);
    }
    total
}

/// `<<: *base` or `<<: [*a, *b]`: the fields of other maps.
fn merge_into(
    fields: &mut std::collections::BTreeMap<String, Json<'static>>,
    value: Json<'static>,
) -> Result<(), YamlError> {
    let maps = match value {
        Json::Array(maps) => maps.into_iter().rev().collect(),
        map => vec![map],
    };
    for map in maps {
        let Json::Object(members) = map else {
            return Err(error("map merge requires map or sequence of maps as the value"));
        };
        fields.extend(members.into_iter().map(|(key, value)| (key.into_owned(), value)));
    }
    Ok(())
}

fn key_text(key: Json<'static>) -> Result<String, YamlError> {
    match key {
        Json::String(text) | Json::Number(text) => Ok(text.into_owned()),
        Json::Bool(flag) => Ok(flag.to_string()),
        other => Err(YamlError(format!("unsupported map key of type: {}", other.kind()))),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Json<'static>, YamlError> {
    let string = || Json::String(text.to_owned().into());
    match tag {
        None if style == ScalarStyle::Plain => resolve(text),
        None => Ok(string()),
        Some(tag) if !tag.is_yaml_core_schema() => Ok(string()),
        Some(tag) if tag.suffix == "binary" => {
            let bytes = base64::decode(text).map_err(|_| error("!!binary value contains invalid base64 data"))?;
            Ok(Json::String(String::from_utf8_lossy(&bytes).into_owned().into()))
        }
        Some(tag) if tag.suffix == "str" => Ok(string()),
        Some(_) => resolve(text),
    }
}

/// What an unquoted word means in YAML 1.1.
fn resolve(text: &str) -> Result<Json<'static>, YamlError> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Json::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Json::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Err(YamlError("json: unsupported value: NaN".to_owned())),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err(YamlError("json: unsupported value: +Inf".to_owned()));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err(YamlError("json: unsupported value: -Inf".to_owned())),
        _ => number(text).map_or_else(|| Json::String(text.to_owned().into()), |n| Json::Number(n.into())),
    })
}

/// The digits of a number, if the word is one.
fn number(text: &str) -> Option<String> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return None;
    }
    let plain = if text.starts_with('.') { text.to_owned() } else { text.replace('_', "") };
    let (negative, digits) = match plain.as_bytes().first() {
        Some(b'-') => (true, &plain[1..]),
        Some(b'+') => (false, &plain[1..]),
        _ => (false, plain.as_str()),
    };
    if let Some(whole) = magnitude(digits) {
        match (negative, i128::from(whole)) {
            (true, whole) if -whole >= i128::from(i64::MIN) => return Some((-whole).to_string()),
            (false, whole) if i64::try_from(whole).is_ok() || !plain.starts_with('+') => {
                return Some(whole.to_string());
            }
            _ => {}
        }
    }
    let float: f64 = if is_float(digits) { plain.parse().ok()? } else { return None };
    float.is_finite().then(|| float.to_string())
}

/// A whole number in the base that its beginning tells.
fn magnitude(digits: &str) -> Option<u64> {
    let (base, rest) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let sound = rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if sound { u64::from_str_radix(rest, base).ok() } else { None }
}

/// Digits with an optional fraction and exponent.
fn is_float(digits: &str) -> bool {
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let sound = all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let power = exponent.map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    sound && power.is_none_or(|p| !p.is_empty() && all_digits(p))
}

fn error(problem: &str) -> YamlError {
    YamlError(format!("yaml: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, expected: &str) {
        assert_eq!(parse(text.as_bytes()).unwrap().json.into_value().to_string(), expected);
    }

    #[track_caller]
    fn fails(text: &str, expected: &str) {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), expected);
    }

    #[test]
    fn unquoted_words_mean_what_yaml_1_1_says() {
        for (word, expected) in [
            ("yes", "true"),
            ("off", "false"),
            ("~", "null"),
            ("\"yes\"", "\"yes\""),
            ("0777", "511"),
            ("08", "8"),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("1_000", "1000"),
            ("+5", "5"),
            ("-5", "-5"),
            ("1.0", "1"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.2.3", "\"1.2.3\""),
            ("2001-01-01", "\"2001-01-01\""),
            ("12:30:00", "\"12:30:00\""),
            ("!!str 5", "\"5\""),
            ("-", "[null]"),
        ] {
            reads(word, expected);
        }
    }

    #[test]
    fn documents_become_json_with_sorted_keys() {
        reads("b: 1\na:\n- x\n- {c: d}\n1: one\ntrue: t\n", r#"{"1":"one","a":["x",{"c":"d"}],"b":1,"true":"t"}"#);
        reads("a: |\n  x\n  y\n---\nb: 2\n", r#"{"a":"x\ny\n"}"#);
        reads("", "null");
        reads("{\"a\": [1, 2]}", r#"{"a":[1,2]}"#);
    }

    #[test]
    fn aliases_and_merges_are_expanded() {
        reads("a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}\n", r#"{"a":{"k":1},"b":{"k":1},"c":{"k":1,"l":2}}"#);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..9 {
            let row = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
        }
        fails(&bomb, "yaml: document contains excessive aliasing");
        let text = "x".repeat(1024 * 1024);
        fails(
            &format!("a: &a {text}\nb: [{}]", vec!["*a"; 20].join(",")),
            "yaml: document contains excessive aliasing",
        );
        fails("a: &a [*a]", "yaml: anchor value contains itself");
        fails(&"[".repeat(NESTING_MAX + 2), "yaml: exceeded max depth");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn doubled_keys_are_told_and_the_last_wins() {
        let yaml = parse(b"data:\n  a: \"2\"\n  a: \"3\"\n").unwrap();
        assert_eq!(yaml.doubled, ["line 3: key \"a\" already set in map"]);
        assert_eq!(yaml.json.into_value().to_string(), r#"{"data":{"a":"3"}}"#);
    }

    #[test]
    fn syntax_errors_are_worded_as_clients_know_them() {
        fails("a: [", "yaml: line 1: did not find expected node content");
        fails("kind:\n\t- x", "yaml: line 2: found character that cannot start any token");
        assert!(parse(b"\xff").is_err());
    }
}
