//! Regular expressions, and in which words Go refuses them.

use regex_syntax::ast::{self, ErrorKind, parse::Parser};

/// Why a regular expression can't be compiled; None if it can.
pub(crate) fn complaint(pattern: &str) -> Option<String> {
    let error: ast::Error = Parser::new().parse(pattern).err()?;
    let span = error.span();
    let at = pattern.get(span.start.offset..span.end.offset).unwrap_or("");
    let rest = pattern.get(span.start.offset..).unwrap_or("");
    let (what, shown) = match error.kind() {
        ErrorKind::GroupUnclosed => ("missing closing )", pattern),
        ErrorKind::GroupUnopened => ("unexpected )", pattern),
        ErrorKind::ClassUnclosed => ("missing closing ]", rest),
        ErrorKind::ClassRangeInvalid => ("invalid character class range", at),
        ErrorKind::RepetitionMissing => {
            let operator = rest.chars().next().map_or(0, char::len_utf8);
            ("missing argument to repetition operator", &rest[..operator])
        }
        ErrorKind::RepetitionCountInvalid | ErrorKind::DecimalInvalid => ("invalid repeat count", at),
        ErrorKind::EscapeUnexpectedEof => ("trailing backslash at end of expression", ""),
        ErrorKind::UnsupportedLookAround => ("invalid or unsupported Perl syntax", at),
        ErrorKind::FlagUnrecognized | ErrorKind::FlagUnexpectedEof | ErrorKind::GroupNameInvalid => {
            ("invalid or unsupported Perl syntax", rest)
        }
        _ => ("invalid escape sequence", at),
    };
    Some(format!("error parsing regexp: {what}: `{shown}`"))
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn a_bad_pattern_is_refused_in_the_words_of_go() {
        for (pattern, expected) in [
            ("^[a-z]+$", None),
            ("(", Some("error parsing regexp: missing closing ): `(`")),
            ("a)", Some("error parsing regexp: unexpected ): `a)`")),
            ("x[a", Some("error parsing regexp: missing closing ]: `[a`")),
            ("*", Some("error parsing regexp: missing argument to repetition operator: `*`")),
            ("(?=a)", Some("error parsing regexp: invalid or unsupported Perl syntax: `(?=`")),
        ] {
            assert_eq!(complaint(pattern).as_deref(), expected, "{pattern}");
        }
    }
}
