//! The loop of a real vehicle: what happens goes to the state machine, what it asks for is done.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::{HealthCheck, Report};
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
use super::wire::Wire;
use crate::slots::{Boot, Slots};
use crate::{Action, Agent, Done, Event, Facts, Identity, Journal, Running, Slot};

/// Events that wait for the loop; more come only as fast as it takes them.
const QUEUE: usize = 64;

/// How often facts are read while a task is under way.
const FACTS_PAUSE: Duration = Duration::from_secs(5);

/// How long a restart waits for the last report to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

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
    let (kept, boot) = (journal.read().map_err(|error| format!("the journal can't be read: {error}"))?, slots.boot());
    let boot = boot.map_err(|error| format!("the slots can't be read: {error}"))?;
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
        ahead: 0,
    };
    let ended = device.live(actions, heard, events).await;
    linked.abort();
    renewing.abort();
    ended
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

    async fn step(&mut self, event: Event) -> Result<Option<Ended>, String> {
        let now = self.now();
        let actions = self.agent.step(event, now);
        self.perform(actions).await
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
                    self.change(ticket, "arm", Done::Arm, move || slots.arm(slot));
                }
                Action::Probe(ticket) => self.probe(ticket),
                Action::Commit(ticket) => {
                    let (slots, slot) = (self.slots.clone(), self.boot.slot);
                    self.change(ticket, "commit", Done::Commit, move || slots.commit(slot));
                }
                Action::Disarm(ticket) => {
                    let slots = self.slots.clone();
                    self.change(ticket, "disarm", Done::Disarm, move || slots.disarm());
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
        self.journal.write(self.agent.journal()).map_err(|error| format!("the journal can't be kept: {error}"))
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

    /// Changes which slot is started from: by a hook, or in the built-in table.
    fn change(
        &self,
        ticket: u32,
        name: &str,
        done: fn(Result<(), String>) -> Done,
        built_in: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) {
        let (command, variables) = (self.config.hooks.get(name).cloned(), self.variables());
        self.answer(ticket, async move {
            done(match command {
                Some(command) => hook(&command, &variables).await,
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
        let firmware = self.agent.desired().map(|desired| Running {
            version: desired.version.clone(),
            digest: desired.digest.clone(),
            release_counter: desired.release_counter,
        });
        self.answer(ticket, async move {
            let hooked = match command {
                Some(command) => hook(&command, &variables).await,
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
