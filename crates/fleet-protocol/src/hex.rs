//! Bytes as hexadecimal text, the form of digests and keys in metadata.

use std::fmt::Write;

/// Lower-case hexadecimal.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a hexadecimal text; none if it isn't one.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_what_is_no_text_of_bytes_is_refused() {
        assert_eq!(encode(&[0, 15, 255]), "000fff");
        assert_eq!(decode("000fFF"), Some(vec![0, 15, 255]));
        for wrong in ["0", "zz", "é0", "+1"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
