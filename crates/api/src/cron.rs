//! Schedules in the notation of cron: five fields, or a word for a usual one, and what is wrong with one in upstream's words.

use crate::quote::quote;
use crate::time::parse_duration;

/// When something is due.
///
/// ```
/// use setpoint_api::cron::{Cron, Schedule};
///
/// let cron = Cron::parse("TZ=Asia/Tokyo 30 6 * * 1-5", |_| None).unwrap();
/// assert_eq!(cron.zone, Some("Asia/Tokyo"));
/// let Schedule::Fields(fields) = cron.schedule else { panic!() };
/// assert!(fields.minutes == 1 << 30 && fields.hours == 1 << 6 && fields.weekdays == 0b11_1110);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron<'a> {
    /// The time zone that the text itself names.
    pub zone: Option<&'a str>,
    /// The schedule.
    pub schedule: Schedule,
}

/// When something is due, in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At minutes that fit.
    Fields(Fields),
    /// So many seconds after the last time.
    Every(i64),
}

/// Sets of numbers, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// 0 to 59.
    pub minutes: u64,
    /// 0 to 23.
    pub hours: u64,
    /// 1 to 31.
    pub days: u64,
    /// 1 to 12.
    pub months: u64,
    /// 0 to 6 from Sunday on.
    pub weekdays: u64,
    /// Whether a day must fit both sets of days; else one of them is enough.
    pub needs_both_days: bool,
}

/// A field's bounds, and the names that stand for numbers.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: &MONTHS },
    Bounds { min: 0, max: 6, names: &DAYS },
];

const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Set beside the numbers of a field that takes any number.
const ANY: u64 = 1 << 63;

const SECOND: i64 = 1_000_000_000;

impl<'a> Cron<'a> {
    /// Reads a schedule; `zone_error` says why a time zone can't be used.
    pub fn parse(text: &'a str, zone_error: impl Fn(&str) -> Option<String>) -> Result<Cron<'a>, String> {
        let (mut zone, mut rest) = (None, text);
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let name;
            (name, rest) = split_zone(text)?;
            if let Some(error) = zone_error(name) {
                return Err(format!("provided bad location {name}: {error}"));
            }
            zone = Some(name);
        }
        let schedule = if rest.starts_with('@') { parse_word(rest) } else { parse_fields(rest) };
        Ok(Cron { zone, schedule: schedule? })
    }
}

fn split_zone(text: &str) -> Result<(&str, &str), String> {
    let equals = text.find('=').map_or(0, |at| at + 1);
    match text.find(' ') {
        Some(space) => Ok((&text[equals..space], text[space..].trim())),
        // Upstream slices with an index of -1 here, and reports what Go makes of it.
        None => Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned()),
    }
}

fn parse_word(word: &str) -> Result<Schedule, String> {
    if let Some(duration) = word.strip_prefix("@every ") {
        let span = parse_duration(duration).map_err(|error| format!("failed to parse duration {word}: {error}"))?;
        return Ok(Schedule::Every((span / SECOND).max(1)));
    }
    match WORDS.iter().find(|(known, _)| *known == word) {
        Some((_, fields)) => parse_fields(fields),
        None => Err(format!("unrecognized descriptor: {word}")),
    }
}

fn parse_fields(text: &str) -> Result<Schedule, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let (wanted, found) = (FIELDS.len(), fields.len());
    if found != wanted {
        return Err(format!("expected exactly {wanted} fields, found {found}: [{}]", fields.join(" ")));
    }
    let mut sets = [0; 5];
    for ((set, field), bounds) in sets.iter_mut().zip(fields).zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            *set |= parse_range(range, bounds)?;
        }
    }
    let needs_both_days = (sets[2] | sets[4]) & ANY != 0;
    let [minutes, hours, days, months, weekdays] = sets.map(|set| set & !ANY);
    Ok(Schedule::Fields(Fields { minutes, hours, days, months, weekdays, needs_both_days }))
}

fn parse_range(range: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut any = if matches!(ends[0], "*" | "?") { ANY } else { 0 };
    let (start, mut end) = match ends[..] {
        _ if any != 0 => (bounds.min, bounds.max),
        [only] => number_or_name(only, bounds).map(|number| (number, number))?,
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        _ => {
            number_or_name(ends[0], bounds)?;
            return Err(format!("too many hyphens: {range}"));
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => number(step)?,
        _ => return Err(format!("too many slashes: {range}")),
    };
    if parts.len() == 2 && ends.len() == 1 {
        end = bounds.max; // `5/10` goes on to the end
    }
    if step > 1 {
        any = 0;
    }
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok((start..=end).step_by(step).fold(any, |set, number| set | 1 << number))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + at as u64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let complaint = if plain { "value out of range" } else { "invalid syntax" };
    let parsed: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {complaint}", quote(text)))?;
    u64::try_from(parsed).map_err(|_| format!("negative number ({parsed}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_complaint(schedule: &str, expected: &str) {
        let zone_error = |zone: &str| (zone == "No/Where").then(|| format!("unknown time zone {zone}"));
        assert_eq!(Cron::parse(schedule, zone_error).err().unwrap_or_default(), expected, "{schedule}");
    }

    #[test]
    fn good_schedules_are_taken() {
        for schedule in [
            "* * * * *",
            "0 0 1 JAN sun",
            " */5  1-3,7 ? * 1-5/2 ",
            "0 0 31 2 *",
            "@hourly",
            "@every 1h30m",
            "5/10 * * * *",
            "TZ=Asia/Tokyo 0 * * * *",
            "CRON_TZ=UTC @daily",
            ", * * * *",
            "+5 * * * *",
        ] {
            check_complaint(schedule, "");
        }
    }

    #[test]
    fn bad_schedules_are_refused_in_words() {
        for (schedule, expected) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("0 0 32 * *", "end of range (32) above maximum (31): 32"),
            ("0 0 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("30-10 * * * *", "beginning of range (30) beyond end of range (10): 30-10"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("-5 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": \
                 value out of range",
            ),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("@every soon", "failed to parse duration @every soon: time: invalid duration \"soon\""),
            ("TZ=No/Where 0 * * * *", "provided bad location No/Where: unknown time zone No/Where"),
            ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ] {
            check_complaint(schedule, expected);
        }
    }

    fn fields(schedule: &str) -> Fields {
        match Cron::parse(schedule, |_| None).unwrap().schedule {
            Schedule::Fields(fields) => fields,
            Schedule::Every(_) => panic!("{schedule} has no fields"),
        }
    }

    #[test]
    fn fields_are_sets() {
        assert_eq!(fields("5/20 1-3,7 ? JAN,3 mon-wed/2").minutes, 1 << 5 | 1 << 25 | 1 << 45);
        let read = fields("5/20 1-3,7 ? JAN,3 mon-wed/2");
        assert_eq!((read.hours, read.months, read.weekdays), (0b1000_1110, 0b1010, 0b1010));
        for (one, other) in [("@daily", "0 0 * * *"), ("@weekly", "0 0 * * sun"), ("@yearly", "0 0 1 1 *")] {
            assert_eq!(fields(one), fields(other), "{one}");
        }
    }

    #[test]
    fn both_sets_of_days_count_only_if_one_takes_any_day() {
        for (schedule, needs_both) in [
            ("0 0 1 * 1", false),
            ("0 0 * * 1", true),
            ("0 0 */1 * 1", true),
            ("0 0 */2 * 1", false),
            ("0 0 1 * ?", true),
        ] {
            assert_eq!(fields(schedule).needs_both_days, needs_both, "{schedule}");
        }
    }

    #[test]
    fn every_is_at_least_a_second() {
        for (schedule, seconds) in [("@every 1h30m", 5400), ("@every 1.9s", 1), ("@every 5ms", 1), ("@every -1h", 1)] {
            assert_eq!(Cron::parse(schedule, |_| None).unwrap().schedule, Schedule::Every(seconds), "{schedule}");
        }
    }
}
