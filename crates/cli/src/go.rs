//! Values as Go prints them, which is what scripts around kubectl expect.

use serde_json::{Number, Value};

/// What `fmt.Sprint` makes of a value.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{}", text(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
    }
}

/// What `encoding/json` makes of a value, on one line.
pub fn json(value: &Value) -> String {
    escaped(&value.to_string())
}

/// The same with four spaces for each level.
pub fn indented_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing to memory doesn't fail, and values have string keys only.
    let written = serde::Serialize::serialize(value, &mut serializer);
    debug_assert!(written.is_ok());
    escaped(&String::from_utf8_lossy(&bytes))
}

/// Letters that Go escapes so that the text can stand in a page.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text
}

/// Whole numbers as they are, others with an exponent from seven digits on.
pub fn number(number: &Number) -> String {
    if number.is_f64() {
        let value = number.as_f64().unwrap_or_default();
        let exponent = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
        if (-4.0..6.0).contains(&exponent) {
            return format!("{value}");
        }
        let text = format!("{value:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, power) = match power.strip_prefix('-') {
            Some(power) => ('-', power),
            None => ('+', power),
        };
        return format!("{digits}e{sign}{power:0>2}");
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        for (value, expected) in [
            (json!(null), "<nil>"),
            (json!(true), "true"),
            (json!(12), "12"),
            (json!(1.5), "1.5"),
            (json!(1e21), "1e+21"),
            (json!(1234567.5), "1.2345675e+06"),
            (json!(1e-7), "1e-07"),
            (json!("a b"), "a b"),
            (json!(["a", 1]), "[a 1]"),
            (json!({"b": 1, "a": {"c": null}}), "map[a:map[c:<nil>] b:1]"),
        ] {
            assert_eq!(text(&value), expected);
        }
        assert_eq!(json(&json!({"a": "<b> & c"})), r#"{"a":"\u003cb\u003e \u0026 c"}"#);
        assert_eq!(
            indented_json(&json!({"a": [], "b": {}, "c": [1]})),
            "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": [\n        1\n    ]\n}"
        );
    }
}
