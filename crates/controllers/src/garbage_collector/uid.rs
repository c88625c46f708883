//! The identity of an object, in as few bytes as it takes.

use std::fmt;

/// The identity that no other object ever has. References may carry any text, real ones are UUIDs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Uid {
    /// A UUID as servers write it.
    Uuid([u8; 16]),
    /// Anything else.
    Text(Box<str>),
}

/// Where a UUID has its hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        parse(text.as_bytes()).map_or_else(|| Uid::Text(text.into()), Uid::Uuid)
    }
}

/// Only the form that is written back the same: with small letters.
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 || HYPHENS.iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digits = (0..36).filter(|at| !HYPHENS.contains(at)).map(|at| digit(text[at]));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Text(text) => out.write_str(text),
            Uid::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(out, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_written_back_as_it_was() {
        for (text, is_short) in [
            ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", true),
            ("F81D4FAE-7dec-11d0-a765-00a0c91e6bf6", false),
            ("f81d4fae7-dec-11d0-a765-00a0c91e6bf6", false),
            ("f81d4fae-7dec-11d0-a765-00a0c91e6bfé", false),
            ("fake", false),
            ("", false),
        ] {
            let uid = Uid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(matches!(uid, Uid::Uuid(_)), is_short, "{text}");
        }
    }
}
