//! Formats of texts: what each allows.

use std::net::IpAddr;
use std::sync::LazyLock;

use setpoint_api::ip;
use setpoint_api::time::parse_duration;

use crate::regexp::Regexp;

/// Whether a text is of a format.
type Rule = fn(&str) -> bool;

/// Formats that are checked, without their dashes; others are taken for comments.
const RULES: &[(&str, Rule)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("byte", is_base64),
    ("cidr", |text| ip::Cidr::parse_sloppy(text).is_some()),
    ("creditcard", is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", is_email),
    ("hexcolor", |text| {
        let digits = text.strip_prefix('#').unwrap_or(text);
        matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    }),
    ("hostname", is_hostname),
    ("ipv4", |text| ip::parse_sloppy(text).is_some() && text.contains('.')),
    ("ipv6", |text| text.contains(':') && text.parse::<IpAddr>().is_ok()),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(is_name_segment)),
    ("k8sshortname", |text| text.len() <= 63 && is_name_segment(text)),
    ("mac", is_mac),
    ("password", |_| true),
    ("rgbcolor", is_rgb_color),
    ("ssn", |text| text.len() == 11 && is_match(&SSN, text)),
    ("uri", is_uri),
    ("uuid", |text| is_match(&UUID, text)),
    ("uuid3", |text| is_match(&UUID3, text)),
    ("uuid4", |text| is_match(&UUID4, text)),
    ("uuid5", |text| is_match(&UUID5, text)),
];

/// Whether a format of texts is checked.
pub(super) fn is_known(format: &str) -> bool {
    rule(format).is_some()
}

/// Whether a text is of a format; every text is of one that isn't known.
pub(super) fn allows(format: &str, text: &str) -> bool {
    rule(format).is_none_or(|rule| rule(text))
}

fn rule(format: &str) -> Option<Rule> {
    let plain = format.replace('-', "");
    RULES.iter().find(|(name, _)| *name == plain).map(|(_, rule)| *rule)
}

fn compiled(pattern: &str) -> Option<Regexp> {
    Regexp::new(pattern).ok()
}

fn is_match(pattern: &Option<Regexp>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

static SSN: LazyLock<Option<Regexp>> = LazyLock::new(|| compiled(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static UUID: LazyLock<Option<Regexp>> =
    LazyLock::new(|| compiled("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID3: LazyLock<Option<Regexp>> =
    LazyLock::new(|| compiled("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID4: LazyLock<Option<Regexp>> =
    LazyLock::new(|| compiled("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"));
static UUID5: LazyLock<Option<Regexp>> =
    LazyLock::new(|| compiled("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"));
static CREDIT_CARD: LazyLock<Option<Regexp>> = LazyLock::new(|| {
    compiled(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    )
});

/// One label of letters, digits and symbols with at most one dash, which is its second letter; or several labels with
/// dashes inside, the last of which has letters only.
fn is_hostname(text: &str) -> bool {
    let is_letter = |letter: char| {
        letter.is_ascii_alphanumeric() || "$+<=>^`|~".contains(letter) || (!letter.is_ascii() && !letter.is_control())
    };
    if text.len() > 255 || text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return false;
    }
    let Some((labels, last)) = text.rsplit_once('.') else {
        let mut rest = text.chars();
        let first = rest.next().is_some_and(is_letter);
        let rest = rest.as_str();
        return first && rest.strip_prefix('-').unwrap_or(rest).chars().all(is_letter);
    };
    let is_label = |label: &str| {
        label.chars().all(|letter| is_letter(letter) || letter == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    labels.split('.').all(is_label) && last.chars().count() >= 2 && last.chars().all(char::is_alphabetic)
}

fn is_name_segment(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(allowed)
}

fn is_date(text: &str) -> bool {
    setpoint_api::time::Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok() && text.len() == 10
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// `12:30:45`, with an optional fraction, and `z` or an offset.
fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let bytes = clock.as_bytes();
    let shaped = clock.char_indices().all(|(at, c)| if at == 2 || at == 5 { c == ':' } else { c.is_ascii_digit() });
    if !shaped || &bytes[..2] > b"23".as_slice() || &bytes[3..5] > b"59".as_slice() || &bytes[6..] > b"59".as_slice() {
        return false;
    }
    let mut zone = rest;
    let mut letters = rest.chars();
    if let (Some(first), Some(second)) = (letters.next(), letters.next())
        && second.is_ascii_digit()
        && !matches!(first, '+' | '-' if rest.len() == 6)
    {
        zone = rest[first.len_utf8()..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let is_offset = || {
        zone.len() == 6
            && zone.starts_with(['+', '-'])
            && zone.char_indices().skip(1).all(|(at, c)| if at == 3 { c == ':' } else { c.is_ascii_digit() })
    };
    zone == "z" || is_offset()
}

/// A duration of Go, or any number with a unit somewhere in the text.
fn is_duration(text: &str) -> bool {
    const EXACT: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const PREFIXES: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if parse_duration(text).is_ok() {
        return true;
    }
    let is_unit = |letter: char| letter.is_ascii_alphabetic() || letter == 'µ';
    text.char_indices().filter(|(_, letter)| letter.is_ascii_digit()).any(|(at, _)| {
        let after = text[at..].trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let unit: String = after.chars().take_while(|letter| is_unit(*letter)).collect::<String>().to_lowercase();
        EXACT.contains(&unit.as_str()) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix))
    })
}

/// `a@b`, or a name and the address in angle brackets.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || local.split('.').all(atom)) && (literal || domain.split('.').all(atom))
}

/// An absolute URI or an absolute path, as the first line of an HTTP request has it.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7F) || !has_good_escapes(text) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let first = scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let good = first && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or(""));
    good && host
        .is_none_or(|host| !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}']) && has_good_port(host))
}

fn has_good_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

fn has_good_port(host: &str) -> bool {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let after = if host.starts_with('[') { host.rsplit_once(']').map_or("", |(_, after)| after) } else { host };
    after.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_mac(text: &str) -> bool {
    let of = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        let good = |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        counts.contains(&parts.len()) && parts.iter().all(good)
    };
    of(':', 2, &[6, 8, 20]) || of('-', 2, &[6, 8, 20]) || of('.', 4, &[3, 4, 10])
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inside) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let part = |part: &str| {
        let digits = part.trim_matches(['\t', '\n', '\x0C', '\r', ' ']);
        let plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
        plain && digits.parse::<u8>().is_ok()
    };
    inside.split(',').count() == 3 && inside.split(',').all(part)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits.bytes().rev().enumerate().fold(0, |sum, (index, byte)| {
        let digit = u32::from(byte - b'0');
        let doubled = if index % 2 == 1 { digit * 2 } else { digit };
        sum + if doubled >= 10 { doubled % 10 + 1 } else { doubled }
    });
    is_match(&CREDIT_CARD, &digits) && sum.is_multiple_of(10)
}

fn isbn_digits(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_whitespace() && *letter != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let (Some(body), Some(last)) = (digits.get(..9), digits.get(9..)) else { return false };
    let check = match last {
        "X" => 10,
        last if last.len() == 1 && last.bytes().all(|byte| byte.is_ascii_digit()) => {
            u32::from(last.as_bytes()[0] - b'0')
        }
        _ => return false,
    };
    let weighted = (1..).zip(body.bytes()).map(|(weight, byte)| weight * u32::from(byte.wrapping_sub(b'0')));
    body.bytes().all(|byte| byte.is_ascii_digit()) && (weighted.sum::<u32>() + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if digits.len() != 13 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let weighted =
        digits.bytes().enumerate().map(|(at, byte)| u32::from(byte - b'0') * if at % 2 == 0 { 1 } else { 3 });
    weighted.sum::<u32>().is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::{allows, is_known};

    #[test]
    fn each_format_takes_what_it_should() {
        for (format, good, bad) in [
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("byte", "YWJj", "YWJ"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("creditcard", "4111 1111 1111 1111", "4111111111111112"),
            ("date", "2024-02-29", "2023-02-29"),
            ("date-time", "2024-01-02T03:04:05.678Z", "2024-01-02 03:04:05Z"),
            ("datetime", "2024-01-02t03:04:05+01:00", "2024-01-02T25:04:05Z"),
            ("duration", "1h30m", "soon"),
            ("duration", "2 weeks", "1 fortnight"),
            ("email", "a.b@example.com", "a@"),
            ("email", "A <a@b>", "a b@c"),
            ("hexcolor", "#fFf", "#ff"),
            ("hostname", "a-b.example.com", "-a"),
            ("hostname", "localhost", "a_b"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "0321751044"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "A.b"),
            ("mac", "01:23:45:67:89:ab", "01:23:45"),
            ("rgbcolor", "rgb(255, 0,12)", "rgb(256,0,0)"),
            ("ssn", "111-11-1111", "111"),
            ("uri", "https://example.com/a?b#c", "example.com"),
            ("uri", "/a/b", "http://[::1]:x"),
            ("uuid", "C232AB00-9414-11EC-B3C8-9F6BDECED846", "c232"),
            ("uuid4", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "f47ac10b-58cc-5372-a567-0e02b2c3d479"),
        ] {
            assert!(is_known(format), "{format}");
            assert!(allows(format, good), "{format} {good}");
            assert!(!allows(format, bad), "{format} {bad}");
        }
        assert!(!is_known("int32") && allows("bogus", "anything"));
    }
}
