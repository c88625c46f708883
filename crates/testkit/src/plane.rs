//! The control plane of a test: store, API server, and clients without sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use setpoint_api::Revision;
use setpoint_apiserver::user::User;
use setpoint_apiserver::{ApiServer, Chance, Clock, Registry};
use setpoint_runtime::clock as runtime_clock;
use setpoint_store::{MemoryDisk, Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::course::Course;
use crate::life::Life;
use crate::outside::Outside;
use crate::pulse::Pulse;
use crate::run::{be_stale, live};
use crate::scenario::Limits;
use crate::wire::Wire;
use crate::{Plan, Process, State};

/// The first moment of every test: 2026-01-01T00:00:00Z.
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);

/// Tests write little and start often.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// The built-in kinds are the same in all planes.
static BUILTIN: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(Registry::builtin()));

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
    /// What the server itself has made, before anybody did anything.
    begun: Revision,
    clock: runtime_clock::Clock,
    activity: Arc<Activity>,
    outside: Outside,
    #[cfg(feature = "controllers")]
    built_in: crate::built_in::BuiltIn,
    _stop: watch::Sender<bool>,
    _tending: JoinSet<()>,
}

/// What clients did, leases and Events apart: neither heartbeats nor words are changes. Words are counted for themselves.
pub(crate) struct Activity {
    writes: AtomicUsize,
    words: AtomicUsize,
    writes_max: usize,
    pulse: Pulse,
}

impl Activity {
    fn bounded(limits: Limits) -> Arc<Activity> {
        let pulse = Pulse::bounded(limits.steps);
        Arc::new(Activity { writes: AtomicUsize::new(0), words: AtomicUsize::new(0), writes_max: limits.writes, pulse })
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Notes a write; false if there were too many, so that it must not be made.
    pub(crate) fn note(&self) -> bool {
        self.writes.fetch_add(1, Ordering::Relaxed) < self.writes_max
    }

    /// Notes that an Event was written.
    pub(crate) fn note_word(&self) {
        self.words.fetch_add(1, Ordering::Relaxed);
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
        ControlPlane::bounded(seed, Limits::default()).await
    }

    /// Starts one in which a process under test can't do more than this.
    pub(crate) async fn bounded(seed: u64, limits: Limits) -> ControlPlane {
        let registry = Arc::clone(&BUILTIN);
        let disk = Arc::new(MemoryDisk::new());
        let options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
        let opened = Store::open(disk, Arc::clone(&registry) as _, options).await;
        let (store, _) = opened.expect("an empty store in memory opens");
        let (stop, stopping) = watch::channel(false);
        let clock = Clock::starting_at(BEGINNING);
        let api = ApiServer::new(store.clone(), registry, clock, Chance::seeded(seed), stopping);
        api.prepare(SocketAddr::from(ADDRESS)).await.expect("an empty store takes what the system needs");
        let begun = store.snapshot().revision();
        let mut tending = JoinSet::new();
        tending.spawn(api.tend());
        let wall = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = runtime_clock::Clock::starting_at(wall);
        ControlPlane {
            api,
            store,
            seed,
            begun,
            clock,
            activity: Activity::bounded(limits),
            outside: Outside::default(),
            #[cfg(feature = "controllers")]
            built_in: crate::built_in::BuiltIn::default(),
            _stop: stop,
            _tending: tending,
        }
    }

    /// A client of the administrator.
    pub fn client(&self) -> Client {
        self.client_as("kubernetes-admin", &["system:masters"])
    }

    /// A client of somebody.
    pub fn client_as(&self, name: &str, groups: &[&str]) -> Client {
        Client::new(Wire::plain(self.api.acting_as(user(name, groups)), Arc::clone(&self.activity)), "default")
    }

    /// A client of those who play nodes: what they say about themselves again and again is no activity.
    #[cfg(feature = "controllers")]
    pub(crate) fn nodes_client(&self, name: &str, groups: &[&str]) -> Client {
        Client::new(Wire::of_nodes(self.api.acting_as(user(name, groups)), Arc::clone(&self.activity)), "default")
    }

    #[cfg(feature = "controllers")]
    pub(crate) fn built_in(&self) -> &crate::built_in::BuiltIn {
        &self.built_in
    }

    /// Makes the service account without which a namespace takes no pods, as long as no controller runs that makes it.
    ///
    /// # Panics
    /// If there is no such namespace.
    pub async fn let_pods_into(&self, namespace: &str) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let account = PatchParams::apply("testkit");
        let body = Patch::Apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}));
        accounts.patch("default", &account, &body).await.expect("a namespace that takes a service account");
    }

    /// A life of the process under test, and its client.
    pub(crate) fn life(&self, course: &Course, states: mpsc::UnboundedSender<State>) -> (Life, Client) {
        let local = self.api.acting_as(user("kubernetes-admin", &["system:masters"]));
        let (store, outside) = (self.store.clone(), self.outside.clone());
        let tell = move || {
            // Nobody listens once the run is over.
            let _ = states.send(State::new(store.snapshot(), outside.clone()));
        };
        let life = Life::new(course, local.clone(), Arc::clone(&self.activity), Arc::new(tell));
        (life.clone(), Client::new(Wire::mortal(local, Arc::clone(&self.activity), life), "default"))
    }

    /// Runs a process with the faults of a plan, for tests that are no [`Scenario`](crate::Scenario): one life after the
    /// other, for as long as this future is polled. Where the plan has a fault of the kind `stale-at-event`, the process is
    /// started again once nobody has written for two minutes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::api::PostParams;
    /// use setpoint_testkit::{ControlPlane, Fault, Plan, Process};
    ///
    /// let plane = ControlPlane::start().await;
    /// let lives = std::sync::Arc::new(AtomicUsize::new(0));
    /// let process = |process: Process| {
    ///     lives.fetch_add(1, Ordering::Relaxed);
    ///     let shop = serde_json::from_value(serde_json::json!({"metadata": {"name": "shop"}})).unwrap();
    ///     Box::pin(async move {
    ///         let namespaces = kube::Api::<Namespace>::all(process.client.clone());
    ///         let _ = namespaces.create(&PostParams::default(), &shop).await; // it may be there already
    ///         process.stopped().await;
    ///     }) as futures_util::future::BoxFuture<'static, ()>
    /// };
    /// tokio::select! {
    ///     () = plane.run_with(Plan::of([Fault::CrashAfterWrite(1)]), process) => {}
    ///     settled = plane.settle() => settled.unwrap(),
    /// }
    /// assert_eq!(lives.load(Ordering::Relaxed), 2);
    /// # });
    /// ```
    pub async fn run_with(&self, plan: Plan, process: impl Fn(Process) -> BoxFuture<'static, ()> + Sync) {
        let course = Course::new(plan);
        let (_stop, stopping) = watch::channel(false);
        // Nobody looks at the states in between.
        let (states, _) = mpsc::unbounded_channel();
        let tasks = AtomicUsize::new(0);
        let staleness = async {
            // What spins is told by whoever waits for the plane.
            while self.settle().await.is_ok() {
                be_stale(&course).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = live(&process, self, &course, &stopping, &states, &tasks) => {}
            () = staleness => {}
        }
    }

    /// What is outside of the cluster in this run, such as a cloud with machines; made when it is first asked for. It
    /// outlives the process under test, which finds the same one with [`Process::outside`](crate::Process::outside).
    pub fn outside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.outside.get()
    }

    pub(crate) fn everything_outside(&self) -> Outside {
        self.outside.clone()
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
        State::new(self.store.snapshot(), self.outside.clone())
    }

    /// The last revision of what was there before anybody did anything.
    pub(crate) fn begun(&self) -> Revision {
        self.begun
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// If something spins, so that time can't pass.
    pub async fn advance(&self, time: Duration) {
        tokio::select! {
            biased;
            why = self.spins() => panic!("{why}"),
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Waits until nobody has written for two minutes; an error if that takes more than four hours, or if something spins so
    /// that time can't pass.
    pub async fn settle(&self) -> Result<(), String> {
        self.settle_within(Limits::default()).await
    }

    pub(crate) async fn settle_within(&self, limits: Limits) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let before = self.writes();
            tokio::select! {
                biased;
                why = self.spins() => return Err(why),
                () = tokio::time::sleep(limits.quiet) => {}
            }
            if self.writes() > limits.writes {
                return Err(format!("there are more than {} writes", limits.writes));
            }
            if self.writes() == before {
                return Ok(());
            }
            if begin.elapsed() > limits.settle {
                return Err(format!("there are still writes after {} s", limits.settle.as_secs()));
            }
        }
    }

    /// Waits until something spins, and says what.
    pub(crate) async fn spins(&self) -> String {
        self.activity.pulse().spins().await
    }

    /// Counts the turns of the process under test, or of what is beside it.
    pub(crate) async fn turns<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        self.activity.pulse().turns(what, future).await
    }

    /// How many writes clients have begun.
    pub(crate) fn writes(&self) -> usize {
        self.activity.writes()
    }

    /// How often an Event was written.
    pub(crate) fn words(&self) -> usize {
        self.activity.words.load(Ordering::Relaxed)
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}
