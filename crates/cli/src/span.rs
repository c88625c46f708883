//! Spans of time as people write them on a command line: `500ms`, `5s`, `1m30s`, `2h`.

use std::time::Duration;

/// Longest span that is taken: ten years, so that sums stay in range.
const SECONDS_MAX: f64 = 10.0 * 365.0 * 86_400.0;

/// Reads a span; a number alone is seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no span of time, such as 500ms, 5s, 1m30s or 2h");
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => sum(text).ok_or_else(wrong)?,
    };
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a span that may be negative, which stands for as long as it takes.
pub fn parse_signed(text: &str) -> Result<Option<Duration>, String> {
    match text.strip_prefix('-') {
        Some(rest) => parse(rest).map(|_| None),
        None => parse(text).map(Some),
    }
}

fn sum(text: &str) -> Option<f64> {
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..end] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_sum_of_numbers_with_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("5", Some(5000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("", None),
            ("soon", None),
            ("5 s", None),
            ("-1s", None),
            ("1e300s", None),
            ("99999999h", None),
        ] {
            assert_eq!(parse(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
        assert_eq!(parse_signed("-1s"), Ok(None));
    }
}
