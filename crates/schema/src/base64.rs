//! Standard base64, with Go's idea of where an error is.

use std::fmt;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Where base64 stops making sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptInput(pub usize);

impl fmt::Display for CorruptInput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "illegal base64 data at input byte {}", self.0)
    }
}

impl std::error::Error for CorruptInput {}

/// Bytes as padded base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = if place <= chunk.len() { ALPHABET[(group >> (18 - 6 * place) & 63) as usize] } else { b'=' };
            text.push(digit as char);
        }
    }
    text
}

/// The bytes of padded base64. Line breaks are skipped.
pub fn decode(text: &str) -> Result<Vec<u8>, CorruptInput> {
    let input = text.as_bytes();
    let mut bytes = Vec::with_capacity(input.len() / 4 * 3);
    let (mut at, mut group, mut count) = (0, 0u32, 0);
    while at < input.len() {
        let byte = input[at];
        at += 1;
        match digit(byte) {
            Some(value) => {
                group = group << 6 | value;
                count += 1;
                if count == 4 {
                    bytes.extend_from_slice(&group.to_be_bytes()[1..]);
                    (group, count) = (0, 0);
                }
            }
            None if byte == b'\n' || byte == b'\r' => {}
            None if byte != b'=' || count < 2 => return Err(CorruptInput(at - 1)),
            None => {
                end(input, at, count)?;
                let whole = (group << (6 * (4 - count))).to_be_bytes();
                bytes.extend_from_slice(&whole[1..count as usize]);
                return Ok(bytes);
            }
        }
    }
    if count == 0 { Ok(bytes) } else { Err(CorruptInput(at - count as usize)) }
}

/// Checks what follows the first padding character.
fn end(input: &[u8], mut at: usize, count: u32) -> Result<(), CorruptInput> {
    if count == 2 {
        at = skip_breaks(input, at);
        match input.get(at) {
            None => return Err(CorruptInput(input.len())),
            Some(b'=') => at += 1,
            Some(_) => return Err(CorruptInput(at - 1)),
        }
    }
    at = skip_breaks(input, at);
    if at < input.len() { Err(CorruptInput(at)) } else { Ok(()) }
}

fn skip_breaks(input: &[u8], mut at: usize) -> usize {
    while matches!(input.get(at), Some(b'\n' | b'\r')) {
        at += 1;
    }
    at
}

fn digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("Zm9v\nYmFy\r\n").unwrap(), b"foobar");
    }

    #[test]
    fn errors_are_where_go_finds_them() {
        for (text, place) in [("!", 0), ("Zg", 0), ("Zg=", 3), ("Zg==x", 4), ("Zm9vY", 4), ("Zm8=Zm8=", 4), ("====", 0)]
        {
            assert_eq!(decode(text), Err(CorruptInput(place)), "{text}");
        }
    }
}
