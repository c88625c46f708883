//! Times and durations as text. There is no clock here: the present comes from whoever calls.

use std::fmt;

mod duration;
mod parse;

pub use duration::{DurationError, format_duration, parse_duration};
pub use parse::TimeError;

/// A moment: seconds since 1970-01-01T00:00:00Z and the nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999 999 999, counted forward also before 1970.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The beginning of this second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }

    /// Reads RFC 3339 as `metav1.Time` does: a fraction of any length may be there.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        parse::parse(text, parse::Layout::Seconds)
    }

    /// Reads RFC 3339 as `metav1.MicroTime` does: with exactly six decimals.
    pub fn parse_micro(text: &str) -> Result<Self, TimeError> {
        parse::parse(text, parse::Layout::Micro)
    }

    /// `2006-01-02T15:04:05Z`; the fraction is cut off.
    pub fn to_rfc3339(self) -> String {
        format!("{}Z", self.date_and_time())
    }

    /// `2006-01-02T15:04:05.000000Z`; what is below a microsecond is cut off.
    pub fn to_rfc3339_micro(self) -> String {
        format!("{}.{:06}Z", self.date_and_time(), self.nanoseconds / 1000)
    }

    fn date_and_time(self) -> String {
        let (days, second) = (self.seconds.div_euclid(SECONDS_PER_DAY), self.seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_rfc3339())
    }
}

/// A second since 1970 as `2006-01-02T15:04:05Z`.
pub fn format_rfc3339(unix_seconds: i64) -> String {
    Timestamp::from_seconds(unix_seconds).to_rfc3339()
}

/// The same moment in UTC and whole seconds: the form in which Kubernetes keeps every `metav1.Time`.
pub fn normalize(text: &str) -> Result<String, TimeError> {
    Timestamp::parse(text).map(Timestamp::to_rfc3339)
}

/// The same moment in UTC and microseconds: the form in which Kubernetes keeps every `metav1.MicroTime`.
pub fn normalize_micro(text: &str) -> Result<String, TimeError> {
    Timestamp::parse_micro(text).map(Timestamp::to_rfc3339_micro)
}

const SECONDS_PER_DAY: i64 = 86_400;
/// The Gregorian calendar repeats after 400 years.
const DAYS_PER_ERA: i64 = 146_097;
/// From 0000-03-01 to 1970-01-01. Years are counted from March, so that the leap day comes last.
const DAYS_TO_EPOCH: i64 = 719_468;

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(DAYS_TO_EPOCH);
    let (era, day_of_era) = (shifted.div_euclid(DAYS_PER_ERA), shifted.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_TO_EPOCH
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_civil(next_year, next_month, 1) - days_from_civil(year, month, 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_second_prints_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (-62_135_596_800, "0001-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(format_rfc3339(seconds), text);
            assert_eq!(Timestamp::parse(text), Ok(Timestamp::from_seconds(seconds)));
        }
        let moment = Timestamp { seconds: 0, nanoseconds: 1_234_567 };
        assert_eq!(moment.to_rfc3339_micro(), "1970-01-01T00:00:00.001234Z");
    }

    #[test]
    fn every_offset_becomes_utc() {
        for (text, expected) in [
            ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01T01:00:00+01:00", "2024-01-01T00:00:00Z"),
            ("2023-12-31T19:30:00-04:30", "2024-01-01T00:00:00Z"),
            ("2024-01-01T00:00:00.999999999Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01T1:00:00Z", "2024-01-01T01:00:00Z"),
        ] {
            assert_eq!(normalize(text).as_deref(), Ok(expected), "{text:?}");
        }
        assert_eq!(normalize_micro("2024-01-01T01:00:00.123456+01:00").as_deref(), Ok("2024-01-01T00:00:00.123456Z"));
    }

    proptest! {
        #[test]
        fn every_moment_survives_printing_and_reading(seconds in -62_135_596_800i64..253_402_300_800, micro in 0u32..1_000_000) {
            let moment = Timestamp { seconds, nanoseconds: micro * 1000 };
            prop_assert_eq!(Timestamp::parse_micro(&moment.to_rfc3339_micro()), Ok(moment));
            prop_assert_eq!(Timestamp::parse(&moment.to_rfc3339_micro()), Ok(moment));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9TZ:.,+é -]{0,30}|20[0-9]{2}-[01][0-9]-[0-3][0-9]T.{0,20}") {
            let _ = (Timestamp::parse(&text), Timestamp::parse_micro(&text));
        }
    }
}
