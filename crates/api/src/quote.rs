//! Go's quoting of strings. Kubernetes' messages print user input with `%q`, so ours must quote exactly alike.

use std::fmt::Write as _;

/// The text in double quotes, with Go's escapes: `%q` of a string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        push_escaped(&mut quoted, character);
    }
    quoted.push('"');
    quoted
}

/// Whether Go takes the character as printable: letters, marks, numbers, punctuation, symbols, and the ASCII space.
pub fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{7f}' => false,
        // The standard library escapes exactly what is not printable. A combining mark is escaped only at the start of a
        // text, hence the letter before it.
        _ => ['a', character].iter().collect::<String>().escape_debug().count() == 2,
    }
}

fn push_escaped(quoted: &mut String, character: char) {
    match character {
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        '\u{07}' => quoted.push_str("\\a"),
        '\u{08}' => quoted.push_str("\\b"),
        '\u{0c}' => quoted.push_str("\\f"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        '\u{0b}' => quoted.push_str("\\v"),
        _ if is_printable(character) => quoted.push(character),
        _ => push_code_point(quoted, u32::from(character)),
    }
}

fn push_code_point(quoted: &mut String, code: u32) {
    // Writing to a String cannot fail.
    let _ = match code {
        0..0x80 => write!(quoted, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(quoted, "\\u{code:04x}"),
        _ => write!(quoted, "\\U{code:08x}"),
    };
}

/// A string as Go's JSON encoder writes it: like any JSON, with `<`, `>`, `&` and the two line separators escaped.
pub(crate) fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_that_of_go() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\r\u{07}\u{08}\u{0b}\u{0c}", r#""\n\t\r\a\b\v\f""#),
            ("\0\u{1f}\u{7f}", r#""\x00\x1f\x7f""#),
            ("é世界", "\"é世界\""),
            ("e\u{301}\u{301}", "\"e\u{301}\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("'<&>'", "\"'<&>'\""),
        ] {
            assert_eq!(quote(text), expected);
        }
    }
}
