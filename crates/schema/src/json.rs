//! JSON in: bytes to a tree that still knows the order of fields, doubled fields and the digits of numbers.
//!
//! Errors are worded as Go words them, because clients match on them.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Number, Value};

/// Deepest nesting taken. Lists and watch events add up to three levels, and 128 is where the common JSON reader of this
/// language stops: what we store must be readable by everyone.
pub const NESTING_MAX: usize = 120;

/// A JSON document as it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// A number, as its text.
    Number(Cow<'a, str>),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object, in the order written; the same key may be there more than once.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    message: String,
    /// How many bytes were read before it.
    pub offset: usize,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// Reads one JSON document; anything but white space after it is an error.
pub fn parse(bytes: &[u8]) -> Result<Json<'_>, SyntaxError> {
    let mut parser = Parser { bytes, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.unexpected("after top-level value")),
    }
}

impl<'a> Json<'a> {
    /// The value of a key; the last one wins.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(fields) => fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// What Go calls this kind of value in errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "bool",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    /// A value as a document, without a copy of its texts.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Number(number) => Json::Number(number.to_string().into()),
            Value::String(text) => Json::String(text.as_str().into()),
            Value::Array(items) => Json::Array(items.iter().map(Json::of).collect()),
            Value::Object(fields) => {
                Json::Object(fields.iter().map(|(key, value)| (key.as_str().into(), Json::of(value))).collect())
            }
        }
    }

    /// As a value, numbers as written. The last of doubled keys wins.
    pub fn into_value(self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Bool(flag),
            Json::Number(text) => exact_number(&text).map_or(Value::Null, Value::Number),
            Json::String(text) => Value::String(text.into_owned()),
            Json::Array(items) => Value::Array(items.into_iter().map(Json::into_value).collect()),
            Json::Object(fields) => {
                Value::Object(fields.into_iter().map(|(key, value)| (key.into_owned(), value.into_value())).collect())
            }
        }
    }
}

impl From<Value> for Json<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(flag),
            Value::Number(number) => Json::Number(number.to_string().into()),
            Value::String(text) => Json::String(text.into()),
            Value::Array(items) => Json::Array(items.into_iter().map(Json::from).collect()),
            Value::Object(fields) => {
                Json::Object(fields.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
        }
    }
}

/// A number as Go reads it into an untyped place: whole if it has no dot and fits 64 bits, else floating. A float
/// without a fraction prints as a whole number in Go, so it becomes one. None if it is too large for a float.
pub fn go_number(text: &str) -> Option<Number> {
    if !text.contains('.')
        && let Ok(whole) = text.parse::<i64>()
    {
        return Some(whole.into());
    }
    let float: f64 = text.parse().ok().filter(|f: &f64| f.is_finite())?;
    // 2^53: up to here every whole number is exact in both forms.
    if float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0 {
        return Some((float as i64).into());
    }
    Number::from_f64(float)
}

fn exact_number(text: &str) -> Option<Number> {
    text.parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()
        .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Json<'a>, SyntaxError> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Json::Bool(true)),
            Some(b'f') => self.literal("false", Json::Bool(false)),
            Some(b'n') => self.literal("null", Json::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, SyntaxError> {
        self.deeper(depth)?;
        let mut fields = Vec::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected("after object key"));
            }
            fields.push((key, self.value(depth)?));
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Json::Object(fields));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("after object key:value pair"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, SyntaxError> {
        self.deeper(depth)?;
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("after array element"));
            }
        }
    }

    /// Steps over the opening bracket, if that is not one too many.
    fn deeper(&mut self, depth: usize) -> Result<(), SyntaxError> {
        if depth > NESTING_MAX {
            return Err(self.error("exceeded max depth".to_owned()));
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, word: &'static str, value: Json<'a>) -> Result<Json<'a>, SyntaxError> {
        for expected in word.bytes() {
            if !self.eat(expected) {
                return Err(self.unexpected(&format!("in literal {word} (expecting '{}')", expected as char)));
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Json<'a>, SyntaxError> {
        let start = self.at;
        self.eat(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.eat(b'.') {
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(Json::Number(String::from_utf8_lossy(&self.bytes[start..self.at])))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
        self.at += self.bytes[start..].iter().position(|byte| !plain(byte)).unwrap_or(self.bytes.len() - start);
        match self.peek() {
            Some(b'"') => {
                let text = &self.bytes[start..self.at];
                self.at += 1;
                Ok(from_utf8_go(text))
            }
            Some(b'\\') => self.escaped_string(start),
            _ => Err(self.unexpected("in string literal")),
        }
    }

    /// The rest of a string from its first escape on.
    fn escaped_string(&mut self, start: usize) -> Result<Cow<'a, str>, SyntaxError> {
        let mut text = from_utf8_go(&self.bytes[start..self.at]).into_owned();
        loop {
            let plain = self.at;
            while matches!(self.peek(), Some(byte) if byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            text.push_str(&from_utf8_go(&self.bytes[plain..self.at]));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(text));
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// `\uXXXX`, or two of them for one character beyond the first plane. Half a pair is a replacement character.
    fn unicode_escape(&mut self) -> Result<char, SyntaxError> {
        let first = self.four_hex()?;
        if (0xD800..0xDC00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.four_hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let both = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_hex(&mut self) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| (byte as char).to_digit(16));
            let Some(digit) = digit else { return Err(self.unexpected("in \\u hexadecimal character escape")) };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, place: &str) -> SyntaxError {
        match self.peek() {
            None => self.error("unexpected end of JSON input".to_owned()),
            Some(byte) => self.error(format!("invalid character {} {place}", quoted(byte))),
        }
    }

    fn error(&self, message: String) -> SyntaxError {
        SyntaxError { message, offset: self.at + 1 }
    }
}

/// Text of bytes; each byte that isn't UTF-8 becomes one replacement character, as in Go.
fn from_utf8_go(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
    }
    Cow::Owned(text)
}

/// A byte as Go quotes it in a syntax error.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", byte as char),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fails(text: &str, expected: &str) {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), expected);
    }

    #[test]
    fn syntax_errors_are_worded_as_in_go() {
        fails("", "unexpected end of JSON input");
        fails("{", "unexpected end of JSON input");
        fails("x", "invalid character 'x' looking for beginning of value");
        fails("{x", "invalid character 'x' looking for beginning of object key string");
        fails(r#"{"a" 1}"#, "invalid character '1' after object key");
        fails(r#"{"a":1 "b""#, r#"invalid character '"' after object key:value pair"#);
        fails("[1 2]", "invalid character '2' after array element");
        fails("{} x", "invalid character 'x' after top-level value");
        fails("nulx", "invalid character 'x' in literal null (expecting 'l')");
        fails("1.x", "invalid character 'x' after decimal point in numeric literal");
        fails("\"a\nb\"", r"invalid character '\n' in string literal");
        fails(r#""\x""#, "invalid character 'x' in string escape code");
        fails(r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string");
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(deep(NESTING_MAX).as_bytes()).is_ok());
        fails(&deep(NESTING_MAX + 1), "exceeded max depth");
        fails(&"[".repeat(1_000_000), "exceeded max depth");
    }

    #[test]
    fn strings_are_read_as_in_go() {
        let text = |bytes: &[u8]| parse(bytes).unwrap().as_str().unwrap().to_owned();
        assert_eq!(text(b"\"a\xffb\""), "a\u{fffd}b");
        assert_eq!(text(br#""\ud83d\ude00\ud83d!\n""#), "😀\u{fffd}!\n");
        assert_eq!(text(br#""\/\u0041""#), "/A");
    }

    #[test]
    fn order_and_doubled_keys_are_kept() {
        let json = parse(br#"{"b":1,"a":2,"b":3}"#).unwrap();
        assert_eq!(json.get("b"), Some(&Json::Number("3".into())));
        assert_eq!(json.into_value().to_string(), r#"{"a":2,"b":3}"#);
    }

    #[test]
    fn untyped_numbers_are_those_of_go() {
        for (text, expected) in [
            ("1", "1"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("9223372036854775807", "9223372036854775807"),
            ("1.5", "1.5"),
            ("-0", "0"),
        ] {
            assert_eq!(go_number(text).unwrap().to_string(), expected);
        }
        assert!(go_number("1e400").is_none());
    }
}
