//! What a plain string would be read as.

/// Words that YAML 1.1 reads as true, false, null or a number.
const WORDS: [&str; 39] = [
    "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n", "N",
    "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF",
    "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
];

/// Whether the string stays a string when it is written plain.
pub(super) fn is_string(text: &str) -> bool {
    let is_special = match text.bytes().next() {
        None => true,
        Some(b'.') => WORDS.contains(&text) || is_go_float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            WORDS.contains(&text) || is_timestamp(text) || is_number(text) || is_base_60(text)
        }
        Some(_) => WORDS.contains(&text),
    };
    !is_special
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    is_go_integer(&plain) || is_decimal(&plain) && is_go_float(&plain)
}

/// An integer of 64 bits as Go reads literals: a sign, a prefix for the base, digits. Unsigned ones may use all bits.
fn is_go_integer(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let limit = match text.as_bytes().first() {
        Some(b'-') => u64::MAX / 2 + 1,
        Some(b'+') => u64::MAX / 2,
        _ => u64::MAX,
    };
    let (digits, radix) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&unsigned[2..], 16),
        [b'0', b'o' | b'O', ..] => (&unsigned[2..], 8),
        [b'0', b'b' | b'B', ..] => (&unsigned[2..], 2),
        [b'0', _, ..] => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    };
    !digits.starts_with(['+', '-']) && u64::from_str_radix(digits, radix).is_ok_and(|value| value <= limit)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, exponent) =
        text.split_once(['e', 'E']).map_or((text, None), |(number, exponent)| (number, Some(exponent)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number_fits = match number.split_once('.') {
        None => digits(number),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    };
    number_fits && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// Too large a number is none for Go.
fn is_go_float(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `12:30:45`: a number in base 60 for YAML 1.1. `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let loose = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let first = parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()) && loose(part));
    let mut count = 0;
    let sixties = parts.all(|part| {
        count += 1;
        matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    first && sixties && count > 0 && loose(fraction)
}

/// `2006-1-2`, with a time behind a space, or with a time and a zone behind `T`.
fn is_timestamp(text: &str) -> bool {
    let Some((date, rest)) = date(text) else { return false };
    match rest.chars().next() {
        None => date,
        Some(' ') => date && time(rest.trim_start_matches(' ')).is_some_and(str::is_empty),
        Some('T' | 't') => date && time(&rest[1..]).is_some_and(is_zone),
        Some(_) => false,
    }
}

/// Whether the date is one of the calendar, and what follows it.
fn date(text: &str) -> Option<(bool, &str)> {
    let year = text.get(..4).filter(|year| year.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (month, rest) = short_number(text[4..].strip_prefix('-')?)?;
    let (day, rest) = short_number(rest.strip_prefix('-')?)?;
    let year: u32 = year.parse().ok()?;
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    Some(((1..=days).contains(&day), rest))
}

/// What follows a time of day with optional fractions of a second.
fn time(text: &str) -> Option<&str> {
    let (hour, rest) = short_number(text)?;
    let (minute, rest) = short_number(rest.strip_prefix(':')?)?;
    let (second, rest) = short_number(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let Some(fraction) = rest.strip_prefix(['.', ',']) else { return Some(rest) };
    let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    if end == 0 { Some(rest) } else { Some(&fraction[end..]) }
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"Z" => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            let number = |a: &u8, b: &u8| {
                (a.is_ascii_digit() && b.is_ascii_digit()).then(|| u32::from(a - b'0') * 10 + u32::from(b - b'0'))
            };
            number(h1, h2).is_some_and(|hours| hours <= 24) && number(m1, m2).is_some_and(|minutes| minutes < 60)
        }
        _ => false,
    }
}

/// One or two digits.
fn short_number(text: &str) -> Option<(u32, &str)> {
    let count = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(count)?;
    Some((digits.parse().ok()?, rest))
}
