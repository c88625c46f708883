//! Who is there: the vehicles that this hub has heard of, and over which link.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use setpoint_fleet_protocol::{Party, Report, ToVehicle};
use setpoint_runtime::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Credential;
use super::pace::Pace;
use super::plan::Heard;

/// Most frames beside wishes that wait for a link: welcomes of a gateway's vehicles, pings.
const CONTROL_MAX: usize = 1 << 17;

/// All that this hub knows of vehicles.
#[derive(Default)]
pub struct Roster {
    entries: Mutex<HashMap<Key, Entry>>,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    last: u64,
    open: HashMap<u64, Arc<LinkState>>,
}

/// A vehicle that was heard of.
struct Entry {
    link: Option<Arc<LinkState>>,
    epoch: u64,
    agent_version: Box<str>,
    report: Box<Report>,
    heard_at: Instant,
    wrote_at: Option<Instant>,
    pace: Pace,
    /// Whether it is among those of its link that have mail.
    has_mail: bool,
}

/// One connection, of a vehicle or of a gateway.
pub struct LinkState {
    pub id: u64,
    pub party: Party,
    /// The certificate of the connection, where there is one.
    pub credential: Option<Credential>,
    waiting: Mutex<Waiting>,
    pub wake: Notify,
}

struct Waiting {
    /// Frames that are not wishes.
    control: VecDeque<ToVehicle>,
    /// Vehicles for which there is a wish: what it is, is looked up when it is sent.
    mail: VecDeque<Key>,
    members: HashSet<Key>,
    heard_at: Instant,
    is_closed: bool,
}

/// What is to be sent next.
pub enum Outgoing {
    Control(ToVehicle),
    Mail(Key),
    Closed,
}

impl LinkState {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the vehicle's own certificate; a gateway's says nothing about its vehicles.
    pub fn own_key(&self) -> Option<&str> {
        match self.party {
            Party::Vehicle(_) => self.credential.as_ref().map(|credential| credential.key.as_str()),
            Party::Gateway { .. } => None,
        }
    }

    /// What is to be sent next, if anything is.
    pub fn next(&self) -> Option<Outgoing> {
        let mut waiting = self.waiting();
        if let Some(frame) = waiting.control.pop_front() {
            return Some(Outgoing::Control(frame));
        }
        if waiting.is_closed {
            return Some(Outgoing::Closed);
        }
        waiting.mail.pop_front().map(Outgoing::Mail)
    }

    /// Sends a frame; a link that takes none is closed.
    pub fn send(&self, frame: ToVehicle) {
        let mut waiting = self.waiting();
        if waiting.control.len() >= CONTROL_MAX {
            waiting.is_closed = true;
        } else {
            waiting.control.push_back(frame);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Something was heard.
    pub fn heard(&self, now: Instant) {
        self.waiting().heard_at = now;
    }

    pub fn heard_at(&self) -> Instant {
        self.waiting().heard_at
    }

    /// Ends it, after what waits is sent.
    pub fn close(&self) {
        self.waiting().is_closed = true;
        self.wake.notify_one();
    }

    fn mail(&self, key: Key) {
        self.waiting().mail.push_back(key);
        self.wake.notify_one();
    }
}

impl Roster {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new link.
    pub fn open(&self, party: Party, credential: Option<Credential>, now: Instant) -> Arc<LinkState> {
        let mut links = self.links();
        links.last += 1;
        let waiting = Waiting {
            control: VecDeque::new(),
            mail: VecDeque::new(),
            members: HashSet::new(),
            heard_at: now,
            is_closed: false,
        };
        let (id, waiting) = (links.last, Mutex::new(waiting));
        let link = Arc::new(LinkState { id, party, credential, waiting, wake: Notify::new() });
        links.open.insert(link.id, link.clone());
        link
    }

    /// A link has ended; its vehicles, which are away from now on.
    pub fn close(&self, link: &LinkState) -> Vec<Key> {
        self.links().open.remove(&link.id);
        let members = std::mem::take(&mut link.waiting().members);
        let mut entries = self.entries();
        let mut gone = Vec::new();
        for key in members {
            if let Some(entry) = entries.get_mut(&key).filter(|entry| entry.is_on(link)) {
                entry.link = None;
                entry.has_mail = false;
                entry.heard_at = link.heard_at();
                gone.push(key);
            }
        }
        gone
    }

    /// The links whose turn it is, of `turns` that there are.
    pub fn turn(&self, turn: u64, turns: u64) -> Vec<Arc<LinkState>> {
        self.links().open.values().filter(|link| link.id % turns == turn).cloned().collect()
    }

    /// All links.
    pub fn all_links(&self) -> Vec<Arc<LinkState>> {
        self.links().open.values().cloned().collect()
    }

    /// How many vehicles have an open session.
    pub fn connected(&self) -> usize {
        self.entries().values().filter(|entry| entry.link.is_some()).count()
    }

    /// A session begins. False if one with a higher number is open already; one with a lower number ends.
    pub fn enter(&self, key: &Key, link: &Arc<LinkState>, epoch: u64, agent_version: &str, report: Report) -> bool {
        let mut entries = self.entries();
        if entries.get(key).is_some_and(|known| known.epoch > epoch) {
            return false;
        }
        let known = entries.remove(key);
        let before = known.as_ref().and_then(|known| known.link.clone()).filter(|before| before.id != link.id);
        let entry = Entry {
            link: Some(link.clone()),
            epoch,
            agent_version: agent_version.into(),
            report: Box::new(report),
            heard_at: link.heard_at(),
            wrote_at: known.as_ref().and_then(|known| known.wrote_at),
            pace: known.map_or_else(|| Pace::new(Instant::now()), |known| known.pace),
            has_mail: false,
        };
        entries.insert(key.clone(), entry);
        drop(entries);
        link.waiting().members.insert(key.clone());
        if let Some(before) = before {
            before.waiting().members.remove(key);
            if matches!(before.party, Party::Vehicle(_)) {
                before.close();
            }
        }
        true
    }

    /// A report; whether it is from the session that counts.
    pub fn report(&self, key: &Key, link: &LinkState, report: Report) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.is_on(link)) else { return false };
        if report.seq >= entry.report.seq {
            *entry.report = report;
        }
        entry.heard_at = link.heard_at();
        true
    }

    /// A gateway's vehicle has gone out of reach.
    pub fn leave(&self, key: &Key, link: &LinkState) -> bool {
        link.waiting().members.remove(key);
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.is_on(link)) else { return false };
        (entry.link, entry.has_mail) = (None, false);
        true
    }

    /// There is something to tell a vehicle, if it is there.
    pub fn has_mail(&self, key: &Key) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return };
        if let (Some(link), false) = (&entry.link, entry.has_mail) {
            entry.has_mail = true;
            link.mail(key.clone());
        }
    }

    /// The mail of a vehicle is about to be made; from now on there can be more. False if it isn't on this link any more.
    pub fn takes_mail(&self, key: &Key, link: &LinkState) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.is_on(link)) else { return false };
        entry.has_mail = false;
        true
    }

    /// Whether a vehicle that is there has said something about a task and attempt.
    pub fn is_working_on(&self, key: &Key, task: &str, attempt: u32) -> Option<bool> {
        let entries = self.entries();
        let entry = entries.get(key).filter(|entry| entry.link.is_some())?;
        Some(entry.report.task_id == task && entry.report.attempt == attempt)
    }

    /// The link that a vehicle's session is on.
    pub fn link_of(&self, key: &Key) -> Option<Arc<LinkState>> {
        self.entries().get(key).and_then(|entry| entry.link.clone())
    }

    /// The vehicles of a link.
    pub fn members(&self, link: &LinkState) -> Vec<Key> {
        link.waiting().members.iter().cloned().collect()
    }

    /// What was heard of a vehicle.
    pub fn heard(&self, key: &Key, now: Instant) -> Option<Heard> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        let heard_at = entry.link.as_ref().map_or(entry.heard_at, |link| link.heard_at());
        Some(Heard {
            epoch: entry.epoch,
            is_open: entry.link.is_some(),
            silent_for: now.saturating_duration_since(heard_at),
            agent_version: entry.agent_version.clone(),
            report: (*entry.report).clone(),
            wrote: entry.wrote_at.map(|at| now.saturating_duration_since(at)),
            rest: entry.pace.rest(now),
        })
    }

    /// Something was written about a vehicle.
    pub fn wrote(&self, key: &Key, now: Instant) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.wrote_at = Some(now);
            entry.pace.wrote(now);
        }
    }

    /// Ends the session of a vehicle and forgets it, if that session isn't younger than `epoch`.
    pub fn forget(&self, key: &Key, epoch: u64) {
        let mut entries = self.entries();
        if entries.get(key).is_some_and(|entry| entry.epoch <= epoch)
            && let Some(link) = entries.remove(key).and_then(|entry| entry.link)
        {
            drop(entries);
            link.waiting().members.remove(key);
            if matches!(link.party, Party::Vehicle(_)) {
                link.close();
            }
        }
    }

    /// How long ago a moment was, for those who wait.
    pub fn silence(link: &LinkState, now: Instant) -> Duration {
        now.saturating_duration_since(link.heard_at())
    }
}

impl Entry {
    fn is_on(&self, link: &LinkState) -> bool {
        self.link.as_ref().is_some_and(|own| own.id == link.id)
    }
}
