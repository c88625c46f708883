//! What calls cost when they are evaluated. The figures are those of cel-go and Kubernetes: a rule that runs there must run here.

use super::value::{List, Map, Special, Value};

/// What making a list costs.
pub(super) const LIST: u64 = 10;
/// What making a map costs.
pub(super) const MAP: u64 = 30;
/// What making an object costs.
pub(super) const STRUCT: u64 = 40;
/// What looking at one character costs.
pub(super) const CHARACTER: f64 = 0.1;
/// What one character of a pattern costs.
pub(super) const PATTERN_CHARACTER: f64 = 0.25;
/// How long the pattern of a format is taken to be.
pub(super) const FORMAT_PATTERN_CHARS: u64 = 128;

/// How the cost of a call follows from what it is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cost {
    Fixed(u64),
    /// Going over everything in the first argument.
    Traversal,
    /// The characters of the first argument, so many times.
    Characters(f64),
    /// Twice the characters of the result.
    Joined,
    /// The characters of the first two arguments.
    BothCharacters,
    /// The characters of the shorter of the first two arguments.
    ShorterCharacters,
    /// Each character of the first with each of the second.
    Contains,
    /// A pattern applied to a text.
    Pattern,
    /// The items of the second argument.
    Items,
    /// The items of the result.
    NewItems,
    /// The items of the first argument, as deep as the second says.
    Flatten,
    /// Every item of the argument at this place with every other.
    Pairs(usize),
    /// Every item of the first with every item of the second, so many times.
    Sets(f64),
    /// A format applied to a text.
    Format,
    /// Whether a network has an address; whether it is a text.
    ContainsAddress(bool),
    /// Whether a network has another; whether it is a text.
    ContainsNetwork(bool),
    /// A selector that is read.
    Selector,
}

impl Cost {
    /// The cost of a function, by the one overload that fits or `""`.
    pub(super) fn of(function: &str, overload: &str) -> Self {
        match overload {
            "list_slice" | "lists_range" | "list_reverse" => return Self::NewItems,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::Pairs(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Sets(1.0),
            "list_sets_equivalent_list" => return Self::Sets(2.0),
            _ if overload.ends_with("_sort") => return Self::Pairs(0),
            _ if overload.ends_with("_sortByAssociatedKeys") => return Self::Pairs(1),
            _ => {}
        }
        match function {
            "check" => return Self::Fixed(350_000),
            "fieldSelector" | "labelSelector" => return Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Self::Traversal,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => return Self::Characters(1.0),
            "ip" if overload != "cidr_ip" => return Self::Characters(1.0),
            "replace" | "split" | "ip.isCanonical" => return Self::Characters(2.0),
            "join" => return Self::Joined,
            "find" | "findAll" => return Self::Pattern,
            "containsIP" => return Self::ContainsAddress(overload == "cidr_contains_ip_string"),
            "containsCIDR" => return Self::ContainsNetwork(overload == "cidr_contains_cidr_string"),
            "validate" => return Self::Format,
            _ => {}
        }
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
            | "string_format" => Self::Characters(1.0),
            "in_list" => Self::Items,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::ShorterCharacters,
            "add_string" | "add_bytes" => Self::BothCharacters,
            "matches_string" => Self::Pattern,
            "contains_string" => Self::Contains,
            _ => Self::Fixed(1),
        }
    }
}

/// What a call cost.
pub(super) fn count(cost: &Cost, args: &[Value<'_>], result: &Value<'_>) -> u64 {
    let size = |at: usize| args.get(at).map_or(1, Value::size);
    match cost {
        Cost::Fixed(cost) => *cost,
        Cost::Traversal => args.first().map_or(0, traversal),
        Cost::Characters(times) => characters(size(0), *times),
        Cost::Joined => characters(result.size(), 2.0),
        Cost::BothCharacters => characters(size(0).saturating_add(size(1)), 1.0),
        Cost::ShorterCharacters => characters(size(0).min(size(1)), 1.0),
        Cost::Contains => characters(size(0), 1.0).saturating_mul(characters(size(1), 1.0)),
        Cost::Pattern => pattern(size(0), size(1)),
        Cost::Items => size(1),
        Cost::NewItems => result.size().saturating_add(1 + LIST),
        Cost::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => *depth as f64,
                _ => 1.0,
            };
            ((size(0) as f64 * depth) as u64).saturating_add(1 + LIST)
        }
        Cost::Pairs(at) => pairs(args.get(*at)),
        Cost::Sets(times) => 1 + (size(0).saturating_mul(size(1)) as f64 * times) as u64,
        Cost::Format => match args.first() {
            Some(Value::Special(special)) => match &**special {
                Special::Format(name) => pattern(size(1), super::formats::pattern_chars(name)),
                _ => 1,
            },
            _ => 1,
        },
        Cost::ContainsAddress(text) => characters(size(0) * 2, 1.0) + if *text { characters(size(1), 1.0) } else { 0 },
        Cost::ContainsNetwork(text) => {
            characters(size(0) * 2, 1.0)
                + characters(size(0), 1.0)
                + 1
                + if *text { characters(size(1), 1.0) } else { 0 }
        }
        Cost::Selector => LIST + characters(size(1), 1.0) + (size(1) as f64 * 0.5).ceil() as u64 * (LIST + STRUCT),
    }
}

/// What comparing two values costs; the types that Kubernetes adds are cheap for `==` alone.
pub(super) fn equality(equals: bool, a: &Value<'_>, b: &Value<'_>) -> u64 {
    if equals && matches!(a, Value::Special(_)) {
        return 1;
    }
    characters(a.size().min(b.size()), 1.0)
}

fn characters(size: u64, times: f64) -> u64 {
    (size as f64 * times * CHARACTER).ceil() as u64
}

/// One more than the text is long, so that an empty text costs something, too.
fn pattern(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * CHARACTER).ceil() as u64;
    text.saturating_mul((pattern as f64 * PATTERN_CHARACTER).ceil() as u64)
}

fn pairs(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 + LIST };
    let texts = !list.is_empty() && matches!(list.get(0), Ok(Value::String(_) | Value::Bytes(_)));
    let size = list.len() as f64;
    (size * size * if texts { 2.0 + CHARACTER } else { 2.0 }) as u64 + 1 + LIST
}

fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.as_str().len() as f64 * CHARACTER) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * CHARACTER) as u64,
        Value::List(list) => items(list),
        Value::Map(map) => entries(map),
        _ => 1,
    }
}

fn items(list: &List<'_>) -> u64 {
    (0..list.len()).map(|at| list.get(at).map_or(1, |item| traversal(&item))).sum()
}

fn entries(map: &Map<'_>) -> u64 {
    let value = |key: &Value<'_>| map.find(key).ok().flatten().map_or(1, |value| traversal(&value));
    map.keys().iter().map(|key| traversal(key) + value(key)).sum()
}
