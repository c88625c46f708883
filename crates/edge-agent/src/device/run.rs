//! The loop of a real vehicle: what happens goes to the state machine, what it asks for is done.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use setpoint_fleet_protocol::metadata::{METADATA_BYTES_MAX, ROOT_PATH};
use setpoint_fleet_protocol::{Desired, HealthCheck, Report};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Config;
use super::commands::{hook, probe};
use super::fetch::{Fetch, digest};
use super::journal_file::JournalFile;
use super::link::{Heard, Link};
use super::papers::{Papers, Validity};
use super::wire::{Wire, at};
use crate::slots::{Boot, Slots, replace};
use crate::{Action, Agent, Done, Event, Facts, Gate, Identity, Journal, Running, Slot};

/// Events that wait for the loop; more come only as fast as it takes them.
const QUEUE: usize = 64;

/// How often facts are read while a task is under way.
const FACTS_PAUSE: Duration = Duration::from_secs(5);

/// How long the next root may take to come.
const ROOT_LIMIT: Duration = Duration::from_secs(10);

/// How long a restart waits for the last report to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// The file in the data folder that says to what somebody has to agree, while somebody has to.
const NOTICE: &str = "consent.json";

/// A clock that shows less than this was never set: 2025-01-01.
const PLAUSIBLE: i64 = 1_735_689_600;

/// Why the agent ended.
pub enum Ended {
    /// A signal asked for it.
    Asked,
    /// The vehicle has to be restarted, and nothing else does it.
    Restart,
}

/// Runs the agent of a vehicle until it is asked to stop, or has to be restarted.
pub async fn run(config: Config) -> Result<Ended, String> {
    let (_lock, slots, journal) = prepare(&config)?;
    let kept = journal.read().map_err(|error| format!("the journal can't be read: {error}"))?;
    let boot = booted(&config, &slots).await?;
    let papers = Papers::of(&config)?;
    if papers.are_to_come() {
        papers.enrol(&config).await?;
        println!("enrolled as {}", config.vehicle);
    }
    let kept = kept.unwrap_or_else(|| Journal { running: initial(&config, &slots, &boot), ..Journal::default() });
    let wire = Wire::new(&config)?;
    let identity = Identity {
        vehicle: config.vehicle.as_str().into(),
        hardware_id: config.hardware_id.as_str().into(),
        agent_version: env!("CARGO_PKG_VERSION"),
        trust: config.trust()?,
    };
    let (heard_in, heard) = mpsc::channel(QUEUE);
    let (events_in, events) = mpsc::channel(QUEUE);
    let (reports, reports_out) = watch::channel(None);
    let (sent_in, sent) = watch::channel(0);
    let (hub_in, hub) = watch::channel(config.hubs[0].clone());
    let link = Link {
        hubs: config.hubs.clone(),
        transport: config.transport,
        wire: wire.clone(),
        heard: heard_in,
        reports: reports_out,
        sent: sent_in,
        hub: hub_in,
    };
    let linked = tokio::spawn(link.run());
    let (validity, validity_out) = watch::channel(None);
    let renewing = tokio::spawn(papers.keep(wire.clone(), hub.clone(), validity_out));
    println!("started from slot {} as {}", boot.slot.word(), config.vehicle);
    let (agent, actions) = Agent::start(identity, kept, boot.clone(), Timestamp::now());
    let notice = config.data.join(NOTICE);
    let device = Device {
        config,
        slots,
        journal,
        agent,
        boot,
        wire,
        events: events_in,
        reports,
        sent,
        hub,
        validity,
        fetching: None,
        asked: fs::read(notice).ok().and_then(|text| serde_json::from_slice(&text).ok()),
        ahead: 0,
    };
    let ended = device.live(actions, heard, events).await;
    linked.abort();
    renewing.abort();
    ended
}

/// Ends the process at once after a step was kept, as a loss of power would: tests name it. Not in what is released.
#[cfg(debug_assertions)]
fn die_at(journal: &Journal) {
    let step = journal.task.as_ref().map(|task| format!("{:?}", task.step()));
    if step.is_some_and(|step| std::env::var("SETPOINT_DIE_AT").is_ok_and(|at| at == step)) {
        std::process::abort();
    }
}

/// A root, if the hub has it.
async fn next_root(wire: &Wire, hub: &str, version: u64) -> Option<String> {
    let url = at(hub, &format!("{ROOT_PATH}{version}")).ok()?;
    let answer = wire.request(&url, Request::new(Full::new(Bytes::new()))).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    let body = Limited::new(answer.into_body(), METADATA_BYTES_MAX).collect().await.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// The folder, and that no other agent works in it.
fn prepare(config: &Config) -> Result<(fs::File, Slots, JournalFile), String> {
    let shown = |error: &dyn std::fmt::Display| format!("can't use {}: {error}", config.data.display());
    let slots = Slots::open(&config.data).map_err(|error| shown(&error))?;
    let lock = fs::File::create(config.data.join("lock")).map_err(|error| shown(&error))?;
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&lock, exclusive).map_err(|_| shown(&"another agent works in it"))?;
    Ok((lock, slots, JournalFile::of(&config.data)))
}

/// The slot that the vehicle was started from: as its boot loader says, or the built-in one.
async fn booted(config: &Config, slots: &Slots) -> Result<Boot, String> {
    let unreadable = |error| format!("the slots can't be read: {error}");
    let Some(command) = config.hooks.get("booted") else { return slots.boot().map_err(unreadable) };
    let variables = BTreeMap::from([("SETPOINT_VEHICLE", config.vehicle.clone())]);
    let said = hook(command, &variables).await.map_err(|why| format!("the booted slot is not known: {why}"))?;
    let (slot, fell_back) = match said.split_whitespace().collect::<Vec<_>>()[..] {
        ["a"] => (Slot::A, false),
        ["b"] => (Slot::B, false),
        ["a", "fell-back"] => (Slot::A, true),
        ["b", "fell-back"] => (Slot::B, true),
        _ => return Err(format!("the booted slot is not known: {said:?} is neither a nor b")),
    };
    slots.booted(slot, fell_back).map_err(unreadable)
}

/// What runs before anything was ever installed.
fn initial(config: &Config, slots: &Slots, boot: &Boot) -> Option<Running> {
    slots.manifest(boot.slot).or_else(|| {
        let version = config.initial_version.clone();
        (!version.is_empty()).then(|| Running { version, ..Running::default() })
    })
}

struct Device {
    config: Config,
    slots: Slots,
    journal: JournalFile,
    agent: Agent,
    boot: Boot,
    wire: Wire,
    events: mpsc::Sender<Event>,
    reports: watch::Sender<Option<Report>>,
    sent: watch::Receiver<u64>,
    hub: watch::Receiver<String>,
    /// How long the certificate counts.
    validity: watch::Sender<Option<Validity>>,
    fetching: Option<AbortHandle>,
    /// What people are asked to agree to, as it is written in [`NOTICE`].
    asked: Option<Value>,
    /// Seconds that the hub's clock is ahead of one that was never set.
    ahead: i64,
}

impl Device {
    async fn live(
        mut self,
        actions: Vec<Action>,
        mut heard: mpsc::Receiver<Heard>,
        mut events: mpsc::Receiver<Event>,
    ) -> Result<Ended, String> {
        let unable = |error| format!("can't listen to signals: {error}");
        let mut terminate = signal(SignalKind::terminate()).map_err(unable)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(unable)?;
        let mut facts = Facts::default();
        if let Some(ended) = self.perform(actions).await? {
            return Ok(ended);
        }
        loop {
            if let Some(known) = self.changed_facts(&mut facts)
                && let Some(ended) = self.step(Event::Facts(known)).await?
            {
                return Ok(ended);
            }
            let pause = self.pause();
            let event = tokio::select! {
                _ = terminate.recv() => return Ok(Ended::Asked),
                _ = interrupt.recv() => return Ok(Ended::Asked),
                Some(heard) = heard.recv() => match self.hear(heard)? {
                    Some(Event::Told(desired)) => {
                        self.follow_roots(&desired).await?;
                        Event::Told(desired)
                    }
                    Some(event) => event,
                    None => continue,
                },
                Some(event) = events.recv() => event,
                () = sleep(pause) => Event::Tick,
            };
            if let Some(ended) = self.step(event).await? {
                return Ok(ended);
            }
        }
    }

    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        now.saturating_add(SignedDuration::from_secs(self.ahead)).unwrap_or(now)
    }

    /// How long nothing happens by itself.
    fn pause(&self) -> Duration {
        let until = |at: Timestamp| Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        let wake = self.agent.wakes_at().map_or(Duration::from_secs(3600), until);
        if self.agent.gate().is_some() { wake.min(FACTS_PAUSE) } else { wake }
    }

    fn changed_facts(&self, known: &mut Facts) -> Option<Facts> {
        let text = self.config.facts_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let text = text.unwrap_or_else(|| match &self.config.facts {
            serde_json::Value::Null => "{}".to_owned(),
            facts => facts.to_string(),
        });
        let facts = match Facts::read(&text) {
            Ok(facts) => facts,
            Err(why) => {
                eprintln!("facts are not read: {why}");
                return None;
            }
        };
        (facts != *known).then(|| {
            known.clone_from(&facts);
            facts
        })
    }

    fn hear(&mut self, heard: Heard) -> Result<Option<Event>, String> {
        Ok(match heard {
            Heard::Opening(reply) => {
                let now = self.now();
                self.agent.next_epoch(now);
                self.keep()?;
                // The link is gone if nobody takes it; then there is no session either.
                let _ = reply.send(self.agent.hello());
                None
            }
            Heard::Open(validity) => {
                println!("connected to {}", *self.hub.borrow());
                let own = Timestamp::now().as_second();
                self.ahead = if own < PLAUSIBLE { validity.now - own } else { 0 };
                // A hub that knows of no certificate has nothing to say about it.
                self.validity.send_replace(Some(validity).filter(|validity| validity.until > 0));
                Some(Event::Connected)
            }
            Heard::Told(desired) => Some(Event::Told(desired)),
            Heard::Closed(why) => {
                println!("disconnected: {why}");
                Some(Event::Disconnected)
            }
        })
    }

    /// Before a new task is judged, the roots that came after the known one are taken: the task may be signed with their keys.
    async fn follow_roots(&mut self, desired: &Desired) -> Result<(), String> {
        let is_known = self.agent.desired().is_some_and(|known| known.digest == desired.digest);
        while let Some(version) = self.agent.root_version().filter(|_| !is_known && !desired.task_id.is_empty()) {
            let hub = self.hub.borrow().clone();
            let fetched = timeout(ROOT_LIMIT, next_root(&self.wire, &hub, version + 1)).await;
            // Without an answer the task is judged by what is known; that is never less strict.
            let Ok(Some(text)) = fetched else { break };
            let _ = self.step(Event::Root(text.into())).await?;
            if self.agent.root_version() == Some(version) {
                eprintln!("root {} is not believed", version + 1);
                break;
            }
            println!("root {} is believed", version + 1);
        }
        Ok(())
    }

    async fn step(&mut self, event: Event) -> Result<Option<Ended>, String> {
        let now = self.now();
        let actions = self.agent.step(event, now);
        let ended = self.perform(actions).await?;
        self.ask_people();
        Ok(ended)
    }

    /// While somebody has to agree, a file says to what; the vehicle's own screen shows it.
    fn ask_people(&mut self) {
        let desired = self.agent.desired().filter(|_| self.agent.gate() == Some(Gate::Consent));
        let asked = desired.map(|desired| {
            let notes = desired.notes.clone().unwrap_or_default();
            json!({
                "version": desired.version, "purpose": notes.purpose, "minutes": notes.minutes,
                "lostFunctions": notes.lost_functions,
            })
        });
        if asked == self.asked {
            return;
        }
        let file = self.config.data.join(NOTICE);
        let done = match &asked {
            Some(asked) => replace(&file, asked.to_string().as_bytes()),
            None => fs::remove_file(&file),
        };
        match done {
            Ok(()) => self.asked = asked,
            Err(error) => eprintln!("{} can't be written: {error}", file.display()),
        }
    }

    async fn perform(&mut self, actions: Vec<Action>) -> Result<Option<Ended>, String> {
        for action in actions {
            match action {
                Action::Keep => self.keep()?,
                Action::Report => self.report(),
                Action::Fetch { ticket, anew } => self.fetch(ticket, anew),
                Action::StopFetching => self.stop_fetching(),
                Action::Check(ticket) => {
                    let path = self.slots.artifact(self.other());
                    self.answer(ticket, async move { Done::Check(digest(&path).await) });
                }
                Action::Install(ticket) => self.install(ticket),
                Action::Arm(ticket) => {
                    let (slots, slot) = (self.slots.clone(), self.other());
                    self.change(ticket, "arm", slot, Done::Arm, move || slots.arm(slot));
                }
                Action::Probe(ticket) => self.probe(ticket),
                Action::Commit(ticket) => {
                    let (slots, slot) = (self.slots.clone(), self.boot.slot);
                    self.change(ticket, "commit", slot, Done::Commit, move || slots.commit(slot));
                }
                Action::Disarm(ticket) => {
                    let (slots, slot) = (self.slots.clone(), self.other());
                    self.change(ticket, "disarm", slot, Done::Disarm, move || slots.disarm());
                }
                Action::Restart => return self.restart().await.map(Some),
            }
        }
        Ok(None)
    }

    fn other(&self) -> Slot {
        self.boot.slot.other()
    }

    /// Nothing may follow on what could not be kept.
    fn keep(&self) -> Result<(), String> {
        self.journal.write(self.agent.journal()).map_err(|error| format!("the journal can't be kept: {error}"))?;
        #[cfg(debug_assertions)]
        die_at(self.agent.journal());
        Ok(())
    }

    fn report(&self) {
        let report = self.agent.report();
        println!(
            "task {:?} attempt {}: {} {}% {} {} {} {}",
            report.task_id,
            report.attempt,
            report.stage().word(),
            report.percent,
            report.gate,
            report.outcome().word(),
            report.reason,
            report.message
        );
        self.reports.send_replace(Some(report));
    }

    /// Does something beside the loop, and answers with what came of it.
    fn answer(&self, ticket: u32, work: impl Future<Output = Done> + Send + 'static) -> AbortHandle {
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let done = work.await;
            // The loop has ended if nobody takes it.
            let _ = events.send(Event::Done { ticket, done }).await;
        });
        task.abort_handle()
    }

    /// Makes a slot the one to start from: by a hook, or in the built-in table.
    fn change(
        &self,
        ticket: u32,
        name: &str,
        slot: Slot,
        done: fn(Result<(), String>) -> Done,
        built_in: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) {
        let (command, variables) = (self.config.hooks.get(name).cloned(), self.variables_of(slot));
        self.answer(ticket, async move {
            done(match command {
                Some(command) => hook(&command, &variables).await.map(drop),
                None => built_in().map_err(|error| error.to_string()),
            })
        });
    }

    fn fetch(&mut self, ticket: u32, anew: bool) {
        self.stop_fetching();
        let Some(desired) = self.agent.desired().cloned() else { return };
        let slot = self.other();
        let (file, slots, events) = (self.slots.artifact(slot), self.slots.clone(), self.events.clone());
        let fetch = Fetch { file, hub: self.hub.borrow().clone(), wire: self.wire.clone(), desired, anew };
        self.fetching = Some(self.answer(ticket, async move {
            if let Err(error) = slots.clear(slot) {
                return Done::Fetch(Err(crate::FetchError::Broken(error.to_string())));
            }
            // A loop that is busy hears of the next bytes.
            let told = |have| drop(events.try_send(Event::Fetched { ticket, have }));
            Done::Fetch(fetch.run(told).await)
        }));
    }

    fn stop_fetching(&mut self) {
        if let Some(fetching) = self.fetching.take() {
            fetching.abort();
        }
    }

    fn install(&self, ticket: u32) {
        let (slots, slot, variables) = (self.slots.clone(), self.other(), self.variables());
        let command = self.config.hooks.get("install").cloned();
        let firmware = self.agent.desired().map(Running::of);
        self.answer(ticket, async move {
            let hooked = match command {
                Some(command) => hook(&command, &variables).await.map(drop),
                None => Ok(()),
            };
            let noted = || slots.install(slot, &firmware.unwrap_or_default()).map_err(|error| error.to_string());
            Done::Install(hooked.and_then(|()| noted()))
        });
    }

    fn probe(&self, ticket: u32) {
        let checks = self.agent.desired().map(|desired| desired.health_checks.clone()).unwrap_or_default();
        let checks: Vec<HealthCheck> = checks.into_iter().filter(|check| check.name != "hub").collect();
        let (commands, variables) = (self.config.checks.clone(), self.variables_of(self.boot.slot));
        self.answer(ticket, async move { Done::Probe(probe(&checks, &commands, &variables).await) });
    }

    fn variables(&self) -> BTreeMap<&'static str, String> {
        self.variables_of(self.other())
    }

    /// What commands are told.
    fn variables_of(&self, slot: Slot) -> BTreeMap<&'static str, String> {
        let shown = |path: PathBuf| path.display().to_string();
        let version = self.agent.desired().map(|desired| desired.version.clone()).unwrap_or_default();
        BTreeMap::from([
            ("SETPOINT_VEHICLE", self.config.vehicle.clone()),
            ("SETPOINT_SLOT", slot.word().to_owned()),
            ("SETPOINT_ARTIFACT", shown(self.slots.artifact(slot))),
            ("SETPOINT_VERSION", version),
        ])
    }

    async fn restart(&mut self) -> Result<Ended, String> {
        let seq = self.agent.journal().seq;
        // Whether the hub hears of it before or after makes no difference to the end.
        let _ = timeout(FAREWELL, self.sent.wait_for(|sent| *sent >= seq)).await;
        match self.config.hooks.get("restart") {
            None => Ok(Ended::Restart),
            Some(command) => {
                hook(command, &self.variables()).await.map_err(|why| format!("can't restart the vehicle: {why}"))?;
                Ok(Ended::Asked)
            }
        }
    }
}
