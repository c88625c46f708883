//! Every order of events for two candidates, explored: requests, answers and writes may be late or lost, candidates may pause at any point
//! (by not being scheduled), crash, or give the Lease back. Seconds are the steps of time.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::candidate::{Answer, Candidate, Next, Request};
use super::gate::{Gate, Term};
use super::record::Record;

const LEASE: u64 = 2;
const RENEW_DEADLINE: u64 = 1;

/// How far is looked: a lease can be taken over at its end.
const SECONDS: u64 = LEASE;

/// Losses, crashes and departures in one run. Pauses and delays are without number.
const FAULTS_MAX: u8 = 1;

/// What the network may hold back a write for, by the promise of the fence.
const MARGIN: u64 = LEASE - RENEW_DEADLINE;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    /// Messages that may still be lost, candidates that may still crash or leave.
    faults: u8,
    lease: Option<(Record, u64)>,
    nodes: [Node; 2],
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Node {
    candidate: Candidate,
    line: Line,
    gate: Gate<i32>,
    /// When a write was let through that hasn't reached the server yet.
    write: Option<u64>,
    crashed: bool,
    /// When the last attempt began: there is one each second at most.
    attempted: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Line {
    Idle,
    Asked(Request),
    Answered(Answer),
}

#[derive(Default)]
struct Found {
    worlds: usize,
    writes: usize,
    takeovers: usize,
}

struct Explorer {
    base: Instant,
    until: u64,
    /// How long a write may take from the check to the server.
    write_delay_max: u64,
    /// Hashes: the worlds themselves would need gigabytes.
    seen: HashSet<u64>,
    found: Found,
}

impl Explorer {
    fn new(until: u64, write_delay_max: u64) -> Explorer {
        Explorer { base: Instant::now(), until, write_delay_max, seen: HashSet::new(), found: Found::default() }
    }

    fn explore(&mut self) -> Result<(), String> {
        let node = |name| Node {
            candidate: Candidate::new(name, Duration::from_secs(LEASE)),
            line: Line::Idle,
            gate: Gate::NotYet,
            write: None,
            crashed: false,
            attempted: None,
        };
        // `a` asks at once and is answered: who is first makes no difference to what comes after.
        let mut first = node("a");
        let request = first.candidate.begin(Duration::ZERO, wall(0));
        first.line = Line::Asked(request);
        first.attempted = Some(0);
        let mut open = vec![World { now: 0, faults: FAULTS_MAX, lease: None, nodes: [first, node("b")] }];
        while let Some(world) = open.pop() {
            if !self.seen.insert(hash(&world)) {
                continue;
            }
            self.check(&world)?;
            self.found.worlds += 1;
            if world.now < self.until {
                open.push(World { now: world.now + 1, ..world.clone() });
            }
            for at in 0..2 {
                self.moves(&world, at, &mut open)?;
            }
        }
        Ok(())
    }

    fn check(&self, world: &World) -> Result<(), String> {
        let now = self.instant(world.now);
        let leaders = world.nodes.iter().filter(|node| !node.crashed && node.gate.is_open(now)).count();
        if leaders > 1 { Err(format!("two open fences at {}", world.now)) } else { Ok(()) }
    }

    fn moves(&mut self, world: &World, at: usize, open: &mut Vec<World>) -> Result<(), String> {
        let node = &world.nodes[at];
        // What a node sent may arrive after it has crashed.
        if let Some(began) = node.write
            && world.now - began < self.write_delay_max
        {
            let holder = world.lease.as_ref().map_or("", |(record, _)| &record.holder);
            if holder != ["a", "b"][at] {
                return Err(format!("a write of {} at {} while {holder:?} holds the lease", ["a", "b"][at], world.now));
            }
            self.found.writes += 1;
            open.push(change(world, at, |node| node.write = None));
        }
        if let Line::Asked(request) = &node.line {
            let (lease, answer) = serve(&world.lease, request);
            if taken_over(&world.lease, &lease) {
                self.found.takeovers += 1;
            }
            let answered = change(world, at, |node| node.line = Line::Answered(answer));
            open.push(World { lease: lease.clone(), ..answered });
            if world.faults > 0 {
                let failed = change(world, at, |node| node.line = Line::Answered(Answer::Failed));
                let failed = World { faults: world.faults - 1, ..failed };
                open.push(World { lease, ..failed.clone() }); // lost on the way back
                open.push(failed); // lost on the way there
            }
        }
        if node.crashed {
            return Ok(());
        }
        if world.faults > 0 {
            open.push(World { faults: world.faults - 1, ..change(world, at, |node| node.crashed = true) });
        }
        self.own_moves(world, at, open);
        Ok(())
    }

    fn own_moves(&self, world: &World, at: usize, open: &mut Vec<World>) {
        let node = &world.nodes[at];
        let (now, moment, wall) = (self.instant(world.now), Duration::from_secs(world.now), wall(world.now));
        match &node.line {
            Line::Idle if node.attempted != Some(world.now) => open.push(change(world, at, |node| {
                node.attempted = Some(world.now);
                node.line = Line::Asked(node.candidate.begin(moment, wall));
            })),
            Line::Idle | Line::Asked(_) => (),
            Line::Answered(answer) => open.push(change(world, at, |node| {
                node.line = match node.candidate.answer(answer.clone(), moment, wall) {
                    Next::Ask(request) => Line::Asked(request),
                    Next::Leading { asked_at, transitions } => {
                        let begin_until = self.instant(asked_at.as_secs() + RENEW_DEADLINE);
                        let safe_until = self.instant(asked_at.as_secs() + LEASE);
                        node.gate.extend(now, Term { begin_until, safe_until, name: transitions });
                        Line::Idle
                    }
                    Next::Held { .. } | Next::Failed => Line::Idle,
                };
            })),
        }
        if node.write.is_none() && node.gate.is_open(now) {
            open.push(change(world, at, |node| {
                node.write = node.gate.admit(now).is_ok().then_some(world.now);
            }));
        }
        // Stopping in order: the fence is closed, nothing is under way, and the Lease as it is now is given back.
        let release = world.lease.as_ref().filter(|_| world.faults > 0).and_then(|(record, version)| {
            node.candidate.release(record, &version.to_string(), wall).filter(|_| node.write.is_none())
        });
        if let Some(release) = release {
            let left = change(world, at, |node| {
                node.gate = Gate::Closed;
                node.crashed = true;
            });
            open.push(World { faults: world.faults - 1, lease: serve(&world.lease, &release).0, ..left });
        }
    }

    fn instant(&self, second: u64) -> Instant {
        self.base + Duration::from_secs(second)
    }
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

fn change(world: &World, at: usize, change: impl FnOnce(&mut Node)) -> World {
    let mut next = world.clone();
    change(&mut next.nodes[at]);
    next
}

fn serve(lease: &Option<(Record, u64)>, request: &Request) -> (Option<(Record, u64)>, Answer) {
    let written = |record: &Record, version: u64| {
        (Some((record.clone(), version)), Answer::Lease(record.clone(), version.to_string()))
    };
    match (request, lease) {
        (Request::Get, None) => (None, Answer::Missing),
        (Request::Get, Some((record, version))) => (lease.clone(), Answer::Lease(record.clone(), version.to_string())),
        (Request::Create(record), None) => written(record, 1),
        (Request::Update(record, expected), Some((_, version))) if *expected == version.to_string() => {
            written(record, version + 1)
        }
        (Request::Create(_) | Request::Update(..), _) => (lease.clone(), Answer::Failed),
    }
}

fn taken_over(before: &Option<(Record, u64)>, after: &Option<(Record, u64)>) -> bool {
    let holder = |lease: &Option<(Record, u64)>| lease.as_ref().map(|(record, _)| record.holder.clone());
    holder(before).is_some_and(|before| !before.is_empty() && holder(after) != Some(before))
}

fn wall(second: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
}

#[test]
fn no_write_reaches_the_server_after_another_took_the_lease() {
    let mut explorer = Explorer::new(SECONDS, MARGIN);
    assert_eq!(explorer.explore(), Ok(()));
    let Found { worlds, writes, takeovers } = explorer.found;
    println!("{worlds} worlds, {writes} writes, {takeovers} takeovers");
    assert!(
        worlds > 10_000 && writes > 100 && takeovers > 100,
        "{worlds} worlds, {writes} writes, {takeovers} takeovers"
    );
}

#[test]
fn a_write_that_is_held_back_for_longer_than_the_margin_is_what_the_server_must_refuse() {
    let mut explorer = Explorer::new(SECONDS, MARGIN + 2);
    let error = explorer.explore().unwrap_err();
    assert!(error.starts_with("a write of "), "{error}");
}
