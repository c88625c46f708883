//! Regular expressions as Go reads them: the same syntax, the same meaning, the same complaints.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{self, ErrorKind, parse::Parser};

/// Largest program that an expression may become. Far more than sensible ones need, far less than hurts.
const PROGRAM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Go counts no further.
const REPEAT_MAX: u32 = 1000;

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Regexp {
    inner: Regex,
}

impl Regexp {
    /// Compiles an expression, or says why it can't be, in the words of Go.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let translated = Translation::of(pattern)?;
        let built = RegexBuilder::new(&translated).size_limit(PROGRAM_BYTES_MAX).build();
        match built {
            Ok(inner) => Ok(Self { inner }),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err(format!("error parsing regexp: expression too large: `{pattern}`"))
            }
            Err(_) => Err(complaint(&translated, pattern)),
        }
    }

    /// Whether it is found anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.inner.is_match(text)
    }

    /// The first place where it is found.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.inner.find(text).map(|found| found.as_str())
    }

    /// All places where it is found, at most `limit` of them.
    pub fn find_all<'t>(&self, text: &'t str, limit: usize) -> Vec<&'t str> {
        self.inner.find_iter(text).take(limit).map(|found| found.as_str()).collect()
    }
}

/// An expression of Go as one of this language.
struct Translation<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

impl<'p> Translation<'p> {
    fn of(pattern: &'p str) -> Result<String, String> {
        let mut translation = Self { rest: pattern.chars().peekable(), out: String::with_capacity(pattern.len()) };
        while let Some(letter) = translation.rest.next() {
            match letter {
                '\\' => translation.escape()?,
                '[' => translation.class()?,
                '{' => translation.brace()?,
                other => translation.out.push(other),
            }
        }
        Ok(translation.out)
    }

    fn left(&self) -> String {
        self.rest.clone().collect()
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(letter) = self.rest.next() else {
            return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
        };
        match letter {
            'Q' => {
                let left = self.left();
                let quoted = left.split("\\E").next().unwrap_or("");
                let skipped = quoted.chars().count() + if quoted.len() < left.len() { 2 } else { 0 };
                self.out.push_str(&regex::escape(quoted));
                self.rest.by_ref().take(skipped).for_each(drop);
            }
            'C' => self.out.push_str("(?s:.)"),
            'b' => self.out.push_str("(?-u:\\b)"),
            letter => match inside_class(letter) {
                Some((negated, set)) => self.out.push_str(&format!("[{}{set}]", if negated { "^" } else { "" })),
                None => self.literal_escape(letter),
            },
        }
        Ok(())
    }

    /// Punctuation stands for itself whatever it means to this language's expressions; the rest is the same in both.
    fn literal_escape(&mut self, letter: char) {
        if letter.is_ascii_punctuation() {
            self.out.push_str(&format!("\\x{{{:X}}}", u32::from(letter)));
            return;
        }
        if letter == '0'
            || (('1'..='7').contains(&letter) && self.rest.peek().is_some_and(|next| ('0'..='7').contains(next)))
        {
            let mut code = letter.to_digit(8).unwrap_or(0);
            for _ in 0..2 {
                let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) else { break };
                code = code * 8 + digit;
                self.rest.next();
            }
            self.out.push_str(&format!("\\x{{{code:X}}}"));
            return;
        }
        self.out.extend(['\\', letter]);
        if matches!(letter, 'p' | 'P' | 'x') && self.rest.peek() == Some(&'{') {
            for next in self.rest.by_ref() {
                self.out.push(next);
                if next == '}' {
                    break;
                }
            }
        }
    }

    /// A brace that doesn't count repetitions stands for itself.
    fn brace(&mut self) -> Result<(), String> {
        let left = self.left();
        let Some(inside) = left.split_once('}').map(|(inside, _)| inside) else {
            self.out.push_str("\\{");
            return Ok(());
        };
        let (min, max) = inside.split_once(',').unwrap_or((inside, inside));
        let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_count(min) || !(is_count(max) || max.is_empty()) {
            self.out.push_str("\\{");
            return Ok(());
        }
        let count = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        if count(min) > REPEAT_MAX || (!max.is_empty() && (count(max) > REPEAT_MAX || count(max) < count(min))) {
            return Err(format!("error parsing regexp: invalid repeat count: `{{{inside}}}`"));
        }
        self.out.push_str(&format!("{{{inside}}}"));
        self.rest.by_ref().take(inside.chars().count() + 1).for_each(drop);
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let start = format!("[{}", self.left());
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        // Whether what was written last can begin a range.
        let mut begins = false;
        loop {
            let Some(letter) = self.rest.next() else {
                return Err(format!("error parsing regexp: missing closing ]: `{start}`"));
            };
            match letter {
                ']' if !first => break,
                '-' if begins && self.rest.peek().is_some_and(|next| *next != ']') => {
                    self.out.push('-');
                    self.class_item();
                    begins = false;
                }
                '[' if self.posix_class() => begins = false,
                '\\' => begins = self.class_escape(),
                other => {
                    self.class_letter(other);
                    begins = true;
                }
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// The end of a range.
    fn class_item(&mut self) {
        match self.rest.next() {
            Some('\\') => drop(self.class_escape()),
            Some(letter) => self.class_letter(letter),
            None => {}
        }
    }

    /// `[:alpha:]` and the like, if that is what follows.
    fn posix_class(&mut self) -> bool {
        let left = self.left();
        let Some(end) = left.find(":]").filter(|_| left.starts_with(':')) else { return false };
        self.out.push('[');
        self.out.push_str(&left[..end + 2]);
        self.rest.by_ref().take(left[..end + 2].chars().count()).for_each(drop);
        true
    }

    /// Whether it is one letter, which can begin a range.
    fn class_escape(&mut self) -> bool {
        let Some(letter) = self.rest.next() else { return false };
        match inside_class(letter) {
            Some((true, set)) => self.out.push_str(&format!("[^{set}]")),
            Some((false, set)) => self.out.push_str(&format!("[{set}]")),
            None => self.literal_escape(letter),
        }
        !matches!(letter, 'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'p' | 'P')
    }

    fn class_letter(&mut self, letter: char) {
        if matches!(letter, '[' | ']' | '&' | '~' | '-' | '^' | '\\') {
            self.out.push('\\');
        }
        self.out.push(letter);
    }
}

/// Classes that know only ASCII in Go: whether they are negated, and what they contain.
fn inside_class(letter: char) -> Option<(bool, &'static str)> {
    let set = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), set))
}

/// Why an expression can't be compiled.
fn complaint(translated: &str, pattern: &str) -> String {
    let Err(error) = Parser::new().parse(translated) else {
        return format!("error parsing regexp: invalid character class range: `{pattern}`");
    };
    let span = ast::Error::span(&error);
    let at: Cow<'_, str> = translated.get(span.start.offset..span.end.offset).unwrap_or("").into();
    let rest = translated.get(span.start.offset..).unwrap_or("");
    let (what, shown): (&str, Cow<'_, str>) = match error.kind() {
        ErrorKind::GroupUnclosed => ("missing closing )", pattern.into()),
        ErrorKind::GroupUnopened => ("unexpected )", pattern.into()),
        ErrorKind::ClassUnclosed => ("missing closing ]", rest.into()),
        ErrorKind::ClassRangeInvalid => ("invalid character class range", at),
        ErrorKind::RepetitionMissing => {
            let operator = rest.chars().next().map_or(0, char::len_utf8);
            ("missing argument to repetition operator", rest[..operator].into())
        }
        ErrorKind::RepetitionCountInvalid | ErrorKind::DecimalInvalid => ("invalid repeat count", at),
        ErrorKind::EscapeUnexpectedEof => ("trailing backslash at end of expression", "".into()),
        ErrorKind::UnsupportedLookAround => ("invalid or unsupported Perl syntax", at),
        ErrorKind::FlagUnrecognized | ErrorKind::FlagUnexpectedEof | ErrorKind::GroupNameInvalid => {
            ("invalid or unsupported Perl syntax", rest.into())
        }
        _ => ("invalid escape sequence", at),
    };
    format!("error parsing regexp: {what}: `{shown}`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        for (pattern, text, expected) in [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "aBc", false),
            ("^\\d+$", "١٢", false),
            ("^\\w+$", "é", false),
            ("^[\\w.-]+$", "a.b-c", true),
            ("^[a-c-e]+$", "b-e", true),
            ("^[0-9-\\p{L}]+$", "1-é", true),
            ("^[+--]+$", ",", true),
            ("^a{2}$", "aa", true),
            ("^{a}$", "{a}", true),
            ("^a{,2}$", "a{,2}", true),
            ("^[a&&b]$", "&", true),
            ("^[[a]$", "[", true),
            ("^[]a]$", "]", true),
            ("^[^\\d]$", "x", true),
            ("\\Qa.b\\E+", "a.bbb", true),
            ("\\Qa.b\\E", "axb", false),
            ("^\\<a\\>$", "<a>", true),
            ("^[[:alpha:]-]+$", "a-b", true),
            ("^\\p{Greek}+$", "λ", true),
            ("\\101", "A", true),
            ("(?i)^abc$", "ABC", true),
            ("^a$", "a\n", false),
        ] {
            let compiled = Regexp::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_bad_expression_is_refused_in_the_words_of_go() {
        for (pattern, expected) in [
            ("(", "error parsing regexp: missing closing ): `(`"),
            ("a)", "error parsing regexp: unexpected ): `a)`"),
            ("x[a", "error parsing regexp: missing closing ]: `[a`"),
            ("*", "error parsing regexp: missing argument to repetition operator: `*`"),
            ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
            ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
            ("a\\", "error parsing regexp: trailing backslash at end of expression: ``"),
        ] {
            assert_eq!(Regexp::new(pattern).err().as_deref(), Some(expected), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn no_expression_makes_the_compiler_panic(pattern in "[a-c\\\\\\[\\](){}*+?^$.,:&~QEdwpx0-9-]{0,24}") {
            if let Ok(compiled) = Regexp::new(&pattern) {
                compiled.is_match("abc-0");
            }
        }
    }
}
