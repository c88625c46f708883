//! Figures of the fleet's decisions, one line each: what a look of a rollout over all of its vehicles costs, and what one vehicle does.
//! Run by `make bench`.

use std::hint::black_box;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_fleet::kinds::{Firmware, RolloutSpec};
use setpoint_fleet::rollout::pick::{Budget, Unconfirmed, pick};
use setpoint_fleet::rollout::tally::{Facts, Tally};
use setpoint_fleet::rollout::terms::Terms;
use setpoint_fleet::vehicle::plan::plan;
use setpoint_fleet::view::VehicleView;

const VEHICLES: usize = 100_000;
const ROUNDS: u32 = 10;
const NOW: &str = "2026-06-01T12:00:00Z";

fn main() {
    let now: Timestamp = NOW.parse().expect("a time");
    let image = json!({"url": "https://firmware.example/2", "size": 9, "sha256": "b".repeat(64)});
    let spec = json!({"version": "2", "hardwareIds": ["h"], "artifacts": [image]});
    let firmware: Firmware = read(json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2"}, "spec": spec,
    }));
    println!("a vehicle in a cache: {} bytes and its texts", size_of::<VehicleView>());
    let limit = json!({"steps": [{"limit": "10%"}], "maxConcurrent": 500});
    for (name, wanted, running, steps) in [
        ("nobody told, a step of 10 %", "1", "1", &limit),
        ("all on their way", "2", "1", &limit),
        ("all there", "2", "2", &limit),
    ] {
        let fleet: Vec<VehicleView> = (0..VEHICLES).map(|number| vehicle(number, wanted, running)).collect();
        look(name, &firmware, &fleet, steps, now);
        if wanted != running {
            let start = Instant::now();
            fleet.iter().for_each(|vehicle| drop(black_box(plan(vehicle, Some(&firmware), now))));
            let each = start.elapsed() / u32::try_from(VEHICLES).expect("a small number");
            println!("decision of one vehicle that has to be told: {each:?}");
        }
    }
}

/// One look of a rollout: counts, and whom to tell.
fn look(name: &str, firmware: &Firmware, fleet: &[VehicleView], change: &Value, now: Timestamp) {
    let mut spec = json!({"firmwareRef": {"name": "2"}, "selector": {"matchLabels": {"model": "m3"}}});
    spec.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    let spec: RolloutSpec = read(spec);
    let terms = Terms::read(&spec).expect("terms that can be read");
    let facts = Facts { terms: &terms, firmware, newer: &[], created: now, dynamic: true, now };
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let tally = Tally::of(&facts, fleet.iter());
        let budget = Budget::new(&terms, &tally, &Unconfirmed::default());
        black_box(pick("rollout", &terms, &tally, 0, budget));
    }
    println!("look of a rollout over {VEHICLES} vehicles, {name}: {:?}", start.elapsed() / ROUNDS);
}

fn vehicle(number: usize, wanted: &str, running: &str) -> VehicleView {
    let connected =
        json!({"type": "Connected", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW});
    read(json!({
        "metadata": {
            "name": format!("car-{number}"), "namespace": "default", "uid": format!("{number:032x}"), "generation": 1,
            "labels": {"model": "m3", "region": format!("r-{}", number % 16), "depot": format!("d-{}", number % 97)},
        },
        "spec": {"hardwareId": "h", "firmwareVersion": wanted},
        "status": {"firmwareVersion": running, "phase": "UpToDate", "observedGeneration": 1, "conditions": [connected]},
    }))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("what is written here can be read")
}
