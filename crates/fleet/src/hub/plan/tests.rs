//! What is written, by what is known.

use super::*;
use crate::hub::view::Conditions;

const NOW: &str = "2026-06-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn report(stage: &str, percent: u32, seq: u64) -> Report {
    use setpoint_fleet_protocol::Stage;
    let mut report = Report {
        firmware_version: "1.0".into(),
        active_slot: "a".into(),
        task_id: "t".into(),
        attempt: 1,
        seq,
        percent,
        healthy: true,
        ..Report::default()
    };
    match stage {
        "Downloading" => report.set_stage(Stage::Downloading),
        "Rebooting" => report.set_stage(Stage::Rebooting),
        "Failed" => report.set_outcome(Outcome::Failed),
        _ => {}
    }
    report
}

fn heard(report: Report) -> Heard {
    Heard {
        epoch: 7,
        is_open: true,
        silent_for: Duration::ZERO,
        agent_version: "0.1".into(),
        report,
        wrote: Some(Duration::from_secs(1)),
        rest: Duration::ZERO,
    }
}

fn known(session: Option<Heard>) -> Known {
    let (up_for, away_after) = (Duration::from_secs(10_000), Duration::from_secs(180));
    Known { session, hub: "hub-1".into(), up_for, away_after, is_barred: false }
}

/// What is written after a first report.
fn written() -> Status {
    let first = Heard { wrote: None, ..heard(report("Downloading", 10, 5)) };
    match decide(&Status::default(), &known(Some(first)), now()) {
        Decision::Write(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn later(decision: &Decision) -> u64 {
    match decision {
        Decision::Later(span) => span.as_secs(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_word_of_a_vehicle_is_written_at_once() {
    let status = written();
    assert_eq!(status.firmware_version.as_deref(), Some("1.0"));
    assert_eq!(status.progress.as_ref().unwrap().stage, "Downloading");
    assert_eq!(status.session.as_ref().unwrap(), &Box::new(Session { hub: "hub-1".into(), epoch: 7 }));
    assert_eq!((status.conditions.connected, status.conditions.healthy), (Some((true, now())), Some((true, now()))));
}

#[test]
fn what_follows_is_written_by_its_weight() {
    let of = |report| decide(&written(), &known(Some(heard(report))), now());
    assert!(matches!(of(report("Failed", 10, 9)), Decision::Write(_)));
    assert_eq!(later(&of(report("Rebooting", 10, 6))), 4);
    assert_eq!(later(&of(report("Downloading", 60, 6))), 59);
    // Nothing new, but the task goes on; and nothing new at all.
    assert_eq!(later(&of(report("Downloading", 10, 6))), 299);
    assert_eq!(later(&of(report("Downloading", 10, 5))), 900);
    // An older report of the same session changes nothing.
    assert_eq!(later(&of(report("Failed", 10, 4))), 900);
    let healthy = Report { healthy: false, ..report("Downloading", 10, 6) };
    assert!(matches!(of(healthy), Decision::Write(_)));
}

#[test]
fn what_is_urgent_waits_too_if_a_vehicle_says_too_much() {
    let rest = Duration::from_secs(7);
    let flooding = Heard { rest, ..heard(report("Failed", 10, 9)) };
    assert_eq!(later(&decide(&written(), &known(Some(flooding)), now())), 7);
}

#[test]
fn a_task_that_is_spoken_of_is_never_overdue() {
    use crate::vehicle::plan::STAGE_DEADLINE;
    // The agent's pause between two words of it, and the hub's between two writes.
    let between = Duration::from_secs(180) + ALIVE_PAUSE;
    assert!(between < Duration::try_from(STAGE_DEADLINE).unwrap());
}

#[test]
fn a_vehicle_that_is_silent_is_away_after_three_pings_and_not_before() {
    let silent = |seconds| {
        let heard =
            Heard { is_open: false, silent_for: Duration::from_secs(seconds), ..heard(report("Downloading", 10, 5)) };
        decide(&written(), &known(Some(heard)), now())
    };
    assert_eq!(later(&silent(10)), 170);
    match silent(180) {
        Decision::Write(status) => {
            assert_eq!(status.conditions.connected, Some((false, now())));
            // The rest stays as it was.
            assert_eq!(status.progress, written().progress);
        }
        other => panic!("{other:?}"),
    }
    let away =
        Status { conditions: Conditions { connected: Some((false, now())), ..Conditions::default() }, ..written() };
    assert_eq!(decide(&away, &known(None), now()), Decision::Nothing);
}

#[test]
fn a_new_hub_waits_before_it_calls_anybody_away() {
    let young = |seconds, name: &str| {
        let known = Known { hub: name.into(), up_for: Duration::from_secs(seconds), ..known(None) };
        decide(&written(), &known, now())
    };
    assert_eq!(later(&young(20, "hub-1")), 160);
    assert!(matches!(young(180, "hub-1"), Decision::Write(_)));
    // Another hub's vehicle is that hub's to tell, unless nobody does for long.
    assert_eq!(later(&young(180, "hub-2")), 45 * 60);
    let hour = Timestamp::from_second(now().as_second() + 3600).unwrap();
    let known = Known { hub: "hub-2".into(), up_for: Duration::from_secs(3600), ..known(None) };
    assert!(matches!(decide(&written(), &known, hour), Decision::Write(_)));
}

#[test]
fn of_two_hubs_the_one_with_the_later_session_is_right() {
    let older = Heard { epoch: 6, ..heard(report("Failed", 0, 99)) };
    assert_eq!(decide(&written(), &known(Some(older)), now()), Decision::Yield);
    let younger = Heard { epoch: 8, ..heard(report("Downloading", 10, 1)) };
    let elsewhere = Known { hub: "hub-2".into(), ..known(Some(younger)) };
    match decide(&written(), &elsewhere, now()) {
        Decision::Write(status) => assert_eq!((status.epoch(), status.progress.unwrap().seq), (8, 1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_vehicle_whose_access_is_revoked_is_away_at_once() {
    for session in [None, Some(heard(report("Downloading", 20, 6)))] {
        let known = Known { up_for: Duration::ZERO, is_barred: true, ..known(session) };
        let Decision::Write(status) = decide(&written(), &known, now()) else { panic!("nothing is written") };
        assert_eq!(status.conditions.connected, Some((false, now())));
        assert_eq!(decide(&status, &known, now()), Decision::Nothing);
    }
}
