//! One vehicle, killed wherever it can be.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use prost::Message;
use setpoint_fleet_protocol::metadata::{Assignment, Role, Root, SigningKey, Target, Targets, Trust, sign};
use setpoint_fleet_protocol::{Desired, HealthCheck, Outcome, Policy, Report, Stage, reason};

use super::*;
use crate::slots::Slots;
use crate::{Journal, Running, Slot};

const START: &str = "2026-06-01T12:00:00Z";

/// A vehicle in a directory, and a hub that says the same at each connection.
struct World {
    _folder: tempfile::TempDir,
    path: PathBuf,
    slots: Slots,
    /// The journal as it is on the disk.
    kept: Vec<u8>,
    agent: Agent,
    boot: Boot,
    now: Timestamp,
    desired: Desired,
    /// What the new firmware is like.
    firmware: Firmware,
    /// Operations until the process is killed; before or after the last one is done.
    fuse: Option<(usize, Cut)>,
    operations: usize,
    installs: Vec<(String, u32)>,
    /// Which operations were installations.
    installed_at: Vec<usize>,
    commits: usize,
    reports: Vec<Report>,
    facts: Facts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firmware {
    Good,
    Unwell,
    NeverStarts,
    Corrupt,
    Missing,
}

/// The process has ended.
struct Killed;

fn identity() -> Identity {
    Identity { vehicle: "fleet/v-1".into(), hardware_id: "tcu-1".into(), agent_version: "test", trust: None }
}

fn desired() -> Desired {
    Desired {
        vehicle_uid: "uid".into(),
        generation: 2,
        task_id: "task-2".into(),
        attempt: 1,
        version: "2.0".into(),
        digest: "new".into(),
        size: 10,
        health_checks: vec![HealthCheck { name: "self".into(), timeout_seconds: 10, stable_seconds: 0 }],
        ..Desired::default()
    }
}

impl World {
    fn new(firmware: Firmware) -> World {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let slots = Slots::open(&path).unwrap();
        let running = Running { version: "1.0".into(), digest: "old".into(), release_counter: 1, ..Running::default() };
        std::fs::write(slots.artifact(Slot::A), "old").unwrap();
        slots.install(Slot::A, &running).unwrap();
        let journal = Journal { running: Some(running), ..Journal::default() };
        let boot = slots.boot().unwrap();
        let now = START.parse().unwrap();
        let (agent, _) = Agent::start(identity(), journal.clone(), boot.clone(), now);
        World {
            _folder: folder,
            path,
            slots,
            kept: journal.encode_to_vec(),
            agent,
            boot,
            now,
            desired: desired(),
            firmware,
            fuse: None,
            operations: 0,
            installs: Vec::new(),
            installed_at: Vec::new(),
            commits: 0,
            reports: Vec::new(),
            facts: Facts::default(),
        }
    }

    /// Runs until the vehicle has an answer for its task, over any number of restarts.
    fn converge(&mut self) -> Report {
        for _ in 0..20 {
            let journal = Journal::decode(&*self.kept).unwrap();
            self.boot = self.slots.boot().unwrap();
            if self.firmware == Firmware::NeverStarts && self.boot.slot == Slot::B {
                continue;
            }
            let (agent, actions) = Agent::start(identity(), journal, self.boot.clone(), self.now);
            self.agent = agent;
            if self.live(actions).is_ok() {
                return self.agent.report();
            }
        }
        panic!("it never ends: {:?}", self.agent.journal());
    }

    /// One life of the process.
    fn live(&mut self, actions: Vec<Action>) -> Result<(), Killed> {
        self.perform(actions)?;
        for event in [Event::Facts(self.facts.clone()), Event::Connected, Event::Told(Box::new(self.desired.clone()))] {
            let actions = self.agent.step(event, self.now);
            self.perform(actions)?;
        }
        for _ in 0..100 {
            if self.agent.report().is_terminal() {
                return Ok(());
            }
            let Some(at) = self.agent.wakes_at() else { panic!("it waits for nothing: {:?}", self.agent) };
            self.now = self.now.max(at);
            let actions = self.agent.step(Event::Tick, self.now);
            self.perform(actions)?;
        }
        panic!("it goes round in circles: {:?}", self.agent);
    }

    fn perform(&mut self, actions: Vec<Action>) -> Result<(), Killed> {
        for action in actions {
            self.operations += 1;
            let cut = self.fuse.filter(|(at, _)| *at == self.operations).map(|(_, cut)| cut);
            if cut == Some(Cut::Before) {
                return Err(Killed);
            }
            let event = self.execute(action)?;
            if cut == Some(Cut::After) {
                return Err(Killed);
            }
            if let Some(event) = event {
                let actions = self.agent.step(event, self.now);
                self.perform(actions)?;
            }
        }
        Ok(())
    }

    fn execute(&mut self, action: Action) -> Result<Option<Event>, Killed> {
        let slot = self.boot.slot.other();
        let text = |result: std::io::Result<()>| result.map_err(|error| error.to_string());
        let (ticket, done) = match action {
            Action::Keep => {
                self.kept = self.agent.journal().encode_to_vec();
                return Ok(None);
            }
            Action::Report => {
                self.reports.push(self.agent.report());
                return Ok(None);
            }
            Action::StopFetching => return Ok(None),
            Action::Restart => return Err(Killed),
            Action::Fetch { ticket, .. } => {
                self.slots.clear(slot).unwrap();
                std::fs::write(self.slots.artifact(slot), "new").unwrap();
                let missing = FetchError::NotFound("404".into());
                let done = if self.firmware == Firmware::Missing { Err(missing) } else { Ok(()) };
                (ticket, Done::Fetch(done))
            }
            Action::Check(ticket) => {
                let digest = if self.firmware == Firmware::Corrupt { "other" } else { "new" };
                (ticket, Done::Check(Ok((10, digest.to_owned()))))
            }
            Action::Install(ticket) => {
                let desired = self.agent.desired().unwrap().clone();
                self.installs.push((desired.task_id.clone(), desired.attempt));
                self.installed_at.push(self.operations);
                let firmware = Running { release_counter: 2, ..Running::of(&desired) };
                (ticket, Done::Install(text(self.slots.install(slot, &firmware))))
            }
            Action::Arm(ticket) => (ticket, Done::Arm(text(self.slots.arm(slot)))),
            Action::Probe(ticket) => {
                let well = if self.firmware == Firmware::Unwell { Err("no sound".to_owned()) } else { Ok(()) };
                (ticket, Done::Probe(well))
            }
            Action::Commit(ticket) => {
                self.commits += 1;
                (ticket, Done::Commit(text(self.slots.commit(self.boot.slot))))
            }
            Action::Disarm(ticket) => (ticket, Done::Disarm(text(self.slots.disarm()))),
        };
        Ok(Some(Event::Done { ticket, done }))
    }
}

fn ended(firmware: Firmware) -> (Outcome, &'static str, &'static str, Slot) {
    match firmware {
        Firmware::Good => (Outcome::Succeeded, "", "2.0", Slot::B),
        Firmware::Unwell => (Outcome::RolledBack, reason::HEALTH_CHECK_FAILED, "1.0", Slot::A),
        Firmware::NeverStarts => (Outcome::RolledBack, reason::BOOT_FAILED, "1.0", Slot::A),
        Firmware::Corrupt => (Outcome::Failed, reason::DIGEST_MISMATCH, "1.0", Slot::A),
        Firmware::Missing => (Outcome::Failed, reason::ARTIFACT_NOT_FOUND, "1.0", Slot::A),
    }
}

fn check(world: &mut World, context: &str) {
    let report = world.converge();
    let (outcome, reason, version, slot) = ended(world.firmware);
    assert_eq!((report.outcome(), report.reason.as_str()), (outcome, reason), "{context}");
    assert_eq!((report.firmware_version.as_str(), world.boot.slot), (version, slot), "{context}");
    // The journal on the disk says the same, and the next start is from the same slot.
    assert_eq!(Journal::decode(&*world.kept).unwrap().last.unwrap().outcome(), outcome, "{context}");
    assert_eq!(world.slots.boot().unwrap().slot, slot, "{context}");
    // The slot that ran before was never touched.
    let before = world.slots.artifact(Slot::A);
    assert_eq!(std::fs::read_to_string(before).unwrap(), "old", "{context}");
    let seqs: Vec<u64> = world.reports.iter().map(|report| report.seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] <= pair[1]), "{context}: {seqs:?}");
}

const ALL: [Firmware; 5] =
    [Firmware::Good, Firmware::Unwell, Firmware::NeverStarts, Firmware::Corrupt, Firmware::Missing];

#[test]
fn every_sort_of_firmware_ends_as_it_should() {
    for firmware in ALL {
        let mut world = World::new(firmware);
        check(&mut world, &format!("{firmware:?}"));
        assert!(world.installs.len() <= 1, "{firmware:?}: {:?}", world.installs);
        assert!(world.path.join("slot-a").exists());
    }
}

#[test]
fn a_kill_at_any_point_changes_nothing_about_the_end() {
    for firmware in ALL {
        let mut clean = World::new(firmware);
        check(&mut clean, "clean");
        for at in 1..=clean.operations {
            for cut in [Cut::Before, Cut::After] {
                let mut world = World::new(firmware);
                world.fuse = Some((at, cut));
                check(&mut world, &format!("{firmware:?}, killed {cut:?} operation {at}"));
                // An installation whose end could not be kept is done again; every other is done once.
                let is_unkept = |installed: usize| {
                    (at, cut) == (installed, Cut::After) || (at, cut) == (installed + 1, Cut::Before)
                };
                let again = clean.installed_at.iter().filter(|installed| is_unkept(**installed)).count();
                let expected = clean.installs.len() + again;
                assert_eq!(world.installs.len(), expected, "{firmware:?} {at} {cut:?}: {:?}", world.installs);
            }
        }
    }
}

#[test]
fn the_same_task_again_is_answered_and_not_done_again() {
    let mut world = World::new(Firmware::Good);
    check(&mut world, "first");
    let told = |world: &mut World, desired: Desired| {
        let actions = world.agent.step(Event::Told(Box::new(desired)), world.now);
        assert!(world.perform(actions).is_ok());
        world.agent.report()
    };
    let again = told(&mut world, desired());
    assert_eq!((again.outcome(), again.task_id.as_str()), (Outcome::Succeeded, "task-2"));
    // A later generation that asks for what runs: an answer under its own name, and no installation.
    let same = Desired { generation: 3, task_id: "task-3".into(), ..desired() };
    let report = told(&mut world, same);
    assert_eq!((report.outcome(), report.task_id.as_str()), (Outcome::Succeeded, "task-3"));
    // What is older than that is passed over.
    let stale = Desired { task_id: "stale".into(), digest: "third".into(), ..desired() };
    assert_eq!(told(&mut world, stale).task_id, "task-3");
    assert_eq!(world.installs.len(), 1);
}

#[test]
fn a_task_that_failed_is_tried_again_only_as_a_new_attempt() {
    let mut world = World::new(Firmware::Unwell);
    check(&mut world, "unwell");
    let report = world.converge();
    assert_eq!((report.outcome(), world.installs.len()), (Outcome::RolledBack, 1));
    world.firmware = Firmware::Good;
    world.desired.attempt = 2;
    check(&mut world, "second attempt");
    assert_eq!(world.installs, [("task-2".to_owned(), 1), ("task-2".to_owned(), 2)]);
}

/// An agent without a world: what it asks for is compared.
fn machine() -> (Agent, Timestamp) {
    let running =
        Some(Running { version: "1.0".into(), digest: "old".into(), release_counter: 1, ..Running::default() });
    let now = START.parse().unwrap();
    let (agent, _) = Agent::start(identity(), Journal { running, ..Journal::default() }, Boot::default(), now);
    (agent, now)
}

fn tell(agent: &mut Agent, desired: Desired, now: Timestamp) -> Vec<Action> {
    agent.step(Event::Told(Box::new(desired)), now)
}

#[test]
fn a_wish_that_changes_during_a_download_replaces_it() {
    let (mut agent, now) = machine();
    tell(&mut agent, desired(), now);
    let third = Desired { generation: 3, task_id: "task-3".into(), digest: "third".into(), ..desired() };
    let actions = tell(&mut agent, third, now);
    assert_eq!(actions.first(), Some(&Action::StopFetching));
    assert!(actions.contains(&Action::Fetch { ticket: 2, anew: false }), "{actions:?}");
    // The end of the first download says nothing about the second.
    assert!(agent.step(Event::Done { ticket: 1, done: Done::Fetch(Ok(())) }, now).is_empty());
    assert_eq!(agent.report().stage(), Stage::Downloading);
    // Nothing wanted any more.
    let none = Desired { vehicle_uid: "uid".into(), generation: 4, ..Desired::default() };
    assert_eq!(tell(&mut agent, none, now), [Action::StopFetching, Action::Keep, Action::Report]);
    assert_eq!(agent.report().stage(), Stage::Idle);
}

#[test]
fn a_wish_that_changes_during_an_installation_waits_for_its_end() {
    let (mut agent, now) = machine();
    tell(&mut agent, desired(), now);
    agent.step(Event::Done { ticket: 1, done: Done::Fetch(Ok(())) }, now);
    agent.step(Event::Done { ticket: 2, done: Done::Check(Ok((10, "new".into()))) }, now);
    assert_eq!(agent.report().stage(), Stage::Installing);
    let third = Desired { generation: 3, task_id: "task-3".into(), digest: "third".into(), ..desired() };
    assert_eq!(tell(&mut agent, third, now), []);
    let actions = agent.step(Event::Done { ticket: 3, done: Done::Install(Err("no".into())) }, now);
    assert!(actions.contains(&Action::Fetch { ticket: 4, anew: false }), "{actions:?}");
    assert_eq!(agent.report().task_id, "task-3");
}

#[test]
fn the_same_firmware_under_another_name_is_not_begun_again() {
    let (mut agent, now) = machine();
    tell(&mut agent, desired(), now);
    let renamed = Desired { generation: 3, task_id: "task-3".into(), attempt: 2, ..desired() };
    assert_eq!(tell(&mut agent, renamed, now), [Action::Keep, Action::Report]);
    let report = agent.report();
    assert_eq!((report.task_id.as_str(), report.attempt, report.stage()), ("task-3", 2, Stage::Downloading));
}

#[test]
fn a_gate_holds_until_it_opens_and_says_which_it_is() {
    let (mut agent, now) = machine();
    let policy = Policy { install_window: "14:00-15:00".into(), require_parked: true, ..Policy::default() };
    tell(&mut agent, Desired { policy: Some(policy), ..desired() }, now);
    agent.step(Event::Done { ticket: 1, done: Done::Fetch(Ok(())) }, now);
    agent.step(Event::Done { ticket: 2, done: Done::Check(Ok((10, "new".into()))) }, now);
    let held = |agent: &Agent| (agent.report().stage(), agent.report().gate);
    assert_eq!(held(&agent), (Stage::Waiting, "Window".to_owned()));
    let open = agent.wakes_at().unwrap();
    assert_eq!(open.to_string(), "2026-06-01T14:00:00Z");
    agent.step(Event::Tick, open);
    assert_eq!(held(&agent), (Stage::Waiting, "Driving".to_owned()));
    let actions = agent.step(Event::Facts(Facts { parked: Some(true), ..Facts::default() }), open);
    assert!(actions.contains(&Action::Install(3)), "{actions:?}");
    // It drives off before the restart.
    agent.step(Event::Facts(Facts { parked: Some(false), ..Facts::default() }), open);
    agent.step(Event::Done { ticket: 3, done: Done::Install(Ok(())) }, open);
    assert_eq!(held(&agent), (Stage::Installing, "Driving".to_owned()));
}

#[test]
fn downloads_that_break_off_are_taken_up_again_and_end_only_with_a_connection() {
    let (mut agent, mut now) = machine();
    tell(&mut agent, desired(), now);
    let broken = || Done::Fetch(Err(FetchError::Broken("reset".into())));
    let mut ticket = 1;
    let mut again = |agent: &mut Agent, now: &mut Timestamp| {
        agent.step(Event::Done { ticket, done: broken() }, *now);
        ticket += 1;
        *now = agent.wakes_at()?;
        agent.step(Event::Tick, *now);
        Some(())
    };
    for _ in 0..50 {
        again(&mut agent, &mut now).expect("offline it tries for ever");
    }
    agent.step(Event::Connected, now);
    let tries = (0..50).take_while(|_| again(&mut agent, &mut now).is_some()).count();
    assert_eq!(tries, 6);
    assert_eq!(agent.report().reason, reason::DOWNLOAD_FAILED);
}

#[test]
fn a_task_that_takes_long_is_spoken_of_and_one_that_waits_for_a_gate_is_not() {
    let (mut agent, mut now) = machine();
    tell(&mut agent, desired(), now);
    agent.step(Event::Done { ticket: 1, done: Done::Fetch(Ok(())) }, now);
    agent.step(Event::Done { ticket: 2, done: Done::Check(Ok((10, "new".into()))) }, now);
    assert_eq!(agent.report().stage(), Stage::Installing);
    for _ in 0..10 {
        let (known, at) = (agent.report().seq, agent.wakes_at().unwrap());
        assert_eq!(at, later(now, Duration::from_secs(180)));
        assert_eq!(agent.step(Event::Tick, at), [Action::Report]);
        assert!(agent.report().seq > known);
        now = at;
    }
    agent.step(Event::Done { ticket: 3, done: Done::Install(Err("no".into())) }, now);
    assert_eq!(agent.wakes_at(), None);
    // A gate is looked at once a minute, and nothing is said of it again.
    let (mut agent, now) = machine();
    let policy = Policy { install_window: "14:00-15:00".into(), ..Policy::default() };
    tell(&mut agent, Desired { policy: Some(policy), ..desired() }, now);
    agent.step(Event::Done { ticket: 1, done: Done::Fetch(Ok(())) }, now);
    agent.step(Event::Done { ticket: 2, done: Done::Check(Ok((10, "new".into()))) }, now);
    assert_eq!(agent.wakes_at().unwrap().to_string(), "2026-06-01T14:00:00Z");
}

#[test]
fn a_slot_without_room_holds_the_download_until_there_is_some() {
    let (mut agent, now) = machine();
    tell(&mut agent, desired(), now);
    let full = Event::Done { ticket: 1, done: Done::Fetch(Err(FetchError::NoSpace)) };
    assert_eq!(agent.step(full, now), [Action::Report]);
    let report = agent.report();
    assert_eq!((report.gate.as_str(), report.stage(), report.outcome()), ("DiskSpace", Stage::Waiting, Outcome::Open));
    let later = agent.wakes_at().unwrap();
    assert!(agent.step(Event::Tick, later).contains(&Action::Fetch { ticket: 2, anew: false }));
    assert_eq!(agent.report().gate, "");
}

/// A boot loader that takes the new slot for nothing, and says nothing about it.
#[test]
fn a_vehicle_that_never_starts_from_the_new_slot_stops_restarting() {
    let mut world = World::new(Firmware::Good);
    for restarts in 0..20 {
        let journal = Journal::decode(&*world.kept).unwrap();
        let (agent, actions) = Agent::start(identity(), journal, Boot::default(), world.now);
        (world.agent, world.boot) = (agent, Boot::default());
        if world.live(actions).is_ok() {
            let report = world.agent.report();
            assert_eq!((report.outcome(), report.reason.as_str()), (Outcome::RolledBack, reason::BOOT_FAILED));
            assert_eq!((restarts, world.installs.len()), (3, 1));
            return;
        }
    }
    panic!("it restarts for ever");
}

#[test]
fn what_identifies_software_is_told_once_it_runs() {
    let mut world = World::new(Firmware::Good);
    world.desired.rxswin = "R156-2".into();
    check(&mut world, "good");
    assert_eq!(world.agent.report().rxswin, "R156-2");
    let mut world = World::new(Firmware::Unwell);
    world.desired.rxswin = "R156-2".into();
    check(&mut world, "unwell");
    assert_eq!(world.agent.report().rxswin, "");
}

#[test]
fn a_budget_that_is_used_up_is_waited_for() {
    let (mut agent, now) = machine();
    tell(&mut agent, desired(), now);
    let busy = Done::Fetch(Err(FetchError::Busy(Duration::from_secs(30))));
    agent.step(Event::Done { ticket: 1, done: busy }, now);
    assert_eq!(agent.report().gate, "DownloadBudget");
    let at = agent.wakes_at().unwrap();
    assert_eq!(at, later(now, Duration::from_secs(30)));
    assert!(agent.step(Event::Tick, at).contains(&Action::Fetch { ticket: 2, anew: false }));
}

#[test]
fn without_checks_of_its_own_firmware_has_to_reach_the_hub_in_time() {
    let confirming = || {
        let (mut agent, now) = machine();
        tell(&mut agent, Desired { health_checks: Vec::new(), ..desired() }, now);
        for done in [Done::Fetch(Ok(())), Done::Check(Ok((10, "new".into()))), Done::Install(Ok(())), Done::Arm(Ok(()))]
        {
            let ticket = agent.pending;
            agent.step(Event::Done { ticket, done }, now);
        }
        let boot = Boot { slot: Slot::B, ..Boot::default() };
        Agent::start(identity(), agent.journal().clone(), boot, now).0
    };
    let now: Timestamp = START.parse().unwrap();
    let mut agent = confirming();
    assert_eq!(agent.report().stage(), Stage::Confirming);
    assert!(agent.step(Event::Connected, now).iter().any(|action| matches!(action, Action::Commit(_))));
    let mut agent = confirming();
    let limit = agent.wakes_at().unwrap();
    assert_eq!(limit, later(now, Duration::from_secs(150)));
    assert!(agent.step(Event::Tick, limit).iter().any(|action| matches!(action, Action::Disarm(_))));
    // That says nothing about the firmware: there may be no network where the vehicle is.
    assert_eq!(agent.report().reason, reason::HUB_UNREACHABLE);
}

#[test]
fn nothing_is_fetched_that_was_not_released_and_assigned() {
    let key = |number: u8| SigningKey::of_seed(&[number; 32]);
    let (root, targets, director) = (key(1), key(2), key(3));
    let publics = [[root.public()], [targets.public()], [director.public()]];
    let [of_root, of_targets, of_director] = &publics;
    let later = "2027-01-01T00:00:00Z";
    let roles = [(Role::Root, &of_root[..], 1), (Role::Targets, of_targets, 1), (Role::Director, of_director, 1)];
    let trust = Trust::pinned(&sign(&Root::new(1, later, &roles), &[&root]).unwrap()).unwrap();
    let target = Target {
        version: "2.0".into(),
        length: 10,
        sha256: "new".into(),
        hardware_ids: vec!["tcu-1".into()],
        release_counter: 2,
    };
    let assignment = Assignment {
        kind: "director".into(),
        version: 1,
        expires: later.into(),
        vehicle: "fleet/v-1".into(),
        hardware_id: "tcu-1".into(),
        target: "image".into(),
        sha256: "new".into(),
        length: 10,
        release_counter: 2,
    };
    let signed = Desired {
        target: "image".into(),
        released: sign(&Targets::of(1, later, "image", target), &[&targets]).unwrap(),
        assigned: sign(&assignment, &[&director]).unwrap(),
        ..desired()
    };
    let check_with = |journal: Journal, desired: Desired, expected: &str| {
        let identity = Identity { trust: Some(Arc::new(trust.clone())), ..identity() };
        let now: Timestamp = START.parse().unwrap();
        let (mut agent, _) = Agent::start(identity, journal, Boot::default(), now);
        let actions = tell(&mut agent, desired, now);
        let fetches = actions.iter().any(|action| matches!(action, Action::Fetch { .. }));
        assert_eq!((agent.report().reason.as_str(), fetches), (expected, expected.is_empty()));
    };
    let check = |desired: Desired, expected: &str| check_with(Journal::default(), desired, expected);
    check(signed.clone(), "");
    let assigned =
        |assignment: Assignment| Desired { assigned: sign(&assignment, &[&director]).unwrap(), ..signed.clone() };
    check(assigned(Assignment { vehicle: "fleet/v-2".into(), ..assignment.clone() }), reason::WRONG_VEHICLE);
    check(assigned(Assignment { hardware_id: "tcu-2".into(), ..assignment.clone() }), reason::WRONG_HARDWARE);
    check(assigned(Assignment { expires: START.into(), ..assignment.clone() }), reason::METADATA_EXPIRED);
    check(assigned(Assignment { release_counter: 3, ..assignment.clone() }), reason::NOT_RELEASED);
    // What the vehicle has seen, or runs, is later than this.
    check_with(Journal { assignment_version: 2, ..Journal::default() }, signed.clone(), reason::METADATA_REPLAYED);
    let running =
        Some(Running { version: "3.0".into(), digest: "newer".into(), release_counter: 3, ..Running::default() });
    check_with(Journal { running, ..Journal::default() }, signed.clone(), reason::DOWNGRADE);
    check(Desired { size: 11, ..signed.clone() }, reason::LENGTH_MISMATCH);
    check(Desired { digest: "other".into(), ..signed.clone() }, reason::NOT_RELEASED);
    check(Desired { released: String::new(), ..signed.clone() }, reason::METADATA_MALFORMED);
    check(Desired { released: signed.assigned.clone(), ..signed }, reason::THRESHOLD_NOT_MET);
}

#[test]
fn a_root_is_followed_by_one_that_it_vouches_for_and_stays_so_after_a_restart() {
    let key = |number: u8| SigningKey::of_seed(&[number; 32]);
    let root = |version: u64, own: u8, signers: &[u8]| {
        let (keys, of_targets) = ([key(own).public()], [key(9).public()]);
        let roles = [(Role::Root, &keys[..], 1), (Role::Targets, &of_targets, 1)];
        let signers: Vec<SigningKey> = signers.iter().map(|number| key(*number)).collect();
        sign(&Root::new(version, "2027-01-01T00:00:00Z", &roles), &signers.iter().collect::<Vec<_>>()).unwrap()
    };
    let now: Timestamp = START.parse().unwrap();
    let made_with = Arc::new(Trust::pinned(&root(1, 1, &[1])).unwrap());
    let start = |journal: Journal| {
        let identity = Identity { trust: Some(made_with.clone()), ..identity() };
        Agent::start(identity, journal, Boot::default(), now).0
    };
    let mut agent = start(Journal::default());
    for (what, text, kept, version) in [
        ("signed by itself alone", root(2, 2, &[2]), false, 1),
        ("signed by the one before alone", root(2, 2, &[1]), false, 1),
        ("one too far", root(3, 2, &[1, 2]), false, 1),
        ("no root", "{}".to_owned(), false, 1),
        ("the next", root(2, 2, &[1, 2]), true, 2),
        ("the same again", root(2, 2, &[1, 2]), false, 2),
        ("signed by keys that lost their word", root(3, 3, &[1, 3]), false, 2),
        ("the one after it", root(3, 3, &[2, 3]), true, 3),
    ] {
        let actions = agent.step(Event::Root(text.into()), now);
        assert_eq!((actions == [Action::Keep], agent.root_version()), (kept, Some(version)), "{what}: {actions:?}");
    }
    assert_eq!(start(agent.journal().clone()).root_version(), Some(3));
    // A vehicle that checks nothing has no use for roots.
    let (mut unsigned, _) = Agent::start(identity(), agent.journal().clone(), Boot::default(), now);
    assert_eq!((unsigned.step(Event::Root(root(2, 2, &[1, 2]).into()), now), unsigned.root_version()), (vec![], None));
}

#[test]
fn an_agent_is_small() {
    assert!(size_of::<Agent>() <= 512, "{}", size_of::<Agent>());
}
