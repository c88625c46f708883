//! The control plane of a test: store, API server, and clients without sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use setpoint_apiserver::user::User;
use setpoint_apiserver::{ApiServer, Chance, Clock, Registry};
use setpoint_runtime::clock as runtime_clock;
use setpoint_store::{MemoryDisk, Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::State;
use crate::plan::Plan;
use crate::scenario::Limits;
use crate::wire::Wire;

/// The first moment of every test: 2026-01-01T00:00:00Z.
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);

/// Tests write little and start often.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// Where the API says that it can be reached; nobody listens there.
const ADDRESS: ([u8; 4], u16) = ([192, 0, 2, 1], 6443);

/// A whole control plane in the test's own process. It ends when it is dropped.
///
/// Start it on a current-thread runtime with paused time (`#[tokio::test(start_paused = true)]`), and hours pass in
/// microseconds.
pub struct ControlPlane {
    api: ApiServer,
    store: Store,
    seed: u64,
    clock: runtime_clock::Clock,
    activity: Arc<Activity>,
    _stop: watch::Sender<bool>,
    _tending: JoinSet<()>,
}

/// What clients did, leases apart: heartbeats are no change.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    writes: AtomicUsize,
}

/// A process whose own writes wake it never lets time pass: after so many writes its calls are held, and the run fails.
const WRITES_MAX: usize = 5_000;

impl Activity {
    /// Notes a write; false if there were too many, so that it must not be made.
    pub(crate) fn note(&self) -> bool {
        self.writes.fetch_add(1, Ordering::Relaxed) < WRITES_MAX
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl ControlPlane {
    /// Starts one.
    pub async fn start() -> ControlPlane {
        ControlPlane::seeded(0).await
    }

    /// Starts one whose chance follows from a seed.
    pub async fn seeded(seed: u64) -> ControlPlane {
        let registry = Arc::new(Registry::builtin());
        let disk = Arc::new(MemoryDisk::new());
        let options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
        let opened = Store::open(disk, Arc::clone(&registry) as _, options).await;
        let (store, _) = opened.expect("an empty store in memory opens");
        let (stop, stopping) = watch::channel(false);
        let clock = Clock::starting_at(BEGINNING);
        let api = ApiServer::new(store.clone(), registry, clock, Chance::seeded(seed), stopping);
        api.prepare(SocketAddr::from(ADDRESS)).await.expect("an empty store takes what the system needs");
        let mut tending = JoinSet::new();
        tending.spawn(api.tend());
        let wall = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = runtime_clock::Clock::starting_at(wall);
        ControlPlane { api, store, seed, clock, activity: Arc::default(), _stop: stop, _tending: tending }
    }

    /// A client of the administrator.
    pub fn client(&self) -> Client {
        self.client_as("kubernetes-admin", &["system:masters"])
    }

    /// A client of somebody.
    pub fn client_as(&self, name: &str, groups: &[&str]) -> Client {
        Client::new(Wire::plain(self.api.acting_as(user(name, groups)), Arc::clone(&self.activity)), "default")
    }

    /// A client of the process under test, in one of its lives.
    pub(crate) fn client_in(&self, plan: &Plan, life: usize, states: mpsc::UnboundedSender<State>) -> Client {
        let local = self.api.acting_as(user("kubernetes-admin", &["system:masters"]));
        let store = self.store.clone();
        let tell = move || {
            // Nobody listens once the run is over.
            let _ = states.send(State::new(store.snapshot()));
        };
        Client::new(Wire::faulty(local, Arc::clone(&self.activity), plan.clone(), life, Arc::new(tell)), "default")
    }

    /// The wall clock of this plane, for controllers that run on it.
    pub fn clock(&self) -> runtime_clock::Clock {
        self.clock
    }

    /// Chance from the seed of this plane.
    pub fn chance(&self) -> runtime_clock::Chance {
        runtime_clock::Chance::seeded(self.seed)
    }

    /// All objects at this moment.
    pub fn state(&self) -> State {
        State::new(self.store.snapshot())
    }

    /// Lets time pass.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until nobody has written for two minutes; an error if that takes more than four hours.
    pub async fn settle(&self) -> Result<(), String> {
        self.settle_within(Limits::default()).await
    }

    pub(crate) async fn settle_within(&self, limits: Limits) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let before = self.writes();
            tokio::time::sleep(limits.quiet).await;
            if self.writes() > WRITES_MAX {
                return Err(format!("there are more than {WRITES_MAX} writes"));
            }
            if self.writes() == before {
                return Ok(());
            }
            if begin.elapsed() > limits.settle {
                return Err(format!("there are still writes after {} s", limits.settle.as_secs()));
            }
        }
    }

    /// How many writes clients have begun.
    pub(crate) fn writes(&self) -> usize {
        self.activity.writes()
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}
