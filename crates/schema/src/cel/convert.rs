//! Conversions between types, and values as texts.

use std::fmt;

use setpoint_api::time::parse_duration;

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::time::{Instant, seconds_text};
use super::value::{Special, Value};

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "bool" => to_bool,
        "bytes" => to_bytes,
        "double" => to_double,
        "duration" => to_duration,
        "int" => to_int,
        "string" => to_string,
        "timestamp" => to_timestamp,
        "uint" => to_uint,
        _ => return None,
    })
}

fn wrong<'a>(value: &Value<'_>, to: &str) -> Evaluated<'a> {
    Err(EvalError::failed(format!("type conversion error from '{}' to '{to}'", value.type_name())))
}

fn to_bool<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [value @ Value::String(text)] => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => wrong(value, "bool"),
        },
        _ => unfit(),
    }
}

fn to_bytes<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => Ok(Value::Bytes(text.as_str().as_bytes().into())),
        _ => unfit(),
    }
}

fn to_double<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Double(number)] => Ok(Value::Double(*number)),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [value @ Value::String(text)] => match go_double(text.as_str()) {
            Some(number) => Ok(Value::Double(number)),
            None => wrong(value, "double"),
        },
        _ => unfit(),
    }
}

/// A number as Go reads it: without white space, and within range.
fn go_double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let named = text.trim_start_matches(['+', '-']).to_lowercase();
    if number.is_infinite() && !named.starts_with("inf") { None } else { Some(number) }
}

fn to_int<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let overflow = || EvalError::failed("integer overflow");
    match args {
        [Value::Int(number)] => Ok(Value::Int(*number)),
        [Value::Uint(number)] => i64::try_from(*number).map(Value::Int).map_err(|_| overflow()),
        [Value::Double(number)] => {
            let fits = *number > i64::MIN as f64 && *number < i64::MAX as f64;
            if fits { Ok(Value::Int(*number as i64)) } else { Err(overflow()) }
        }
        [Value::Timestamp(time)] => Ok(Value::Int(time.seconds)),
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [value @ Value::String(text)] => match text.as_str().parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => wrong(value, "int"),
        },
        _ => unfit(),
    }
}

fn to_uint<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let overflow = || EvalError::failed("unsigned integer overflow");
    match args {
        [Value::Uint(number)] => Ok(Value::Uint(*number)),
        [Value::Int(number)] => u64::try_from(*number).map(Value::Uint).map_err(|_| overflow()),
        [Value::Double(number)] => {
            let fits = *number >= 0.0 && *number < u64::MAX as f64;
            if fits { Ok(Value::Uint(*number as u64)) } else { Err(overflow()) }
        }
        [value @ Value::String(text)] => match text.as_str().parse() {
            Ok(number) if !text.as_str().starts_with('+') => Ok(Value::Uint(number)),
            _ => wrong(value, "uint"),
        },
        _ => unfit(),
    }
}

fn to_duration<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Duration(nanos)] | [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
        [value @ Value::String(text)] => match parse_duration(text.as_str()) {
            Ok(nanos) => Ok(Value::Duration(nanos)),
            Err(_) => wrong(value, "google.protobuf.Duration"),
        },
        _ => unfit(),
    }
}

fn to_timestamp<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => match Instant::new(*seconds, 0) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => Err(EvalError::failed("timestamp overflow")),
        },
        [value @ Value::String(text)] => match Instant::parse(text.as_str()) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => wrong(value, "google.protobuf.Timestamp"),
        },
        _ => unfit(),
    }
}

fn to_string<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::text(match args {
        [value @ Value::String(_)] => return Ok(value.clone()),
        [Value::Bool(value)] => value.to_string(),
        [Value::Int(number)] => number.to_string(),
        [Value::Uint(number)] => number.to_string(),
        [Value::Double(number)] => double_text(*number),
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        [Value::Timestamp(time)] => time.to_string(),
        [Value::Duration(nanos)] => seconds_text(*nanos),
        [Value::Special(special)] => match &**special {
            Special::Ip(ip) => ip.to_string(),
            Special::Cidr(ip, bits) => format!("{ip}/{bits}"),
            _ => return unfit(),
        },
        _ => return unfit(),
    }))
}

/// A number in its shortest form, with an exponent where Go writes one.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let size = number.abs();
    if number == 0.0 || (1e-4..1e6).contains(&size) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{mantissa}e{sign}{power:0>2}")
}

/// As it would be written in an expression.
impl fmt::Display for Value<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Bool(value) => write!(formatter, "{value}"),
            Self::Int(number) => write!(formatter, "{number}"),
            Self::Uint(number) => write!(formatter, "{number}u"),
            Self::Double(number) if !number.is_finite() => {
                let name = if number.is_nan() { "NaN" } else { "Infinity" };
                write!(formatter, "double(\"{}{name}\")", if *number < 0.0 { "-" } else { "" })
            }
            Self::Double(number) => {
                let text = double_text(*number);
                let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                write!(formatter, "{text}{}", if plain { ".0" } else { "" })
            }
            Self::String(text) => write!(formatter, "{:?}", text.as_str()),
            Self::Bytes(bytes) => {
                formatter.write_str("b\"")?;
                bytes.iter().try_for_each(|byte| write!(formatter, "\\{byte:03o}"))?;
                formatter.write_str("\"")
            }
            Self::Timestamp(time) => write!(formatter, "timestamp(\"{time}\")"),
            Self::Duration(nanos) => write!(formatter, "duration(\"{}\")", seconds_text(*nanos)),
            Self::Type(name) => formatter.write_str(name),
            Self::Optional(None) => formatter.write_str("optional.none()"),
            Self::Optional(Some(inner)) => write!(formatter, "optional.of({inner})"),
            Self::Preserved(json) => write!(formatter, "{json}"),
            Self::Special(special) => match &**special {
                Special::Quantity(quantity) => write!(formatter, "quantity(\"{quantity}\")"),
                Special::Ip(ip) => write!(formatter, "{ip}"),
                Special::Cidr(ip, bits) => write!(formatter, "{ip}/{bits}"),
                Special::Url(url) => write!(formatter, "url(\"{url}\")"),
                Special::Semver(version) => {
                    write!(formatter, "semver(\"{}.{}.{}\")", version.major, version.minor, version.patch)
                }
                Special::Format(name) => write!(formatter, "format.{name}()"),
                Special::Authorizer(_)
                | Special::PathCheck(..)
                | Special::GroupCheck(..)
                | Special::ResourceCheck(..)
                | Special::Decision(_) => formatter.write_str(self.type_name()),
            },
            Self::List(list) => {
                formatter.write_str("[")?;
                for place in 0..list.len() {
                    formatter.write_str(if place > 0 { ", " } else { "" })?;
                    match list.get(place) {
                        Ok(item) => write!(formatter, "{item}")?,
                        Err(error) => write!(formatter, "{error}")?,
                    }
                }
                formatter.write_str("]")
            }
            Self::Map(map) => {
                formatter.write_str("{")?;
                for (place, key) in map.keys().iter().enumerate() {
                    formatter.write_str(if place > 0 { ", " } else { "" })?;
                    match map.find(key) {
                        Ok(Some(value)) => write!(formatter, "{key}: {value}")?,
                        Ok(None) => write!(formatter, "{key}: null")?,
                        Err(error) => write!(formatter, "{key}: {error}")?,
                    }
                }
                formatter.write_str("}")
            }
        }
    }
}
