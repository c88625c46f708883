//! The schedule of a CronJob: five fields, or a word for a usual one, and what is wrong with it in upstream's words.

use setpoint_api::quote::quote;
use setpoint_api::time::parse_duration;

use super::time_zone;

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

const WORDS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What is wrong with a schedule, if anything.
pub(super) fn complaint(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        rest = after_time_zone(schedule)?;
    }
    if rest.starts_with('@') {
        return check_word(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| check_range(range, bounds))
    })
}

fn after_time_zone(schedule: &str) -> Result<&str, String> {
    let equals = schedule.find('=').map_or(0, |at| at + 1);
    let Some(space) = schedule.find(' ') else {
        // Upstream slices with an index of -1 here, and reports what Go makes of it.
        return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
    };
    let zone = &schedule[equals..space];
    match time_zone::load_error(zone) {
        Some(error) => Err(format!("provided bad location {zone}: {error}")),
        None => Ok(schedule[space..].trim()),
    }
}

fn check_word(word: &str) -> Result<(), String> {
    match word.strip_prefix("@every ") {
        Some(duration) => {
            parse_duration(duration).map(drop).map_err(|error| format!("failed to parse duration {word}: {error}"))
        }
        None if WORDS.contains(&word) => Ok(()),
        None => Err(format!("unrecognized descriptor: {word}")),
    }
}

fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let any = matches!(ends[0], "*" | "?");
    let (start, mut end) = match ends[..] {
        _ if any => (bounds.min, bounds.max),
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
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
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
        assert_eq!(complaint(schedule).unwrap_or_default(), expected, "{schedule}");
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
}
