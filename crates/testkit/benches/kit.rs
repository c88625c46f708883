//! Figures of the kit, one line each: how soon a control plane is there, and how many points with a fault are tried in a
//! second. Run by `make bench`.

#[path = "../../../examples/tests/thermostat/scenario.rs"]
mod scenario;

use std::time::{Duration, Instant};

use setpoint_testkit::{ControlPlane, exhaust};

fn main() {
    start();
    points();
}

/// From nothing to a control plane that answers, on a runtime of its own.
fn start() {
    const STARTS: usize = 200;
    let mut spans: Vec<Duration> = (0..STARTS)
        .map(|_| {
            let begin = Instant::now();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            let plane = runtime.expect("a runtime").block_on(ControlPlane::start());
            let span = begin.elapsed();
            drop(plane);
            span
        })
        .collect();
    spans.sort_unstable();
    let ms = |share: usize| spans[STARTS * share / 100].as_secs_f64() * 1e3;
    println!("kit start: p50 {:.2} ms, p99 {:.2} ms", ms(50), ms(99));
}

/// All faults at all points of the thermostat, again and again.
fn points() {
    const ROUNDS: usize = 5;
    let begin = Instant::now();
    let mut points = 0;
    for _ in 0..ROUNDS {
        let report = exhaust(&scenario::ColderAfterAll);
        report.assert();
        points += report.points;
    }
    let rate = points as f64 / begin.elapsed().as_secs_f64();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("exhaust thermostat, {} points on {cores} cores: {rate:.0} points/s", points / ROUNDS);
}
