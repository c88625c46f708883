//! Which start of a CronJob is due, and which of its Jobs have had their time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::timetable::Timetable;
use crate::job::finished;

/// A run comes a little after the schedule says, because clocks differ a little.
const LATER: Duration = Duration::from_millis(100);

/// More missed starts than this are worth a warning.
const MISSED_MAX: i64 = 100;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: the next start is in the future.
    Nothing,
    /// A start, but its time is over.
    TooLate(Timestamp),
    /// A start; with a warning if very many were missed before it.
    Start(Timestamp, Missed),
}

/// Whether starts were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    None,
    Few,
    Many,
}

/// The schedule can be read but makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senseless;

/// What `InvalidSchedule` says about it.
pub const SENSELESS: &str = "time difference between two schedules is less than 1 second";

/// What is due at a moment.
pub fn due(cron: &CronJob, status: &CronJobStatus, table: &Timetable, now: Timestamp) -> Result<Due, Senseless> {
    let deadline = cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let mut earliest = earliest(cron, status);
    if let Some(deadline) = deadline {
        earliest = earliest.max(now.saturating_sub(deadline).unwrap_or(Timestamp::MIN));
    }
    let (last, missed) = most_recent(earliest, table, now)?;
    Ok(match last {
        None => Due::Nothing,
        Some(at) if deadline.is_some_and(|deadline| now.duration_since(at) > deadline) => Due::TooLate(at),
        Some(at) => Due::Start(at, missed),
    })
}

/// How long until the next start.
pub fn until_next(cron: &CronJob, status: &CronJobStatus, table: &Timetable, now: Timestamp) -> Option<Duration> {
    let earliest = earliest(cron, status);
    let base = match most_recent(earliest, table, now) {
        Ok((Some(at), _)) => at,
        Ok((None, Missed::None)) => earliest,
        Ok((None, Missed::Few | Missed::Many)) | Err(Senseless) => now,
    };
    let wait = Duration::try_from(table.next(base)?.duration_since(now)).unwrap_or(Duration::ZERO);
    Some(wait + LATER)
}

fn earliest(cron: &CronJob, status: &CronJobStatus) -> Timestamp {
    let last = status.last_schedule_time.as_ref().or(cron.metadata.creation_timestamp.as_ref());
    last.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// The last start between two moments, found without going through all of them.
fn most_recent(
    earliest: Timestamp,
    table: &Timetable,
    now: Timestamp,
) -> Result<(Option<Timestamp>, Missed), Senseless> {
    let first = table.next(earliest);
    if first.is_some_and(|first| now < first) {
        return Ok((None, Missed::None));
    }
    let second = first.and_then(|first| table.next(first));
    let (Some(first), Some(second)) = (first, second) else { return Err(Senseless) };
    if now < second {
        return Ok((Some(first), Missed::None));
    }
    let interval = second.as_second() - first.as_second();
    if interval < 1 {
        return Err(Senseless);
    }
    let missed = now.duration_since(first).as_secs() / interval + 1;
    let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(interval));
    let mut at = table.next(first.saturating_add(skipped).unwrap_or(first));
    let mut last = None;
    while let Some(due) = at.filter(|due| *due <= now) {
        last = Some(due);
        at = table.next(due);
    }
    Ok((last, if missed > MISSED_MAX { Missed::Many } else { Missed::Few }))
}

/// Finished Jobs over the limits of the history, the oldest first.
pub fn outdated(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron.spec;
    let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut outdated = Vec::new();
    for (end, limit) in limits {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let mut ended: Vec<_> =
            jobs.iter().filter(|job| finished(job).is_some_and(|condition| condition.type_ == end)).cloned().collect();
        ended.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (start.is_none(), start, job.metadata.name.clone())
        });
        ended.truncate(ended.len().saturating_sub(limit));
        outdated.extend(ended.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none()));
    }
    outdated
}

/// The name of the Job that starts at a moment: the same moment gives the same name, so it is started once.
pub fn job_name(cron: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), at.as_second().div_euclid(60))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron(spec: Value, status: Value) -> CronJob {
        let mut spec = spec;
        spec["jobTemplate"] = json!({});
        let metadata = json!({"name": "tick", "creationTimestamp": "2026-01-01T00:00:30Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn check(spec: Value, last: Option<&str>, now: &str, expected: &str) {
        let cron = cron(spec.clone(), json!({ "lastScheduleTime": last }));
        let table = Timetable::parse(&cron.spec.schedule, None).unwrap();
        let found = match due(&cron, cron.status.as_ref().unwrap(), &table, now.parse().unwrap()) {
            Ok(Due::Nothing) => "nothing".to_owned(),
            Ok(Due::TooLate(at)) => format!("too late {at}"),
            Ok(Due::Start(at, missed)) => format!("{at} {missed:?}"),
            Err(Senseless) => "senseless".to_owned(),
        };
        assert_eq!(found, expected, "{spec} {last:?} {now}");
    }

    #[test]
    fn the_last_start_that_was_missed_is_due() {
        let hourly = || json!({"schedule": "0 * * * *"});
        check(hourly(), None, "2026-01-01T00:59:59Z", "nothing");
        check(hourly(), None, "2026-01-01T01:00:00Z", "2026-01-01T01:00:00Z None");
        check(hourly(), Some("2026-01-01T01:00:00Z"), "2026-01-01T01:00:05Z", "nothing");
        check(hourly(), Some("2026-01-01T01:00:00Z"), "2026-01-01T03:10:00Z", "2026-01-01T03:00:00Z Few");
        check(hourly(), Some("2026-01-01T01:00:00Z"), "2026-01-09T03:10:00Z", "2026-01-09T03:00:00Z Many");
        check(json!({"schedule": "30 6-16/4 * * 1-5"}), None, "2026-01-05T15:00:00Z", "2026-01-05T14:30:00Z Few");
        check(json!({"schedule": "@every 7m"}), None, "2026-01-01T01:00:00Z", "2026-01-01T00:56:30Z Few");
        check(json!({"schedule": "0 0 31 2 *"}), None, "2026-01-01T01:00:00Z", "senseless");
    }

    #[test]
    fn a_start_has_a_deadline() {
        let spec = |seconds: i64| json!({"schedule": "0 * * * *", "startingDeadlineSeconds": seconds});
        check(spec(60), None, "2026-01-01T03:00:30Z", "2026-01-01T03:00:00Z None");
        check(spec(60), None, "2026-01-01T03:02:00Z", "nothing");
        check(spec(i64::MAX), None, "2026-01-01T03:02:00Z", "2026-01-01T03:00:00Z Few");
        check(spec(0), None, "2026-01-01T03:02:00Z", "nothing");
    }

    #[test]
    fn the_next_start_is_waited_for() {
        for (last, now, millis) in [
            (None, "2026-01-01T00:59:00Z", 60_100),
            (Some("2026-01-01T01:00:00Z"), "2026-01-01T01:00:05Z", 3_595_100),
            (Some("2026-01-01T01:00:00Z"), "2026-01-01T03:10:00Z", 3_000_100),
        ] {
            let cron = cron(json!({"schedule": "0 * * * *"}), json!({ "lastScheduleTime": last }));
            let table = Timetable::parse("0 * * * *", None).unwrap();
            let wait = until_next(&cron, cron.status.as_ref().unwrap(), &table, now.parse().unwrap());
            assert_eq!(wait, Some(Duration::from_millis(millis)), "{last:?} {now}");
        }
    }

    /// Half past two in Berlin: 29 March has no such time, 25 October has it twice.
    #[test]
    fn a_year_has_each_start_once_across_the_changes_of_clocks() {
        let zone = super::super::timetable::time_zone("Europe/Berlin").unwrap();
        let table = Timetable::parse("30 2 * * *", Some(&zone)).unwrap();
        let mut cron = cron(json!({"schedule": "30 2 * * *"}), json!({}));
        let (mut now, mut starts) = (cron.metadata.creation_timestamp.clone().unwrap().0, Vec::new());
        while now < "2027-01-01T00:00:00Z".parse().unwrap() {
            let status = cron.status.clone().unwrap_or_default();
            if let Ok(Due::Start(at, missed)) = due(&cron, &status, &table, now) {
                assert_eq!(missed, Missed::None);
                cron.status.get_or_insert_default().last_schedule_time =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
                starts.push(at.to_string());
            }
            let wait = until_next(&cron, cron.status.as_ref().unwrap(), &table, now).unwrap();
            now = now.checked_add(SignedDuration::try_from(wait).unwrap()).unwrap();
        }
        assert_eq!(starts.len(), 365);
        let of_day = |day: &str| starts.iter().filter(|start| start.starts_with(day)).cloned().collect::<Vec<_>>();
        assert_eq!(of_day("2026-03-28"), ["2026-03-28T01:30:00Z"]);
        assert_eq!(of_day("2026-03-29"), [""; 0]);
        assert_eq!(of_day("2026-03-30"), ["2026-03-30T00:30:00Z"]);
        assert_eq!(of_day("2026-10-25"), ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
    }

    #[test]
    fn the_oldest_of_each_end_go_first() {
        let job = |name: &str, end: &str, second: u8| {
            let start = format!("2026-01-01T00:00:{second:02}Z");
            let status = json!({"startTime": start, "conditions": [{"type": end, "status": "True"}]});
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap())
        };
        let jobs = [job("a", "Complete", 3), job("b", "Complete", 1), job("c", "Failed", 2), job("d", "Suspended", 0)];
        let names = |spec: Value| {
            let outdated = outdated(&cron(spec, json!({})), &jobs);
            outdated.iter().map(|job| job.metadata.name.clone().unwrap()).collect::<String>()
        };
        assert_eq!(names(json!({"schedule": ""})), "");
        let limits = |good: i32, bad: i32| json!({"schedule": "", "successfulJobsHistoryLimit": good, "failedJobsHistoryLimit": bad});
        assert_eq!(names(limits(1, 1)), "b");
        assert_eq!(names(limits(0, 0)), "bac");
        assert_eq!(names(limits(-1, 9)), "");
    }
}
