//! How Go prints documents: as JSON for the message of a refused patch, and as `%v` for errors about maps and lists.

use std::fmt::{self, Write};

use serde_json::{Number, Value};

use crate::json::Json;

/// A document as Go's encoder writes it: no spaces, `<`, `>` and `&` escaped.
pub fn json_text(json: &Json<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_json(&mut out, json);
    out
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub fn value_text(value: &Value) -> String {
    let mut out = String::new();
    let _ = write_value(&mut out, value);
    out
}

/// A number as Go's `%v` prints it.
pub(super) fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    }
}

/// Bytes that Go needs for a string in JSON, quotes included.
pub(super) fn string_bytes(text: &str) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = write_string(&mut count, text);
    count.0
}

fn write_json(out: &mut String, json: &Json<'_>) -> fmt::Result {
    match json {
        Json::Null => out.write_str("null"),
        Json::Bool(flag) => write!(out, "{flag}"),
        Json::Number(text) => out.write_str(text),
        Json::String(text) => write_string(out, text),
        Json::Array(items) => {
            out.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.write_char(',')?;
                }
                write_json(out, item)?;
            }
            out.write_char(']')
        }
        Json::Object(fields) => {
            out.write_char('{')?;
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.write_char(',')?;
                }
                write_string(out, key)?;
                out.write_char(':')?;
                write_json(out, value)?;
            }
            out.write_char('}')
        }
    }
}

fn write_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let escaped = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => "",
            _ => continue,
        };
        out.write_str(&text[plain..at])?;
        plain = at + character.len_utf8();
        match escaped {
            "" => write!(out, "\\u{:04x}", character as u32)?,
            _ => out.write_str(escaped)?,
        }
    }
    out.write_str(&text[plain..])?;
    out.write_char('"')
}

fn write_value(out: &mut String, value: &Value) -> fmt::Result {
    match value {
        Value::Null => out.write_str("<nil>"),
        Value::Bool(flag) => write!(out, "{flag}"),
        Value::Number(number) => out.write_str(&number_text(number)),
        Value::String(text) => out.write_str(text),
        Value::Array(items) => {
            out.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.write_char(' ')?;
                }
                write_value(out, item)?;
            }
            out.write_char(']')
        }
        Value::Object(fields) => {
            out.write_str("map[")?;
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.write_char(' ')?;
                }
                write!(out, "{key}:")?;
                write_value(out, value)?;
            }
            out.write_char(']')
        }
    }
}

/// The shortest form; with an exponent of at least two digits where the number is very small or a million and more.
fn float_text(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e6).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_keeps_order_and_digits_and_escapes_as_go() {
        let check = |text: &str, expected: &str| {
            let json = crate::json::parse(text.as_bytes()).unwrap();
            assert_eq!(json_text(&json), expected);
        };
        check(r#"{ "b" : 1.0, "a" : [ true , null ] }"#, r#"{"b":1.0,"a":[true,null]}"#);
        check(r#""a<b>&\u2028\u0001\n\t\"\\é""#, r#""a\u003cb\u003e\u0026\u2028\u0001\n\t\"\\é""#);
        assert_eq!(string_bytes("a<\n"), r#""a\u003c\n""#.len());
    }

    #[test]
    fn values_print_as_go_prints_maps() {
        let check = |value: Value, expected: &str| assert_eq!(value_text(&value), expected);
        check(json!({"b": [1, "x", null], "a": {"c": true}}), "map[a:map[c:true] b:[1 x <nil>]]");
        check(json!({}), "map[]");
        check(json!([1.5, 1e21, 1e-7, 123456789.5, -2.5e-10]), "[1.5 1e+21 1e-07 1.234567895e+08 -2.5e-10]");
    }
}
