//! Durations as Go writes them: `1h2m3s`, `1.5s`, `300ms`.

use std::fmt;

use super::parse;

/// Why a text is no duration, in the words of Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationError {
    message: String,
}

impl fmt::Display for DurationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for DurationError {}

/// The smallest duration has no positive twin, so magnitudes go one further than `i64`.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// Reads a duration as nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError { message: format!("time: invalid duration {}", quote(text)) };
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (magnitude, after) = term(text, rest)?;
        total = total.checked_add(magnitude).filter(|total| *total <= MAGNITUDE_MAX).ok_or_else(invalid)?;
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(total)) => Ok(total),
        (true, Ok(total)) => Ok(-total),
        (true, Err(_)) => Ok(i64::MIN),
        (false, Err(_)) => Err(invalid()),
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn term<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError { message: format!("time: invalid duration {}", quote(text)) };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, after) = rest.split_at(digits(rest));
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => after.split_at(digits(after)),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    if whole > MAGNITUDE_MAX {
        return Err(invalid());
    }
    let end = after.find(|next: char| next == '.' || next.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(end);
    if unit.is_empty() {
        return Err(DurationError { message: format!("time: missing unit in duration {}", quote(text)) });
    }
    let Some(nanoseconds) = unit_nanoseconds(unit) else {
        let message = format!("time: unknown unit {} in duration {}", quote(unit), quote(text));
        return Err(DurationError { message });
    };
    let magnitude = whole.checked_mul(nanoseconds).ok_or_else(invalid)?;
    let magnitude = magnitude.checked_add(fraction_of(fraction, nanoseconds)).ok_or_else(invalid)?;
    if magnitude > MAGNITUDE_MAX { Err(invalid()) } else { Ok((magnitude, after)) }
}

fn quote(text: &str) -> String {
    parse::quote(text.as_bytes())
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        // The micro sign and the Greek letter look alike; both are in use.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60 * 1_000_000_000),
        "h" => Some(3_600 * 1_000_000_000),
        _ => None,
    }
}

/// The fraction of a unit. Go computes it in floating point, so we do too: the last nanosecond shall be the same.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        // More digits than 63 bits hold are beyond what a nanosecond could show.
        let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(digit)) else { break };
        if next > MAGNITUDE_MAX {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    if value == 0 { 0 } else { (value as f64 * (unit as f64 / scale)) as u64 }
}

/// The shortest text of a duration, as Go prints it: `1h2m3s`, `1.5s`, `0s`.
pub fn format_duration(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let text = match magnitude {
        0 => return "0s".to_owned(),
        1..1_000 => format!("{magnitude}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(magnitude, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(magnitude, 1_000_000)),
        _ => clock(magnitude),
    };
    if nanoseconds < 0 { format!("-{text}") } else { text }
}

fn clock(magnitude: u64) -> String {
    let minutes = magnitude / 60_000_000_000;
    let seconds = decimal(magnitude % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A number of units without trailing zeros.
fn decimal(magnitude: u64, unit: u64) -> String {
    let (whole, fraction) = (magnitude / unit, magnitude % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{fraction:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_and_printed_as_go_does() {
        for (text, nanoseconds, printed) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("1h2m3s", 3_723_000_000_000, "1h2m3s"),
            ("90m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("300ms", 300_000_000, "300ms"),
            ("1.5us", 1_500, "1.5\u{b5}s"),
            ("1\u{3bc}s", 1_000, "1\u{b5}s"),
            (".5h", 1_800_000_000_000, "30m0s"),
            ("-1m", -60_000_000_000, "-1m0s"),
            ("+1s1ms", 1_001_000_000, "1.001s"),
            ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parse_duration(text), Ok(nanoseconds), "{text:?}");
            assert_eq!(format_duration(nanoseconds), printed);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_in_the_words_of_go() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("s", r#"time: invalid duration "s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("3", r#"time: missing unit in duration "3""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1s2x", r#"time: unknown unit "x" in duration "1s2x""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("99999999999h", r#"time: invalid duration "99999999999h""#),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_duration(nanoseconds in any::<i64>()) {
            prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9.hmsnu+-]{0,24}|\\PC{0,12}") {
            let _ = parse_duration(&text);
        }
    }
}
