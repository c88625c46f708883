//! Durations and ages for people: `45s`, `3m20s`, `2d3h`.

use serde_json::Value;
use setpoint_api::time::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// How long ago a time was; `<unknown>` if there is none.
pub fn age(then: Option<&Value>, now: i64) -> String {
    match then.and_then(Value::as_str).and_then(|text| Timestamp::parse(text).ok()) {
        Some(then) => duration(now - then.seconds),
        None => "<unknown>".to_owned(),
    }
}

/// A duration in the two largest units that matter; precision fades as it grows.
pub fn duration(seconds: i64) -> String {
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(), // clocks of two machines may differ a little
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds, YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn two(seconds: i64, large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    let rest = seconds % large / small;
    match rest {
        0 => format!("{}{large_unit}", seconds / large),
        _ => format!("{}{large_unit}{rest}{small_unit}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_told_in_the_units_that_matter() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (8 * HOUR - 1, "7h59m"),
            (48 * HOUR - 1, "47h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (3 * YEAR + 5 * DAY, "3y5d"),
            (9 * YEAR + 5 * DAY, "9y"),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }
}
