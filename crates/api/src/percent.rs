//! Text with bytes that its place can't hold, written as `%XX`.

/// The bytes of a text with its escapes undone. A percent sign that begins no escape stands for itself.
pub fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    bytes
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        let check = |text: &str, expected: &[u8]| assert_eq!(decoded(text), expected, "{text}");
        check("", b"");
        check("plain", b"plain");
        check("a%20b%2Fc", b"a b/c");
        check("%ff%FF%00", &[255, 255, 0]);
        check("100%", b"100%");
        check("%2", b"%2");
        check("%zz%+f", b"%zz%+f");
        check("%%41", b"%A");
    }
}
