//! The words that a text is made of.

use super::tree::Literal;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Literal(Literal),
    Ident(String),
    /// A name in backquotes, which may only be selected.
    Quoted(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Longest first.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%",
];

/// The words with their offsets in bytes, or None where the text is no sequence of words.
pub(super) fn tokens(text: &str) -> Option<Vec<(Token, usize)>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_space();
        let start = lexer.at;
        let token = lexer.next()?;
        let done = token == Token::End;
        found.push((token, start));
        if done {
            return Some(found);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            if rest.first().is_some_and(|byte| b" \t\n\r\x0c".contains(byte)) {
                self.at += 1;
            } else if rest.starts_with(b"//") {
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<Token> {
        let rest = self.rest();
        let Some(&first) = rest.first() else { return Some(Token::End) };
        if let Some(prefix) = string_prefix(rest) {
            return self.string(prefix);
        }
        if first.is_ascii_digit() || (first == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit)) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            let word = &self.text[self.at..self.at + len];
            self.at += len;
            return Some(match word {
                "true" => Token::Literal(Literal::Bool(true)),
                "false" => Token::Literal(Literal::Bool(false)),
                "null" => Token::Literal(Literal::Null),
                "in" => Token::Sign("in"),
                _ => Token::Ident(word.to_owned()),
            });
        }
        if first == b'`' {
            let len = rest[1..].iter().position(|byte| *byte == b'`')?;
            let word = &self.text[self.at + 1..self.at + 1 + len];
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(&byte);
            if word.is_empty() || !word.bytes().all(allowed) {
                return None;
            }
            self.at += len + 2;
            return Some(Token::Quoted(word.to_owned()));
        }
        let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()))?;
        self.at += sign.len();
        Some(Token::Sign(sign))
    }

    fn number(&mut self) -> Option<Token> {
        let rest = self.rest();
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if rest.starts_with(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
            let len = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let value = u64::from_str_radix(&self.text[self.at + 2..self.at + 2 + len], 16).ok()?;
            return self.whole(value, 2 + len);
        }
        let mut len = digits(0);
        let mut fraction = false;
        if rest.get(len) == Some(&b'.') && rest.get(len + 1).is_some_and(u8::is_ascii_digit) {
            fraction = true;
            len += 1 + digits(len + 1);
        }
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
            let power = digits(len + 1 + sign);
            if power > 0 {
                fraction = true;
                len += 1 + sign + power;
            }
        }
        let text = &self.text[self.at..self.at + len];
        if fraction {
            let value: f64 = text.parse().ok()?;
            if value.is_infinite() {
                return None;
            }
            self.at += len;
            return Some(Token::Literal(Literal::Double(value)));
        }
        self.whole(text.parse().ok()?, len)
    }

    fn whole(&mut self, value: u64, len: usize) -> Option<Token> {
        self.at += len;
        if matches!(self.rest().first(), Some(b'u' | b'U')) {
            self.at += 1;
            return Some(Token::Literal(Literal::Uint(value)));
        }
        // One beyond the largest is allowed here, for the smallest is its negation.
        match i64::try_from(value) {
            Ok(value) => Some(Token::Literal(Literal::Int(value))),
            Err(_) if value == i64::MIN.unsigned_abs() => Some(Token::Literal(Literal::Int(i64::MIN))),
            Err(_) => None,
        }
    }

    fn string(&mut self, prefix: Prefix) -> Option<Token> {
        self.at += prefix.len;
        let quote = *self.rest().first()?;
        let triple = self.rest().starts_with(&[quote; 3]);
        let end: &[u8] = if triple { &[quote; 3][..] } else { &[quote; 1][..] };
        self.at += end.len();
        let mut bytes = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(end) {
                self.at += end.len();
                break;
            }
            let first = *rest.first()?;
            if first == b'\\' && !prefix.raw {
                self.escape(&mut bytes, prefix.bytes)?;
                continue;
            }
            if !triple && (first == b'\n' || first == b'\r') {
                return None;
            }
            bytes.push(first);
            self.at += 1;
        }
        Some(Token::Literal(match prefix.bytes {
            true => Literal::Bytes(bytes),
            false => Literal::String(String::from_utf8(bytes).ok()?),
        }))
    }

    fn escape(&mut self, bytes: &mut Vec<u8>, of_bytes: bool) -> Option<()> {
        let rest = self.rest();
        let kind = *rest.get(1)?;
        let plain = match kind {
            b'a' => Some(7),
            b'b' => Some(8),
            b'f' => Some(12),
            b'n' => Some(10),
            b'r' => Some(13),
            b't' => Some(9),
            b'v' => Some(11),
            b'\\' | b'\'' | b'"' | b'`' | b'?' => Some(kind),
            _ => None,
        };
        if let Some(byte) = plain {
            bytes.push(byte);
            self.at += 2;
            return Some(());
        }
        let (skip, len, radix) = match kind {
            b'x' | b'X' => (2, 2, 16),
            b'u' if !of_bytes => (2, 4, 16),
            b'U' if !of_bytes => (2, 8, 16),
            b'0'..=b'3' => (1, 3, 8),
            _ => return None,
        };
        let digits = self.text.get(self.at + skip..self.at + skip + len)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let value = u32::from_str_radix(digits, radix).ok()?;
        if of_bytes {
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.extend_from_slice(char::from_u32(value)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
        self.at += skip + len;
        Some(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Prefix {
    len: usize,
    raw: bool,
    bytes: bool,
}

/// The letters before a quote, if a string begins here.
fn string_prefix(rest: &[u8]) -> Option<Prefix> {
    let mut prefix = Prefix { len: 0, raw: false, bytes: false };
    loop {
        match rest.get(prefix.len)? {
            b'"' | b'\'' => return Some(prefix),
            b'r' | b'R' if !prefix.raw => prefix.raw = true,
            b'b' | b'B' if !prefix.bytes && !prefix.raw => prefix.bytes = true,
            _ => return None,
        }
        prefix.len += 1;
    }
}
