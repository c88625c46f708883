//! One step of a path into an object, and the order of the values it is told apart by.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};
use setpoint_api::quote::quote;

use crate::json::{self, Json};
use crate::patch::value_text;

/// How a child is found in its parent. The order is the one in which sets are written.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of an object.
    Field(String),
    /// The item of a list whose keys have these values; sorted by name.
    Key(Vec<(String, Value)>),
    /// The item of a set that is this scalar.
    Value(Value),
    /// The item at this place.
    Index(i64),
}

/// Why a step could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementError {
    /// A kind of step that a later version may know: it is left out.
    Unknown,
    /// Not a step at all.
    Malformed(String),
}

impl Element {
    /// A field of an object.
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// A step as it stands in `fieldsV1`: `f:name`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    pub fn parse(text: &str) -> Result<Self, ElementError> {
        let malformed = |what: &str| ElementError::Malformed(what.to_owned());
        if text.len() < 2 {
            return Err(malformed("key must be 2 characters long:"));
        }
        if text.as_bytes()[1] != b':' {
            return Err(ElementError::Malformed(format!("missing colon: {text}")));
        }
        // Both bytes before it are one character each: the second is a colon, so the first is no part of a longer one.
        let (kind, rest) = (text.as_bytes()[0], &text[2..]);
        match kind {
            b'f' => Ok(Self::field(rest)),
            b'v' => read(rest).map(|value| Self::Value(value.into_value())),
            b'k' => match read(rest)? {
                Json::Object(fields) => {
                    Ok(Self::key(fields.into_iter().map(|(k, v)| (k.into_owned(), v.into_value()))))
                }
                _ => Err(malformed("a key must be an object")),
            },
            b'i' => rest.parse().map(Self::Index).map_err(|_| malformed("an index must be a whole number")),
            _ => Err(ElementError::Unknown),
        }
    }

    /// The item of a list whose keys have these values.
    pub fn key(fields: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// The step as it stands in `fieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(&mut out, name);
                    out.push(':');
                    write_json(&mut out, value);
                }
                out.push('}');
                out
            }
            Self::Value(value) => {
                let mut out = String::from("v:");
                write_json(&mut out, value);
                out
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// As messages show it: `.name`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b).map(|((n, v), (m, w))| n.cmp(m).then_with(|| order(v, w)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// A total order of values: numbers by size whatever their form, then strings, flags, lists, objects, null.
pub fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let different = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|o| o.is_ne());
            different.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => order_objects(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn order_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let pairs = a.iter().zip(b).map(|((n, v), (m, w))| n.cmp(m).then_with(|| order(v, w)));
    pairs.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Numbers that are whole and fit 64 bits are compared exactly, all others as floats.
fn order_numbers(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a_whole, b_whole) => {
            let float = |n: &Number| n.as_f64().unwrap_or(0.0);
            // A whole number that rounds up to a float beyond 64 bits is still the smaller one.
            float(a).total_cmp(&float(b)).then_with(|| a_whole.is_none().cmp(&b_whole.is_none()))
        }
    }
}

/// 2^63: from here on a float is no 64-bit whole number.
const WHOLE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|_| number.is_f64())?;
        (float.fract() == 0.0 && (-WHOLE_LIMIT..WHOLE_LIMIT).contains(&float)).then_some(float as i64)
    })
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn read(text: &str) -> Result<Json<'_>, ElementError> {
    json::parse(text.as_bytes()).map_err(|error| ElementError::Malformed(error.to_string()))
}

/// A value as messages show it in a path.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect(),
        Value::Bool(_) | Value::Number(_) => value_text(value),
    }
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, name);
                out.push(':');
                write_json(out, value);
            }
            out.push('}');
        }
    }
}

/// Whole numbers without a fraction; an exponent only where a number is very small or very large.
fn write_number(out: &mut String, number: &Number) {
    // Writing to a string cannot fail.
    let _ = match (whole(number), number.as_f64()) {
        (Some(whole), _) => write!(out, "{whole}"),
        (None, Some(float)) if (1e-6..1e21).contains(&float.abs()) => write!(out, "{float}"),
        (None, Some(float)) => {
            let text = format!("{float:e}");
            let sign = if text.contains("e-") { "e" } else { "e+" };
            write!(out, "{}", text.replacen('e', sign, 1))
        }
        (None, None) => write!(out, "{number}"),
    };
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_are_read_and_written() {
        for (text, canonical, shown) in [
            ("f:a.b/c", "f:a.b/c", ".a.b/c"),
            ("f:", "f:", "."),
            (r#"k:{"b":"x","a":1.0}"#, r#"k:{"a":1,"b":"x"}"#, r#"[a=1,b="x"]"#),
            (r#"v:"a<b""#, r#"v:"a\u003cb""#, r#"[="a<b"]"#),
            ("v:1.5", "v:1.5", "[=1.5]"),
            ("v:1e30", "v:1e+30", "[=1e+30]"),
            ("v:true", "v:true", "[=true]"),
            ("v:null", "v:null", "[=null]"),
            ("v:\"\\u0008\\n\"", r#"v:"\u0008\n""#, r#"[="\b\n"]"#),
            ("i:3", "i:3", "[3]"),
        ] {
            let element = Element::parse(text).unwrap();
            assert_eq!((element.encode().as_str(), element.to_string().as_str()), (canonical, shown), "{text}");
            assert_eq!(Element::parse(&element.encode()), Ok(element));
        }
    }

    #[test]
    fn what_is_no_step_is_refused_and_what_is_new_is_told_apart() {
        assert_eq!(Element::parse("x:y"), Err(ElementError::Unknown));
        for text in ["", "f", "ff", "éx", "é:", "v:", "v:1 2", "k:1", "k:{", "i:x", "i:9999999999999999999"] {
            assert!(matches!(Element::parse(text), Err(ElementError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn the_order_is_by_kind_and_then_by_content() {
        let steps = [
            "f:a",
            "f:b",
            r#"k:{"a":1}"#,
            r#"k:{"a":1,"b":1}"#,
            r#"k:{"a":"1"}"#,
            "v:1",
            "v:1.5",
            "v:2",
            "v:\"1\"",
            "i:0",
        ];
        for pair in steps.windows(2) {
            let (a, b) = (Element::parse(pair[0]).unwrap(), Element::parse(pair[1]).unwrap());
            assert_eq!((a.cmp(&b), b.cmp(&a)), (Ordering::Less, Ordering::Greater), "{pair:?}");
        }
    }

    #[test]
    fn numbers_are_equal_by_size() {
        for (a, b, expected) in [
            (json!(1), json!(1.0), Ordering::Equal),
            (json!(9007199254740993_i64), json!(9007199254740992_i64), Ordering::Greater),
            (json!(i64::MAX), json!(9223372036854775808.0), Ordering::Less),
            (json!(0.0), json!(-0.0), Ordering::Equal),
            (json!(-1), json!(0.5), Ordering::Less),
        ] {
            assert_eq!(order(&a, &b), expected, "{a} {b}");
        }
    }
}
