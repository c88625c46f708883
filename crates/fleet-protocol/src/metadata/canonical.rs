//! One text for one value, so that a signature is over what is meant and not over how it was written.

use serde_json::Value;

/// The canonical JSON of a value: sorted keys, no space, whole numbers, and only `"` and `\` escaped. None if it has a number that
/// isn't whole: those have no one text.
#[must_use]
pub fn canonical(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    write(value, &mut out)?;
    Some(out)
}

fn write(value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => out.extend(b"null"),
        Value::Bool(true) => out.extend(b"true"),
        Value::Bool(false) => out.extend(b"false"),
        Value::Number(number) if number.is_i64() || number.is_u64() => out.extend(number.to_string().bytes()),
        Value::Number(_) => return None,
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write(item, out)?;
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|one, other| one.0.cmp(other.0));
            out.push(b'{');
            for (index, (key, field)) in fields.into_iter().enumerate() {
                separate(index, out);
                write_text(key, out);
                out.push(b':');
                write(field, out)?;
            }
            out.push(b'}');
        }
    }
    Some(())
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_one_text() {
        let text = |value| canonical(&value).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(
            text(json!({"b": [1, -2, true, null], "a": "x\"\\\ny"})).unwrap(),
            "{\"a\":\"x\\\"\\\\\ny\",\"b\":[1,-2,true,null]}"
        );
        assert_eq!(text(json!({})).unwrap(), "{}");
        assert_eq!(text(json!(1.5)), None);
    }
}
