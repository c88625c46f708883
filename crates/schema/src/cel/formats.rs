//! Formats of texts by their names.

use setpoint_api::name;

use super::calls::{Evaluated, Run};
use super::time::Instant;
use super::url::Url;
use super::value::{Special, Value};

/// The names, and how long the pattern of each is taken to be when it is paid for.
pub(super) const FORMATS: &[(&str, u64)] = &[
    ("dns1123Label", 30),
    ("dns1123Subdomain", 60),
    ("dns1035Label", 30),
    ("qualifiedName", 60),
    ("dns1123LabelPrefix", 30),
    ("dns1123SubdomainPrefix", 60),
    ("dns1035LabelPrefix", 30),
    ("labelValue", 40),
    ("uri", 1103),
    ("uuid", 70),
    ("byte", 84),
    ("date", 71),
    ("datetime", 71),
];

/// The format of this name.
pub(super) fn find(name: &str) -> Option<&'static str> {
    FORMATS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// How long the pattern of a format is taken to be.
pub(super) fn pattern_chars(name: &str) -> u64 {
    FORMATS.iter().find(|(known, _)| *known == name).map_or(0, |(_, chars)| *chars)
}

/// The function that gives a format.
pub(super) fn constant(name: &str) -> Option<Run> {
    fn gives<'a, const AT: usize>(_: &[Value<'a>]) -> Evaluated<'a> {
        Ok(Value::special(Special::Format(FORMATS[AT].0)))
    }
    const RUNS: [Run; 13] = [
        gives::<0>,
        gives::<1>,
        gives::<2>,
        gives::<3>,
        gives::<4>,
        gives::<5>,
        gives::<6>,
        gives::<7>,
        gives::<8>,
        gives::<9>,
        gives::<10>,
        gives::<11>,
        gives::<12>,
    ];
    FORMATS.iter().position(|(known, _)| *known == name).map(|at| RUNS[at])
}

/// What is wrong with a text.
pub(super) fn complaints(format: &str, text: &str) -> Vec<String> {
    let only = |sound: bool, message: &str| if sound { Vec::new() } else { vec![message.to_owned()] };
    match format {
        "dns1123Label" => name::dns1123_label(text),
        "dns1123Subdomain" => name::dns1123_subdomain(text),
        "dns1035Label" => name::dns1035_label(text),
        "qualifiedName" => name::qualified_name(text),
        "dns1123LabelPrefix" => name::dns1123_label(&without_dash(text)),
        "dns1123SubdomainPrefix" => name::dns1123_subdomain(&without_dash(text)),
        "dns1035LabelPrefix" => name::dns1035_label(&without_dash(text)),
        "labelValue" => name::label_value(text),
        "uri" => Url::parse(text).err().into_iter().collect(),
        "uuid" => only(is_uuid(text), "does not match the UUID format"),
        "byte" => only(super::base64::decode(text).is_some() && !text.is_empty(), "invalid base64"),
        "date" => only(Instant::parse_date(text).is_some(), "invalid date"),
        _ => only(Instant::parse_lenient(text).is_some(), "invalid datetime"),
    }
}

/// What is to be generated may end in a dash.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.to_lowercase().split('-').collect();
    digits.len() == 32
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && [0, 4].contains(&text.matches('-').count())
}
