//! The hash in a revision's name: the same as Kubernetes gives the same template.

use serde_json::Value;

const OFFSET_BASIS: u32 = 2_166_136_261;
const PRIME: u32 = 16_777_619;

/// Letters and digits that make no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of what a revision holds, and of how often its name was taken by another.
pub fn hash(data: &Value, collisions: i32) -> String {
    let mut text = String::new();
    write(data, &mut text);
    text.push_str(&collisions.to_string());
    encode(&fnv1(text.as_bytes()).to_string())
}

/// FNV-1 with 32 bits.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(*byte))
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// JSON as Go writes it: names in order, and characters that mean something in HTML escaped.
fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_string(name, text);
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::String(string) => write_string(string, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
    }
}

fn write_string(string: &str, text: &mut String) {
    for character in Value::from(string).to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hash_is_that_of_kubernetes() {
        // Taken from Go: fnv.New32 over the text and the count, then rand.SafeEncodeString of the number.
        assert_eq!(fnv1(b""), 2_166_136_261);
        assert_eq!(fnv1(b"a"), 0x050c_5d7e);
        assert_eq!(encode("0123456789"), "456789bcdf");
    }

    #[test]
    fn a_hash_follows_from_what_is_held_and_not_from_its_order() {
        let one = json!({"a": 1, "b": [true, null, "x"]});
        let other = json!({"b": [true, null, "x"], "a": 1});
        assert_eq!(hash(&one, 0), hash(&other, 0));
        assert_ne!(hash(&one, 0), hash(&one, 1));
        assert_ne!(hash(&one, 0), hash(&json!({"a": 2, "b": [true, null, "x"]}), 0));
    }

    #[test]
    fn text_is_escaped_as_go_does() {
        let mut text = String::new();
        write(&json!({"z": "a<b>&\"\n", "a": 1.5}), &mut text);
        assert_eq!(text, r#"{"a":1.5,"z":"a\u003cb\u003e\u0026\"\n"}"#);
    }
}
