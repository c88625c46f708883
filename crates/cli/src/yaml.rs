//! YAML out, letter for letter as kubectl writes it: keys sorted, lists not indented, quotes only where they are needed.

use serde_json::Value;

use crate::go;

/// Spaces for each level.
const INDENT: usize = 2;

/// A line that is wider than this is broken at the next space.
const WIDTH: usize = 80;

/// A value as a document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    node(value, 0, Place::Document, &mut out);
    out
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Document,
    AfterKey,
    AfterDash,
}

fn node(value: &Value, indent: usize, place: Place, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            if place == Place::AfterKey {
                out.push('\n');
            }
            for (at, (name, value)) in fields.iter().enumerate() {
                if at > 0 || place != Place::AfterDash {
                    pad(indent, out);
                }
                out.push_str(&key(name));
                out.push(':');
                let inner = if value.is_array() { indent } else { indent + INDENT };
                node(value, inner, Place::AfterKey, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if place == Place::AfterKey {
                out.push('\n');
            }
            for (at, item) in items.iter().enumerate() {
                if at > 0 || place != Place::AfterDash {
                    pad(indent, out);
                }
                out.push_str("- ");
                if is_block(item) {
                    node(item, indent + INDENT, Place::AfterDash, out);
                } else {
                    scalar(item, indent + INDENT, out);
                }
            }
        }
        other => {
            if place == Place::AfterKey {
                out.push(' ');
            }
            scalar(other, indent, out);
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&go::number(number)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::String(text) if text.contains('\n') && Shape::of(text).block_allowed() => {
            literal(text, indent, out);
            return;
        }
        Value::String(text) => folded(text, indent.max(INDENT), out),
    }
    out.push('\n');
}

fn key(text: &str) -> String {
    let style = Style::of(text);
    let letters: String = text.chars().map(|letter| style.letter(letter)).collect();
    format!("{0}{letters}{0}", style.quote())
}

/// The lightest quotes that keep a text what it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
}

impl Style {
    fn of(text: &str) -> Style {
        let shape = Shape::of(text);
        match () {
            () if text.contains('\n') || means_something_else(text) => Style::Double,
            () if shape.plain_allowed() => Style::Plain,
            () if shape.single_allowed() => Style::Single,
            () => Style::Double,
        }
    }

    fn quote(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Single => "'",
            Style::Double => "\"",
        }
    }

    fn letter(self, letter: char) -> String {
        match (self, letter) {
            (Style::Single, '\'') => "''".to_owned(),
            (Style::Double, letter) => escaped(letter),
            (_, letter) => letter.to_string(),
        }
    }
}

/// A text that is broken at a space once its line is wide.
fn folded(text: &str, indent: usize, out: &mut String) {
    let style = Style::of(text);
    let start = out.rfind('\n').map_or(0, |end| end + 1);
    let mut column = out[start..].chars().count();
    let mut put = |piece: &str, column: &mut usize| {
        out.push_str(piece);
        *column += piece.chars().count();
    };
    put(style.quote(), &mut column);
    let letters: Vec<char> = text.chars().collect();
    let mut after_space = false;
    for (at, letter) in letters.iter().enumerate() {
        let is_inner = style == Style::Plain || (at > 0 && at + 1 < letters.len());
        let space_follows = letters.get(at + 1) == Some(&' ');
        if *letter == ' ' && !after_space && column > WIDTH && is_inner && (style == Style::Double || !space_follows) {
            put("\n", &mut column);
            column = 0;
            put(&" ".repeat(indent), &mut column);
            if style == Style::Double && space_follows {
                put("\\", &mut column);
            }
        } else {
            put(&style.letter(*letter), &mut column);
        }
        after_space = *letter == ' ';
    }
    put(style.quote(), &mut column);
}

/// Lines as they are, after a bar.
fn literal(text: &str, indent: usize, out: &mut String) {
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    let body = text.strip_suffix('\n');
    match body {
        None => out.push('-'),
        Some(body) if body.is_empty() || body.ends_with('\n') => out.push('+'),
        Some(_) => {}
    }
    out.push('\n');
    for line in body.unwrap_or(text).split('\n') {
        if !line.is_empty() {
            pad(indent.max(INDENT), out);
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// A letter between double quotes.
fn escaped(letter: char) -> String {
    let short = match letter {
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        letter if is_printable(letter) => return letter.to_string(),
        letter => {
            let code = u32::from(letter);
            return match code {
                ..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
        }
    };
    short.to_owned()
}

fn is_printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && letter != '\u{feff}'
}

/// What about a text decides its quotes.
#[derive(Default)]
struct Shape {
    indicators: bool,
    edges: bool,
    trailing_space: bool,
    break_space: bool,
    space_break: bool,
    special: bool,
}

impl Shape {
    fn of(text: &str) -> Shape {
        let letters: Vec<char> = text.chars().collect();
        let is_blank = |at: usize| letters.get(at).is_none_or(|letter| matches!(letter, ' ' | '\t' | '\n' | '\r'));
        let mut shape = Shape {
            indicators: text.starts_with("---") || text.starts_with("..."),
            edges: text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']),
            trailing_space: text.ends_with(' '),
            ..Shape::default()
        };
        for (at, letter) in letters.iter().enumerate() {
            let followed = is_blank(at + 1);
            shape.indicators |= match (at, letter) {
                (0, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => {
                    true
                }
                (0, '?' | '-') | (_, ':') => followed,
                (1.., '#') => is_blank(at - 1),
                _ => false,
            };
            shape.special |= !is_printable(*letter);
            let before = at.checked_sub(1).map(|at| letters[at]);
            shape.break_space |= *letter == ' ' && before == Some('\n');
            shape.space_break |= *letter == '\n' && before == Some(' ');
        }
        shape
    }

    fn plain_allowed(&self) -> bool {
        !(self.indicators || self.edges || self.break_space || self.space_break || self.special)
    }

    fn single_allowed(&self) -> bool {
        !(self.break_space || self.space_break || self.special)
    }

    fn block_allowed(&self) -> bool {
        !(self.trailing_space || self.space_break || self.special)
    }
}

/// Whether a text without quotes would be read as a number, a time, a truth or nothing.
fn means_something_else(text: &str) -> bool {
    #[rustfmt::skip]
    const WORDS: [&str; 38] = [
        "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n", "N", "no", "No", "NO", "false", "False", "FALSE",
        "off", "Off", "OFF", "~", "null", "Null", "NULL", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF",
        "-.inf", "-.Inf", "-.INF",
    ];
    match text.chars().next() {
        None => true,
        Some(_) if WORDS.contains(&text) => true,
        Some('.') => text.parse::<f64>().is_ok(),
        Some('+' | '-' | '0'..='9') => is_number(text) || is_time(text) || is_sixty(text),
        Some(_) => false,
    }
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let digits = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let based = |prefixes: [&str; 2], base: u32| {
        let rest = prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
        rest.is_some_and(|rest| !rest.is_empty() && u64::from_str_radix(rest, base).is_ok() && !rest.starts_with('+'))
    };
    if based(["0x", "0X"], 16) || based(["0b", "0B"], 2) || based(["0o", "0O"], 8) {
        return true;
    }
    let is_float_like = digits.chars().all(|letter| letter.is_ascii_digit() || ".eE+-".contains(letter))
        && digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    is_float_like && digits.parse::<f64>().is_ok()
}

/// `2001-12-14`, `2001-12-14T21:59:43Z`, `2001-12-14 21:59:43`.
fn is_time(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let numbers: Option<Vec<u32>> = date.split('-').map(|part| part.parse().ok()).collect();
    let is_date = matches!(numbers.as_deref(), Some([_, 1..=12, 1..=31])) && date.find('-') == Some(4);
    let is_clock = |clock: &str| {
        let parts: Vec<&str> = clock.split(':').collect();
        parts.len() == 3 && parts.iter().all(|part| part.parse::<f64>().is_ok_and(|number| number < 60.0))
    };
    is_date
        && time.is_none_or(|time| {
            if let Some(clock) = time.strip_prefix(' ') {
                return is_clock(clock);
            }
            let clock = &time[1..];
            match clock.strip_suffix('Z') {
                Some(clock) => is_clock(clock),
                None => {
                    clock.rfind(['+', '-']).is_some_and(|at| is_clock(&clock[..at]) && clock[at + 1..].contains(':'))
                }
            }
        })
}

/// `190:20:30`: a number in base sixty to old readers.
fn is_sixty(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    let is_digits =
        |part: &str| !part.is_empty() && part.chars().all(|letter| letter.is_ascii_digit() || letter == '_');
    parts.len() > 1
        && is_digits(parts[0])
        && parts[1..].iter().all(|part| part.len() <= 2 && part.parse::<u8>().is_ok_and(|number| number < 60))
        && (fraction.is_empty() || is_digits(fraction))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_written_as_kubectl_writes_it() {
        let value = json!({
            "b": [{"x": 1, "y": [1, 2]}, "t", [], {}, [["n"]]],
            "a": {"empty": {}, "none": null, "list": [], "text": "one\ntwo\n", "cut": "one\ntwo", "more": "a\n\n"},
            "": "x",
        });
        let expected = "\"\": x\na:\n  cut: |-\n    one\n    two\n  empty: {}\n  list: []\n  more: |+\n    a\n\n  none: null\n  text: |\n    one\n    two\nb:\n- x: 1\n  \"y\":\n  - 1\n  - 2\n- t\n- []\n- {}\n- - - \"n\"\n";
        assert_eq!(write(&value), expected);
    }

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let words = "word ".repeat(20) + "end: x";
        let value = json!({"a": {"long": "word ".repeat(20) + "end", "quoted": words}});
        let expected = format!(
            "a:\n  long: {0} {1}\n    {2} end\n  quoted: '{0} {1}\n    {2} end: x'\n",
            ["word"; 14].join(" "),
            "word",
            ["word"; 5].join(" ")
        );
        assert_eq!(write(&value), expected);
    }

    #[test]
    fn quotes_are_there_where_they_are_needed() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a b", "a b"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("Yes", "\"Yes\""),
            ("yEs", "yEs"),
            ("null", "\"null\""),
            ("12", "\"12\""),
            ("1.5", "\"1.5\""),
            ("1e3", "\"1e3\""),
            ("0x1F", "\"0x1F\""),
            ("1_000", "\"1_000\""),
            ("1.2.3", "1.2.3"),
            ("10.0.0.1", "10.0.0.1"),
            ("v1", "v1"),
            ("100m", "100m"),
            ("8Gi", "8Gi"),
            ("2026-01-01", "\"2026-01-01\""),
            ("2026-01-01T00:00:00Z", "\"2026-01-01T00:00:00Z\""),
            ("12:30", "\"12:30\""),
            ("- a", "'- a'"),
            ("-", "'-'"),
            ("-a", "-a"),
            ("a: b", "'a: b'"),
            ("a:b", "a:b"),
            ("a #b", "'a #b'"),
            ("#a", "'#a'"),
            ("*", "'*'"),
            ("it's", "it's"),
            ("'a'", "'''a'''"),
            ("{}", "'{}'"),
            (" a", "' a'"),
            ("a ", "'a '"),
            ("a\tb", "\"a\\tb\""),
            ("a\nb ", "\"a\\nb \""),
            ("é", "é"),
            ("😀", "\"\\U0001F600\""),
            ("@x", "'@x'"),
            ("%", "'%'"),
            ("?", "'?'"),
            ("key:", "'key:'"),
            ("---", "'---'"),
        ] {
            let mut out = String::new();
            scalar(&json!(text), 0, &mut out);
            assert_eq!(out.trim_end_matches('\n'), expected, "{text:?}");
        }
    }
}
