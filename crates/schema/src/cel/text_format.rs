//! `format`: texts with places for values.

use super::EvalError;
use super::calls::{Evaluated, unfit};
use super::convert::double_text;
use super::strings::TEXT_BYTES_MAX;
use super::time::seconds_text;
use super::types::Type;
use super::value::{List, Value, Weighed};

/// The most digits that a number may be shown with.
const PRECISION_MAX: usize = 1000;

/// The text with its places filled.
pub(super) fn format<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::String(pattern), Value::List(values)] = args else { return unfit() };
    filled(pattern.as_str(), values).map(Value::text)
}

/// A piece of a format.
#[derive(Debug, PartialEq)]
pub(super) enum Clause<'a> {
    Text(&'a str),
    /// A value, how it is to be shown, and with how many digits.
    Value(char, Option<usize>),
}

/// The pieces of a format.
pub(super) fn clauses(pattern: &str) -> Result<Vec<Clause<'_>>, EvalError> {
    let (mut rest, mut found) = (pattern, Vec::new());
    while let Some(place) = rest.find('%') {
        found.push(Clause::Text(&rest[..place]));
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            found.push(Clause::Text("%"));
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let number = after[..digits].parse::<usize>().ok().filter(|digits| *digits <= PRECISION_MAX);
            precision = Some(number.ok_or_else(|| EvalError::failed("error while parsing precision"))?);
            rest = &after[digits..];
        }
        let Some(kind) = rest.chars().next() else {
            return Err(EvalError::failed("could not parse formatting clause: unexpected end of string"));
        };
        if !"sdfebxXo".contains(kind) {
            let message = format!("could not parse formatting clause: unrecognized formatting clause \"{kind}\"");
            return Err(EvalError::failed(message));
        }
        found.push(Clause::Value(kind, precision));
        rest = &rest[kind.len_utf8()..];
    }
    found.push(Clause::Text(rest));
    Ok(found)
}

/// Why a value of this type can't be shown so; None if it can, or if that can't be told yet.
pub(super) fn unfit_type(kind: char, ty: &Type) -> Option<String> {
    let fits = match (kind, ty) {
        (_, Type::Dyn) => true,
        ('s', ty) => !matches!(ty, Type::Object(_) | Type::Named(_) | Type::Optional(_)),
        ('d' | 'o', ty) => matches!(ty, Type::Int | Type::Uint),
        ('f' | 'e', ty) => matches!(ty, Type::Double | Type::String),
        ('b', ty) => matches!(ty, Type::Int | Type::Uint | Type::Bool),
        (_, ty) => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    let name = match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(_) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        other => other.to_string(),
    };
    if fits { None } else { Some(unfit_message(kind, &name)) }
}

fn unfit_message(kind: char, name: &str) -> String {
    let (what, on) = match kind {
        's' => {
            let on = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
            ("string", on)
        }
        'd' => ("decimal", "integers"),
        'f' => ("fixed-point", "doubles"),
        'e' => ("scientific", "doubles"),
        'b' => ("binary", "integers and bools"),
        'o' => ("octal", "integers"),
        _ => ("hex", "integers, byte buffers, and strings"),
    };
    format!("error during formatting: {what} clause can only be used on {on}, was given {name}")
}

fn filled(pattern: &str, values: &List<'_>) -> Result<String, EvalError> {
    let (mut at, mut found) = (0, String::new());
    for piece in clauses(pattern)? {
        match piece {
            Clause::Text(text) => found.push_str(text),
            Clause::Value(kind, precision) => {
                if at >= values.len() {
                    return Err(EvalError::failed(format!("index {at} out of range")));
                }
                let value = values.get(at)?;
                // A text of many parts is at least as long.
                if found.len() as u64 + value.weight() + value.size() > TEXT_BYTES_MAX as u64 {
                    return Err(EvalError::CostExceeded);
                }
                found.push_str(&clause(kind, precision, &value)?);
                at += 1;
            }
        }
    }
    Ok(found)
}

fn clause(kind: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, EvalError> {
    let wrong = |_: &str| Err(EvalError::failed(unfit_message(kind, value.type_name())));
    match (kind, value) {
        ('s', value) => shown(value),
        ('d', Value::Int(number)) => Ok(number.to_string()),
        ('d', Value::Uint(number)) => Ok(number.to_string()),
        ('d', Value::Double(number)) if !number.is_finite() => Ok(infinite(*number)),
        ('d', _) => wrong("decimal"),
        ('f', value) => match as_double(value) {
            Some(number) if !number.is_finite() => Ok(infinite(number)),
            Some(number) => Ok(format!("{number:.*}", precision.unwrap_or(6))),
            None => wrong("fixed-point"),
        },
        ('e', value) => match as_double(value) {
            Some(number) if !number.is_finite() => Ok(infinite(number)),
            Some(number) => Ok(exponent(number, precision.unwrap_or(6))),
            None => wrong("scientific"),
        },
        ('b', Value::Int(number)) => Ok(radix(*number, |number| format!("{number:b}"))),
        ('b', Value::Uint(number)) => Ok(format!("{number:b}")),
        ('b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        ('b', _) => wrong("binary"),
        ('o', Value::Int(number)) => Ok(radix(*number, |number| format!("{number:o}"))),
        ('o', Value::Uint(number)) => Ok(format!("{number:o}")),
        ('o', _) => wrong("octal"),
        ('x', Value::Int(number)) => Ok(radix(*number, |number| format!("{number:x}"))),
        ('X', Value::Int(number)) => Ok(radix(*number, |number| format!("{number:X}"))),
        ('x', Value::Uint(number)) => Ok(format!("{number:x}")),
        ('X', Value::Uint(number)) => Ok(format!("{number:X}")),
        ('x', Value::String(text)) => Ok(hex(text.as_str().as_bytes())),
        ('X', Value::String(text)) => Ok(hex(text.as_str().as_bytes()).to_uppercase()),
        ('x', Value::Bytes(bytes)) => Ok(hex(bytes)),
        ('X', Value::Bytes(bytes)) => Ok(hex(bytes).to_uppercase()),
        _ => wrong("hex"),
    }
}

fn as_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

fn infinite(number: f64) -> String {
    match (number.is_nan(), number > 0.0) {
        (true, _) => "NaN".to_owned(),
        (false, true) => "Infinity".to_owned(),
        (false, false) => "-Infinity".to_owned(),
    }
}

fn radix(number: i64, shown: fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", shown(number.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let raised = |digit: char| match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => digit.to_digit(10).and_then(|digit| char::from_u32('⁰' as u32 + digit)).unwrap_or(digit),
    };
    let (sign, power) = power.strip_prefix('-').map_or(("", power), |power| ("-", power));
    let power: String = format!("{sign}{power:0>2}").chars().map(raised).collect();
    format!("{mantissa}×10{power}")
}

/// A value as `%s` shows it.
fn shown(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => text.as_str().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) if !number.is_finite() => infinite(*number),
        Value::Double(number) => double_text(*number),
        Value::Null => "null".to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(nanos) => seconds_text(*nanos),
        Value::Type(name) => name.to_string(),
        Value::List(list) => {
            let items: Vec<_> = list.items()?.iter().map(shown_inside).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                if let Some(value) = map.find(&key)? {
                    entries.push(format!("{}:{}", shown_inside(&key)?, shown_inside(&value)?));
                }
            }
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => return Err(EvalError::failed(unfit_message('s', other.type_name()))),
    })
}

/// As part of a list or map, where texts are quoted.
fn shown_inside(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::String(text) => Ok(super::strings::quoted(text.as_str())),
        other => shown(other),
    }
}
