//! What the hub writes about a vehicle, and when: as little as tells the story.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use setpoint_fleet_protocol::{Outcome, Report};

use super::view::Status;
use crate::kinds::{Progress, Session, Slot};

/// The least time between two writes that tell of another stage or gate.
pub const STAGE_PAUSE: Duration = Duration::from_secs(5);

/// The least time between two writes that tell of nothing but more bytes.
pub const PERCENT_PAUSE: Duration = Duration::from_secs(60);

/// How often it is written of a task that goes on that it does: a controller takes one for lost of which nothing is written for long.
pub const ALIVE_PAUSE: Duration = Duration::from_secs(5 * 60);

/// How often a vehicle of which there is nothing else to tell is written as seen.
pub const SEEN_PAUSE: Duration = Duration::from_secs(15 * 60);

/// After so long without a word nobody waits for the hub that had the last session: it may be gone for good.
const ORPHANED_AFTER: Duration = Duration::from_secs(45 * 60);

/// What this hub knows of a vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The session, if the vehicle has one here or had one lately.
    pub session: Option<Heard>,
    /// This hub's name.
    pub hub: String,
    /// How long this hub has been there: before that it can't know who is away.
    pub up_for: Duration,
    /// How long a vehicle may not be heard of before it counts as away.
    pub away_after: Duration,
    /// Whether its access is revoked: it has no session then, wherever it had one.
    pub is_barred: bool,
}

/// What was heard of a vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// The number of the session.
    pub epoch: u64,
    /// Whether it is open.
    pub is_open: bool,
    /// How long ago the vehicle was last heard of.
    pub silent_for: Duration,
    /// The version of the agent.
    pub agent_version: Box<str>,
    /// The latest report.
    pub report: Report,
    /// How long ago this hub wrote about it.
    pub wrote: Option<Duration>,
    /// How long nothing is written about it, whatever it says: a vehicle that always says something else must not fill the store.
    pub rest: Duration,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing until something happens.
    Nothing,
    /// Nothing for so long.
    Later(Duration),
    /// Write this.
    Write(Box<Status>),
    /// Another hub has a later session of this vehicle: end ours.
    Yield,
}

/// Decides from what is written and what is known.
pub fn decide(written: &Status, known: &Known, now: Timestamp) -> Decision {
    match &known.session {
        _ if known.is_barred => absent(written, known, now),
        Some(heard) if heard.epoch < written.epoch() => Decision::Yield,
        Some(heard) if heard.is_open || heard.silent_for < known.away_after => connected(written, heard, known, now),
        _ => absent(written, known, now),
    }
}

/// The vehicle is there, or may come back in a moment.
fn connected(written: &Status, heard: &Heard, known: &Known, now: Timestamp) -> Decision {
    let next = own(written, heard, &known.hub, now);
    // A session that is closed is told once it has been for long enough; the restart of a vehicle isn't worth two writes.
    let until_away = || known.away_after.saturating_sub(heard.silent_for).max(Duration::from_secs(1));
    let rest = if heard.is_open { SEEN_PAUSE } else { until_away() };
    let pause = match urgency(written, &next) {
        Urgency::None => {
            let seen = written.last_seen_time.map_or(SEEN_PAUSE, |seen| since(seen, now));
            return match heard.is_open && seen >= SEEN_PAUSE {
                true => Decision::Write(Box::new(next)),
                false => Decision::Later(rest.min(SEEN_PAUSE.saturating_sub(seen).max(Duration::from_secs(1)))),
            };
        }
        Urgency::Now => Duration::ZERO,
        Urgency::Stage => STAGE_PAUSE,
        Urgency::Percent => PERCENT_PAUSE,
        Urgency::Alive => ALIVE_PAUSE,
    };
    match heard.wrote.map_or(Duration::ZERO, |wrote| pause.saturating_sub(wrote)).max(heard.rest) {
        Duration::ZERO => Decision::Write(Box::new(next)),
        left => Decision::Later(left.min(rest)),
    }
}

/// The vehicle isn't there, as far as this hub can tell.
fn absent(written: &Status, known: &Known, now: Timestamp) -> Decision {
    let Some((true, _)) = written.conditions.connected else { return Decision::Nothing };
    let is_ours = written.session.as_ref().is_none_or(|session| session.hub == known.hub);
    let patience = if is_ours { known.away_after } else { ORPHANED_AFTER };
    let silent = match (&known.session, is_ours) {
        (Some(heard), _) => heard.silent_for,
        (None, true) => known.up_for,
        (None, false) => known.up_for.min(written.last_seen_time.map_or(Duration::MAX, |seen| since(seen, now))),
    };
    if silent < patience && !known.is_barred {
        return Decision::Later(patience - silent);
    }
    let mut next = written.clone();
    next.conditions.connected = Some((false, now));
    Decision::Write(Box::new(next))
}

enum Urgency {
    None,
    /// Only that the task goes on.
    Alive,
    /// Only bytes.
    Percent,
    /// Another stage or gate.
    Stage,
    /// A task's end, a new session, another firmware.
    Now,
}

fn urgency(written: &Status, next: &Status) -> Urgency {
    let told =
        |own: &Status| (own.firmware_version.clone(), own.slot.clone(), own.agent_version.clone(), own.rxswin.clone());
    let holds = |own: &Status| {
        let conditions = own.conditions;
        (conditions.connected.map(|(holds, _)| holds), conditions.healthy.map(|(holds, _)| holds))
    };
    let hub = |own: &Status| own.session.as_ref().map(|session| session.hub.clone());
    if told(written) != told(next) || holds(written) != holds(next) || hub(written) != hub(next) {
        return Urgency::Now;
    }
    match (&written.progress, &next.progress) {
        (None, None) => Urgency::None,
        (Some(old), Some(new)) => {
            let task = |progress: &Progress| (progress.task_id.clone(), progress.attempt, progress.result.clone());
            let stage = |progress: &Progress| (progress.stage.clone(), progress.gate.clone());
            if task(old) != task(new) {
                Urgency::Now
            } else if stage(old) != stage(new) {
                Urgency::Stage
            } else if old.percent != new.percent {
                Urgency::Percent
            } else if old.seq != new.seq && new.result.is_empty() && new.gate.is_empty() {
                Urgency::Alive
            } else {
                Urgency::None
            }
        }
        _ => Urgency::Now,
    }
}

/// What is to be written of a vehicle that is heard.
fn own(written: &Status, heard: &Heard, hub: &str, now: Timestamp) -> Status {
    let report = &heard.report;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let since = |known: Option<(bool, Timestamp)>, holds: bool| match known {
        Some((known, since)) if known == holds => (holds, since),
        _ => (holds, now),
    };
    let active = report.active_slot.as_str();
    let slot = Slot {
        active: text(active),
        inactive: text(if active == "a" { "b" } else { "a" }),
        inactive_digest: text(&report.inactive_digest),
    };
    let mut next = written.clone();
    next.firmware_version = text(&report.firmware_version).map(Into::into);
    next.slot = Some(Box::new(slot));
    next.rxswin = text(&report.rxswin).map(Into::into);
    next.agent_version = text(&heard.agent_version).map(Into::into);
    next.session =
        Some(Box::new(Session { hub: hub.to_owned(), epoch: i64::try_from(heard.epoch).unwrap_or(i64::MAX) }));
    next.last_seen_time = Some(now);
    next.conditions.connected = Some(since(written.conditions.connected, true));
    next.conditions.healthy = Some(since(written.conditions.healthy, report.healthy));
    // Of one session an older report never replaces a younger one.
    let seq = i64::try_from(report.seq).unwrap_or(i64::MAX);
    let is_older = written.epoch() == heard.epoch && written.progress.as_ref().is_some_and(|known| known.seq > seq);
    let is_at_nothing = report.task_id.is_empty();
    if !is_at_nothing && !is_older {
        next.progress = Some(Box::new(progress(report, seq, now)));
    }
    // A task that it gave up without a word of how it ended: nobody has to wait for its end.
    if is_at_nothing && !is_older && written.progress.as_ref().is_some_and(|known| known.result.is_empty()) {
        next.progress = None;
    }
    next
}

fn progress(report: &Report, seq: i64, now: Timestamp) -> Progress {
    let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Progress {
        task_id: report.task_id.clone(),
        attempt: report.attempt.into(),
        stage: if report.outcome() == Outcome::Open { report.stage().word().to_owned() } else { String::new() },
        percent: i32::try_from(report.percent.min(100)).unwrap_or(100),
        seq,
        result: report.outcome().word().to_owned(),
        reason: report.reason.clone(),
        message: report.message.clone(),
        gate: report.gate.clone(),
        time: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time)),
    }
}

fn since(moment: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(moment)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
