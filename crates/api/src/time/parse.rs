//! Reading RFC 3339, with the complaints of Go's parser, which Kubernetes passes on to its users.

use std::fmt;

use super::{SECONDS_PER_DAY, Timestamp, days_from_civil, days_in_month};

/// What Go calls the layout: the form that is read, spelled as an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A fraction is optional.
    Seconds,
    /// Six decimals are required.
    Micro,
}

impl Layout {
    const fn example(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micro => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Why a text is no time, in the words of Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeError {
    message: String,
}

impl fmt::Display for TimeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for TimeError {}

pub(super) fn parse(text: &str, layout: Layout) -> Result<Timestamp, TimeError> {
    let mut reader = Reader { text, rest: text.as_bytes(), layout };
    let year = reader.year()?;
    reader.literal("-")?;
    let month = reader.number("01", Width::Two)?;
    reader.check((1..=12).contains(&month), "month")?;
    reader.literal("-")?;
    let day = reader.number("02", Width::Two)?;
    reader.literal("T")?;
    let hour = reader.number("15", Width::OneOrTwo)?;
    reader.check(hour < 24, "hour")?;
    reader.literal(":")?;
    let minute = reader.number("04", Width::Two)?;
    reader.check(minute < 60, "minute")?;
    reader.literal(":")?;
    let second = reader.number("05", Width::Two)?;
    reader.check(second < 60, "second")?;
    let nanoseconds = match layout {
        Layout::Seconds => reader.optional_fraction(),
        Layout::Micro => reader.six_decimals()?,
    };
    let offset = reader.offset()?;
    reader.end()?;
    reader.check((1..=days_in_month(year, month)).contains(&day), "day")?;
    let midnight = days_from_civil(year, month, day) * SECONDS_PER_DAY;
    Ok(Timestamp { seconds: midnight + hour * 3600 + minute * 60 + second - offset, nanoseconds })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Two,
    OneOrTwo,
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a [u8],
    layout: Layout,
}

impl Reader<'_> {
    fn year(&mut self) -> Result<i64, TimeError> {
        match self.rest {
            [a, b, c, d, rest @ ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) => {
                let year = [a, b, c, d].iter().fold(0, |year, byte| year * 10 + digit(**byte));
                self.rest = rest;
                Ok(year)
            }
            _ => Err(self.cannot_parse(self.rest, "2006")),
        }
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), TimeError> {
        match self.rest.strip_prefix(literal.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.cannot_parse(self.rest, literal)),
        }
    }

    fn number(&mut self, element: &'static str, width: Width) -> Result<i64, TimeError> {
        match self.rest {
            [tens, ones, rest @ ..] if tens.is_ascii_digit() && ones.is_ascii_digit() => {
                self.rest = rest;
                Ok(digit(*tens) * 10 + digit(*ones))
            }
            [ones, rest @ ..] if ones.is_ascii_digit() && width == Width::OneOrTwo => {
                self.rest = rest;
                Ok(digit(*ones))
            }
            _ => Err(self.cannot_parse(self.rest, element)),
        }
    }

    /// A fraction of any length; beyond nanoseconds it is cut off.
    fn optional_fraction(&mut self) -> u32 {
        let [b'.' | b',', fraction @ ..] = self.rest else { return 0 };
        let length = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return 0;
        }
        self.rest = &fraction[length..];
        nanoseconds(&fraction[..length])
    }

    fn six_decimals(&mut self) -> Result<u32, TimeError> {
        match self.rest {
            [b'.' | b',', fraction @ ..] if fraction.len() >= 6 && fraction[..6].iter().all(u8::is_ascii_digit) => {
                self.rest = &fraction[6..];
                Ok(nanoseconds(&fraction[..6]))
            }
            _ => Err(self.cannot_parse(self.rest, ".000000")),
        }
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        let before = self.rest;
        if let [b'Z', rest @ ..] = before {
            self.rest = rest;
            return Ok(0);
        }
        let bad = self.cannot_parse(before, "Z07:00");
        let [sign, hour_tens, hour_ones, b':', minute_tens, minute_ones, rest @ ..] = before else { return Err(bad) };
        if ![hour_tens, hour_ones].iter().all(|byte| byte.is_ascii_digit()) {
            return Err(bad);
        }
        let hours = digit(*hour_tens) * 10 + digit(*hour_ones);
        let minutes = match [minute_tens, minute_ones].iter().all(|byte| byte.is_ascii_digit()) {
            true => Some(digit(*minute_tens) * 10 + digit(*minute_ones)),
            false => None,
        };
        // Go's order: ranges first, of which the last wins, then what is no number.
        self.check(minutes.is_none_or(|minutes| minutes <= 60), "time zone offset minute")?;
        self.check(hours <= 24, "time zone offset hour")?;
        let Some(minutes) = minutes else { return Err(bad) };
        self.rest = rest;
        let seconds = (hours * 60 + minutes) * 60;
        match sign {
            b'+' => Ok(seconds),
            b'-' => Ok(-seconds),
            _ => Err(bad),
        }
    }

    fn end(&self) -> Result<(), TimeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.complain(&format!(": extra text: {}", quote(self.rest))))
    }

    fn check(&self, good: bool, part: &str) -> Result<(), TimeError> {
        if good { Ok(()) } else { Err(self.complain(&format!(": {part} out of range"))) }
    }

    fn cannot_parse(&self, rest: &[u8], element: &str) -> TimeError {
        let (example, rest) = (self.layout.example(), quote(rest));
        self.complain(&format!(" as \"{example}\": cannot parse {rest} as \"{element}\""))
    }

    fn complain(&self, complaint: &str) -> TimeError {
        TimeError { message: format!("parsing time {}{complaint}", quote(self.text.as_bytes())) }
    }
}

fn digit(byte: u8) -> i64 {
    i64::from(byte - b'0')
}

fn nanoseconds(decimals: &[u8]) -> u32 {
    let padded = decimals.iter().copied().chain(std::iter::repeat(b'0'));
    padded.take(9).fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0'))
}

/// The time package of Go has a quoting of its own: all that is not printable ASCII is shown byte by byte.
pub(super) fn quote(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=0x7f => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_refused_in_the_words_of_go() {
        let layout = "\"2006-01-02T15:04:05Z07:00\"";
        for (text, expected) in [
            ("x", format!(r#"parsing time "x" as {layout}: cannot parse "x" as "2006""#)),
            ("", format!(r#"parsing time "" as {layout}: cannot parse "" as "2006""#)),
            ("2024", format!(r#"parsing time "2024" as {layout}: cannot parse "" as "-""#)),
            ("2024-1-01", format!(r#"parsing time "2024-1-01" as {layout}: cannot parse "1-01" as "01""#)),
            ("2024-01-01", format!(r#"parsing time "2024-01-01" as {layout}: cannot parse "" as "T""#)),
            (
                "2024-01-01 00:00:00Z",
                format!(r#"parsing time "2024-01-01 00:00:00Z" as {layout}: cannot parse " 00:00:00Z" as "T""#),
            ),
            (
                "2024-01-01T00:00:00",
                format!(r#"parsing time "2024-01-01T00:00:00" as {layout}: cannot parse "" as "Z07:00""#),
            ),
            ("é", format!(r#"parsing time "\xc3\xa9" as {layout}: cannot parse "\xc3\xa9" as "2006""#)),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#.to_owned()),
            ("2024-02-30T00:00:00Z", r#"parsing time "2024-02-30T00:00:00Z": day out of range"#.to_owned()),
            ("2024-01-01T24:00:00Z", r#"parsing time "2024-01-01T24:00:00Z": hour out of range"#.to_owned()),
            ("2024-01-01T00:60:00Z", r#"parsing time "2024-01-01T00:60:00Z": minute out of range"#.to_owned()),
            ("2024-01-01T00:00:60Z", r#"parsing time "2024-01-01T00:00:60Z": second out of range"#.to_owned()),
            (
                "2024-01-01T00:00:00+25:00",
                r#"parsing time "2024-01-01T00:00:00+25:00": time zone offset hour out of range"#.to_owned(),
            ),
            ("2024-01-01T00:00:00Zx", r#"parsing time "2024-01-01T00:00:00Zx": extra text: "x""#.to_owned()),
        ] {
            assert_eq!(parse(text, Layout::Seconds).unwrap_err().to_string(), expected, "{text:?}");
        }
        assert_eq!(
            parse("2024-01-01T00:00:00Z", Layout::Micro).unwrap_err().to_string(),
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }
}
