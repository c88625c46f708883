//! Base64 with padding, as schemas of format `byte` have it.

/// The bytes that a text stands for. Line breaks are passed over, as Go does.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() / 4 * 3);
    let last = symbols.len() / 4;
    for (at, group) in symbols.chunks(4).enumerate() {
        let padding = group.iter().rev().take_while(|symbol| **symbol == b'=').count();
        if padding > 2 || (padding > 0 && at + 1 != last) {
            return None;
        }
        let mut bits = 0u32;
        for symbol in &group[..4 - padding] {
            bits = bits << 6 | value(*symbol)?;
        }
        bits <<= 6 * u32::try_from(padding).ok()?;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn value(symbol: u8) -> Option<u32> {
    Some(u32::from(match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_decoded() {
        for (text, bytes) in [
            ("", Some("")),
            ("aGk=", Some("hi")),
            ("aGk", None),
            ("YWJj", Some("abc")),
            ("YQ==", Some("a")),
            ("Y=Q=", None),
        ] {
            assert_eq!(super::decode(text).as_deref(), bytes.map(str::as_bytes), "{text}");
        }
    }
}
