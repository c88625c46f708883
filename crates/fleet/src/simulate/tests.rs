//! A fleet against a hub of three lines: it says the same to everybody, and forgets nothing.

use std::collections::HashMap;

use setpoint_fleet_protocol::{Desired, HealthCheck, Report, Welcome};

use super::*;

const START: &str = "2026-06-01T00:00:00Z";

fn options(count: usize, faults: &str, seed: u64) -> Options {
    Options {
        namespace: "fleet".into(),
        prefix: "sim".into(),
        count,
        hardware_id: "tcu-1".into(),
        initial_version: "1.0".into(),
        speed: 1.0,
        faults: Faults::parse(faults).unwrap(),
        seed,
    }
}

/// What a hub and its controller do, without either: attempts are counted up after failures, every ten minutes it is said again.
fn run(fleet: &mut Fleet, days: i64) -> HashMap<String, Report> {
    let mut now: Timestamp = START.parse().unwrap();
    let end = now.saturating_add(SignedDuration::from_hours(24 * days)).unwrap();
    let mut reports: HashMap<String, Report> = HashMap::new();
    let wish = |vehicle: &str, attempt: u32| {
        let desired = Desired {
            generation: 2,
            task_id: "task".into(),
            attempt,
            version: "2.0".into(),
            digest: "new".into(),
            size: 1000,
            health_checks: vec![HealthCheck { name: "self".into(), timeout_seconds: 10, stable_seconds: 0 }],
            ..Desired::default()
        };
        ToVehicle { vehicle: vehicle.to_owned(), told: Some(Told::Desired(Box::new(desired))) }
    };
    fleet.connected(now);
    while now < end {
        fleet.advance(now);
        while let Some(frame) = fleet.say() {
            let (hello, report) = match frame.said {
                Some(Said::Hello(hello)) => (true, hello.report),
                Some(Said::Report(report)) => (false, Some(report)),
                _ => continue,
            };
            if hello {
                let told = Some(Told::Welcome(Welcome::default()));
                fleet.hear(ToVehicle { vehicle: frame.vehicle.clone(), told }, now);
            }
            reports.insert(frame.vehicle.clone(), report.unwrap_or_default());
        }
        for (vehicle, report) in &reports {
            if report.outcome() != Outcome::Succeeded {
                let attempt = if report.is_terminal() { report.attempt + 1 } else { report.attempt.max(1) };
                fleet.hear(wish(vehicle, attempt), now);
            }
        }
        now = now.saturating_add(SignedDuration::from_mins(10)).unwrap();
    }
    reports
}

#[test]
fn a_fleet_without_faults_is_upgraded_and_each_vehicle_flashes_once() {
    let mut fleet = Fleet::new(options(100, "", 1), START.parse().unwrap());
    run(&mut fleet, 1);
    let tally = fleet.tally();
    assert_eq!((tally.versions.get("2.0"), tally.flashes, tally.repeated), (Some(&100), 100, 0));
}

#[test]
fn whatever_goes_wrong_a_fleet_gets_there_and_never_repeats_what_is_done() {
    let faults = "drop=0.2,delay=0.2,corrupt=0.1,broken=0.3,flash=0.2,health=0.2,crash=0.1,offline=0.3";
    for seed in 1..=3 {
        let mut fleet = Fleet::new(options(100, faults, seed), START.parse().unwrap());
        run(&mut fleet, 60);
        let tally = fleet.tally();
        assert_eq!((tally.versions.get("2.0"), tally.repeated), (Some(&100), 0), "seed {seed}: {tally:?}");
    }
}

#[test]
fn firmware_that_is_never_well_leaves_every_vehicle_with_what_it_had() {
    let mut fleet = Fleet::new(options(20, "bad=2.0", 1), START.parse().unwrap());
    let reports = run(&mut fleet, 1);
    assert_eq!(fleet.tally().versions.get("1.0"), Some(&20));
    assert!(reports.values().all(|report| report.firmware_version == "1.0"));
}

#[test]
fn a_seed_repeats_a_run() {
    let of = |seed| {
        let mut fleet = Fleet::new(options(30, "broken=0.3,crash=0.2", seed), START.parse().unwrap());
        let mut reports: Vec<_> = run(&mut fleet, 1).into_values().map(|report| report.seq).collect();
        reports.sort_unstable();
        (fleet.tally(), reports)
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
