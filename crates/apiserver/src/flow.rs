//! Who goes first when there is more to do than can be done at once.
//!
//! Every request belongs to a flow of a FlowSchema and goes to the priority level that the schema names. A level has a number of
//! seats; who finds none waits in its queues, and who finds those full is told to come back. So one noisy client is slowed down and
//! everybody else goes on, and the system's own traffic always passes.

mod levels;
mod schemas;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Mark, Query, Selection, Snapshot, Store};
use tokio::sync::oneshot;

use self::levels::{Entry, Levels, Settings};
use self::schemas::Schema;
use crate::authorization::Asked;
use crate::bootstrap::{CATCH_ALL, mandatory};
use crate::metrics::Exposition;
use crate::objects;
use crate::user::User;

/// Longest wait for a seat. Clients try again by themselves after a 429.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Requests that work at once for each processor. While they work they need one, so more of them would only stand in each other's way,
/// and in that of the quiet client's only request.
const SEATS_PER_PROCESSOR: usize = 4;
const SEATS_MIN: usize = 8;
const SEATS_MAX: usize = 600;

/// One in so many of those who find a free seat lets others come before it begins. A crowd fills the seats with these soon; without a crowd
/// the others are spared the way through the queue of the runtime.
const SEATED_AT_ONCE: u64 = 4;

/// How many objects of a list are one seat's work, and how many seats a list takes at most.
const LISTED_PER_SEAT: usize = 1_000;
const LIST_SEATS_MAX: u64 = 10;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

static STORED: LazyLock<[GroupResource; 2]> =
    LazyLock::new(|| ["flowschemas", "prioritylevelconfigurations"].map(|plural| GroupResource::new(GROUP, plural)));

/// Hands out seats to requests.
#[derive(Clone)]
pub(crate) struct Flow(Arc<Shared>);

struct Shared {
    /// None before anything was asked.
    read: RwLock<Option<Read>>,
    levels: Mutex<Levels<oneshot::Sender<Seat>>>,
    /// How many found a free seat.
    seated: AtomicU64,
}

/// What is stored, as of some moment.
struct Read {
    marks: [Mark; 2],
    config: Arc<Config>,
}

#[derive(Default)]
struct Config {
    schemas: Vec<Schema>,
    levels: BTreeMap<String, Settings>,
}

/// The seats of a request that works, none of one that waits; drop it when the request has ended.
#[derive(Default)]
struct Seat {
    of: Option<(Flow, String, u64)>,
}

/// A request that may run, and what its answer tells about why.
#[derive(Default)]
pub(crate) struct Place {
    seat: Seat,
    schema: String,
    level: String,
}

impl Default for Flow {
    fn default() -> Flow {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Flow::with_seats((processors * SEATS_PER_PROCESSOR).clamp(SEATS_MIN, SEATS_MAX) as u64)
    }
}

impl Flow {
    fn with_seats(seats: u64) -> Flow {
        Flow(Arc::new(Shared {
            read: RwLock::default(),
            levels: Mutex::new(Levels::new(seats)),
            seated: AtomicU64::new(0),
        }))
    }

    /// A place for a request, in turn; 429 if there is none in time. `listed` is how many objects it may read.
    pub(crate) async fn enter(
        &self,
        store: &Store,
        user: &User,
        asked: &Asked<'_>,
        listed: usize,
    ) -> Result<Place, Box<Status>> {
        let config = self.current(store);
        let Some(schema) = config.schema_of(user, asked) else { return Ok(Place::default()) };
        let level = config.levels.get(&schema.level);
        let uid = level.map(|level| level.uid.clone()).unwrap_or_default();
        let place = |seat| Place { seat, schema: schema.uid.clone(), level: uid };
        if level.is_none_or(|level| level.limited.is_none()) {
            return Ok(place(Seat::default()));
        }
        let seats = u64::try_from(listed.div_ceil(LISTED_PER_SEAT)).unwrap_or(1).clamp(1, LIST_SEATS_MAX);
        let flow = hash(&schema.name, schema.flow(user, asked));
        let (tell, told) = oneshot::channel();
        let entry = self.levels().enter(&schema.level, flow, seats, || tell);
        match entry {
            Entry::Seated => {
                let place = place(Seat { of: Some((self.clone(), schema.level.clone(), seats)) });
                if self.0.seated.fetch_add(1, Ordering::Relaxed).is_multiple_of(SEATED_AT_ONCE) {
                    let_others_come().await;
                }
                Ok(place)
            }
            Entry::Refused => Err(come_back()),
            Entry::Waits => match tokio::time::timeout(WAIT_MAX, told).await {
                Ok(Ok(seat)) => Ok(place(seat)),
                _ => {
                    self.levels().give_up(&schema.level);
                    Err(come_back())
                }
            },
        }
    }

    fn leave(&self, level: &str, seats: u64) {
        let seated = self.levels().leave(level, seats);
        self.tell(seated);
    }

    /// Tells those who got a seat.
    fn tell(&self, seated: Vec<(oneshot::Sender<Seat>, String, u64)>) {
        let mut seated = VecDeque::from(seated);
        while let Some((tell, level, seats)) = seated.pop_front() {
            if let Err(mut seat) = tell.send(Seat { of: Some((self.clone(), level, seats)) })
                && let Some((_, level, seats)) = seat.of.take()
            {
                // Who waited has gone away: the seat is free again.
                seated.extend(self.levels().leave(&level, seats));
            }
        }
    }

    fn levels(&self) -> MutexGuard<'_, Levels<oneshot::Sender<Seat>>> {
        self.0.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schemas and levels that fit what is stored now.
    fn current(&self, store: &Store) -> Arc<Config> {
        let snapshot = store.snapshot();
        let marks = STORED.each_ref().map(|resource| snapshot.mark(resource));
        {
            let read = self.0.read.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(read) = read.as_ref().filter(|read| read.marks == marks) {
                return Arc::clone(&read.config);
            }
        }
        let config = Arc::new(Config::read(&snapshot));
        let mut read = self.0.read.write().unwrap_or_else(PoisonError::into_inner);
        self.levels().set(&config.levels);
        *read = Some(Read { marks, config: Arc::clone(&config) });
        config
    }

    /// Writes how busy the levels are.
    pub(crate) fn write(&self, out: &mut Exposition) {
        let levels = self.levels();
        let all: Vec<_> = levels.states().collect();
        let mut family =
            |name: &'static str, kind: &'static str, help: &'static str, of: &dyn Fn(&levels::State) -> u64| {
                out.family(name, kind, help);
                for (level, state) in &all {
                    out.sample("", &[("priority_level", level)], of(state));
                }
            };
        family("apiserver_flowcontrol_nominal_limit_seats", "gauge", "Seats of a priority level.", &|state| {
            state.nominal
        });
        family("apiserver_flowcontrol_current_executing_seats", "gauge", "Seats that are taken.", &|state| state.used);
        family("apiserver_flowcontrol_current_inqueue_requests", "gauge", "Requests that wait for a seat.", &|state| {
            state.waiting as u64
        });
        family("apiserver_flowcontrol_dispatched_requests_total", "counter", "Requests that got a seat.", &|state| {
            state.figures.dispatched
        });
        family(
            "apiserver_flowcontrol_rejected_requests_total",
            "counter",
            "Requests that were told to come back.",
            &|state| state.figures.rejected,
        );
    }
}

impl Seat {
    /// Who has to wait makes room for one who can work.
    fn step_aside(&mut self) {
        if let Some((flow, level, seats @ 1..)) = &mut self.of {
            let seated = flow.levels().step_aside(level, std::mem::take(seats));
            flow.tell(seated);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((flow, level, seats)) = self.of.take() {
            flow.leave(&level, seats);
        }
    }
}

impl Place {
    /// Does the work of a request. The first time that it has to wait for something, it makes room for others to work.
    pub(crate) async fn work<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let seat = &mut self.seat;
        poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                seat.step_aside();
            }
            polled
        })
        .await
    }

    /// Tells the client which schema and level its request was of.
    pub(crate) fn tell<B>(&self, response: &mut Response<B>) {
        const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
        const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
        for (name, uid) in [(SCHEMA, &self.schema), (LEVEL, &self.level)] {
            if let (false, Ok(value)) = (uid.is_empty(), HeaderValue::from_str(uid)) {
                response.headers_mut().insert(name, value);
            }
        }
    }
}

impl Config {
    fn read(snapshot: &Snapshot) -> Config {
        let list = |resource: &GroupResource| {
            let selection = Selection::everything();
            let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
            snapshot.list(&query).items
        };
        let [schemas, levels] = &*STORED;
        let schemas: Vec<Schema> = list(schemas).iter().map(|it| Schema::read(&objects::value(it))).collect();
        let levels = list(levels);
        let levels = levels.iter().map(|it| objects::value(it));
        let levels = levels.map(|level| (level["metadata"].text("name").to_owned(), Settings::read(&level)));
        let mut config = Config { schemas, levels: levels.collect() };
        config.complete();
        config
    }

    /// Adds what counts whether or not it is stored, and leaves out schemas that lead nowhere: no request is without a level.
    fn complete(&mut self) {
        for (resource, object) in mandatory() {
            let name = object["metadata"].text("name");
            match *resource == *STORED[1].resource {
                true if !self.levels.contains_key(name) => {
                    self.levels.insert(name.to_owned(), Settings::read(&object));
                }
                false if self.schemas.iter().all(|schema| schema.name != name) => {
                    self.schemas.push(Schema::read(&object));
                }
                _ => {}
            }
        }
        self.schemas.retain(|schema| self.levels.contains_key(&schema.level));
        schemas::order(&mut self.schemas);
    }

    /// The schema that a request belongs to. Who is in no group at all is everybody's last.
    fn schema_of(&self, user: &User, asked: &Asked<'_>) -> Option<&Schema> {
        let takes = self.schemas.iter().find(|schema| schema.takes(user, asked));
        takes.or_else(|| self.schemas.iter().find(|schema| schema.name == CATCH_ALL))
    }
}

/// Lets everything run that is ready to. Most requests never wait, so they would run to their end one after the other, in the order in
/// which they were read from their connections: a noisy client's thousand before a quiet one's only one. After this those who are there
/// have asked for seats, and turns are fair.
async fn let_others_come() {
    let mut has_waited = false;
    poll_fn(|context| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn hash(schema: &str, flow: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (schema, flow).hash(&mut hasher);
    hasher.finish()
}

fn come_back() -> Box<Status> {
    Box::new(Status::too_many_requests("too many requests, please try again later", 1))
}

#[cfg(test)]
mod tests;
