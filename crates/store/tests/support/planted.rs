//! Clients of a store that note what they call and are told; and a store that, once, tells or does something wrong on purpose.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{Change, CommitError, Expectation, Key, Store, Transaction};

use super::linearizability::{Answer, Call, Operation, Version};
use super::{pod, put, value_of};

/// What goes wrong once in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A read of an older version.
    StaleRead,
    /// A read of a value that nobody wrote.
    PhantomRead,
    /// A read of an old value under the newest revision.
    TornRead,
    /// A read that does not find what is there.
    AbsentRead,
    /// A write that is acknowledged and not done.
    LostUpdate,
    /// A delete that is acknowledged and not done.
    LostDelete,
    /// A write that is done twice.
    DoubleApply,
    /// A write that is done although it is refused.
    RefusedButDone,
    /// A write that is refused because of a version that is gone.
    FalseConflict,
    /// A write that ignores what was expected.
    BlindReplace,
    /// A create on top of what is there.
    CreateOver,
    /// A create refused by what was deleted.
    FalseExists,
    /// A write that does not find what is there.
    FalseMissing,
    /// A deleted object that comes back.
    Resurrected,
    /// A revision that was used before.
    RepeatedRevision,
    /// A revision older than one handed out before.
    OldRevision,
}

impl Wrong {
    pub const ALL: [Wrong; 16] = [
        Wrong::StaleRead,
        Wrong::PhantomRead,
        Wrong::TornRead,
        Wrong::AbsentRead,
        Wrong::LostUpdate,
        Wrong::LostDelete,
        Wrong::DoubleApply,
        Wrong::RefusedButDone,
        Wrong::FalseConflict,
        Wrong::BlindReplace,
        Wrong::CreateOver,
        Wrong::FalseExists,
        Wrong::FalseMissing,
        Wrong::Resurrected,
        Wrong::RepeatedRevision,
        Wrong::OldRevision,
    ];
}

/// How a history is made.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub clients: u64,
    pub calls_each: u64,
    pub objects: u64,
    pub wrong: Option<Wrong>,
}

/// A store that may do something wrong, and the history of what its clients saw.
pub struct Witness {
    /// One for each server; clients are spread over them.
    stores: Vec<Store>,
    plan: Plan,
    notes: Mutex<Notes>,
}

struct Notes {
    clock: u64,
    next_value: u64,
    history: Vec<Operation>,
    /// Versions of each object that were acknowledged, oldest first; a delete has no value.
    versions: BTreeMap<u64, Vec<(u64, Option<u64>)>>,
    in_flight: BTreeMap<u64, usize>,
    rng: StdRng,
    planted: bool,
}

/// Runs all clients, then reads every object once more. Returns the history and whether the wrong thing was done.
pub async fn record(stores: &[Store], plan: Plan) -> (Vec<Operation>, bool) {
    let notes = Notes {
        clock: 0,
        next_value: 0,
        history: Vec::new(),
        versions: BTreeMap::new(),
        in_flight: BTreeMap::new(),
        rng: StdRng::seed_from_u64(plan.seed),
        planted: plan.wrong.is_none(),
    };
    let witness = Arc::new(Witness { stores: stores.to_vec(), plan, notes: Mutex::new(notes) });
    let clients: Vec<_> = (0..plan.clients).map(|client| tokio::spawn(Arc::clone(&witness).client(client))).collect();
    for client in clients {
        client.await.expect("a client");
    }
    for object in 0..plan.objects {
        witness.call(&witness.stores[0], object, Call::Get).await;
    }
    let mut notes = witness.notes();
    (std::mem::take(&mut notes.history), notes.planted)
}

impl Witness {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().expect("no client panicked")
    }

    async fn client(self: Arc<Self>, client: u64) {
        let store = &self.stores[client as usize % self.stores.len()];
        let mut rng = StdRng::seed_from_u64(self.plan.seed * 100 + client);
        let mut known: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..self.plan.calls_each {
            let object = rng.random_range(0..self.plan.objects);
            let call = self.choose(&mut rng, known.get(&object).copied());
            match self.call(store, object, call).await {
                Answer::Found(Some(version)) => known.insert(object, version.revision),
                Answer::Done { revision } if !matches!(call, Call::Delete { .. }) => known.insert(object, revision),
                Answer::Conflict { actual } | Answer::Exists { actual } => known.insert(object, actual),
                _ => known.remove(&object),
            };
        }
    }

    fn choose(&self, rng: &mut StdRng, known: Option<u64>) -> Call {
        let mut notes = self.notes();
        notes.next_value += 1;
        let value = notes.next_value;
        match (known, rng.random_range(0..10)) {
            (_, 0..3) => Call::Get,
            (Some(expected), 3..7) => Call::Replace { expected, value },
            (Some(expected), 7) => Call::Delete { expected },
            // Writes that expect nothing could hide what went wrong before them.
            (_, 8) if self.plan.wrong.is_none() => Call::Put { value },
            _ => Call::Create { value },
        }
    }

    /// One call, with its moments noted.
    async fn call(&self, store: &Store, object: u64, call: Call) -> Answer {
        let called = {
            let mut notes = self.notes();
            *notes.in_flight.entry(object).or_default() += 1;
            notes.tick()
        };
        let wrong = match self.plan.wrong {
            Some(wrong) => Some(wrong).filter(|wrong| self.may_plant(*wrong, object, call)),
            None => None,
        };
        let answer = match wrong {
            Some(wrong) => self.wrongly(wrong, object, call).await,
            None => self.rightly(store, object, call).await,
        };
        let mut notes = self.notes();
        *notes.in_flight.get_mut(&object).expect("noted above") -= 1;
        if let Answer::Done { revision } = answer {
            let value = match call {
                Call::Create { value } | Call::Replace { value, .. } | Call::Put { value } => Some(value),
                Call::Delete { .. } | Call::Get => None,
            };
            notes.versions.entry(object).or_default().push((revision, value));
        }
        let returned = notes.tick();
        notes.history.push(Operation { object, call, answer, called, returned });
        answer
    }

    async fn rightly(&self, store: &Store, object: u64, call: Call) -> Answer {
        match call {
            Call::Get => {
                // Where others write too, a read waits for what they wrote; one that can't is tried again.
                while let Some(fresh) = store.fresh()
                    && fresh.await.is_err()
                {}
                Answer::Found(there(store, object))
            }
            Call::Create { value } => write(store, object, Expectation::Absent, value).await,
            Call::Put { value } => write(store, object, Expectation::Any, value).await,
            Call::Replace { expected, value } => write(store, object, at(expected), value).await,
            Call::Delete { expected } => commit(store, || Change::delete(key(object), at(expected))).await,
        }
    }

    /// Whether this is a call that can go wrong in this way, such that it must show.
    fn may_plant(&self, wrong: Wrong, object: u64, call: Call) -> bool {
        let there = there(&self.stores[0], object);
        let mut notes = self.notes();
        let versions = notes.versions.get(&object).cloned().unwrap_or_default();
        let alone = notes.in_flight[&object] == 1;
        let matches_now = |expected: u64| there.is_some_and(|version| version.revision == expected);
        let has_old = versions.len() >= 2 && versions[versions.len() - 2].1.is_some();
        let fits = match (wrong, call) {
            (Wrong::StaleRead | Wrong::TornRead, Call::Get) => has_old && there.is_some(),
            (Wrong::PhantomRead, Call::Get) => true,
            (Wrong::AbsentRead, Call::Get) => there.is_some(),
            (
                Wrong::LostUpdate
                | Wrong::DoubleApply
                | Wrong::RefusedButDone
                | Wrong::FalseMissing
                | Wrong::RepeatedRevision
                | Wrong::OldRevision,
                Call::Replace { expected, .. },
            ) => matches_now(expected) && notes.versions.len() > 1,
            (Wrong::FalseConflict, Call::Replace { expected, .. }) => matches_now(expected) && has_old,
            (Wrong::BlindReplace, Call::Replace { expected, .. }) => there.is_some() && !matches_now(expected),
            (Wrong::LostDelete | Wrong::Resurrected, Call::Delete { expected }) => matches_now(expected),
            (Wrong::CreateOver, Call::Create { .. }) => there.is_some(),
            (Wrong::FalseExists, Call::Create { .. }) => there.is_none() && has_old,
            _ => false,
        };
        let plants = !notes.planted && fits && alone && notes.rng.random();
        notes.planted |= plants;
        plants
    }

    async fn wrongly(&self, wrong: Wrong, object: u64, call: Call) -> Answer {
        let versions = self.notes().versions.get(&object).cloned().unwrap_or_default();
        let store = &self.stores[0];
        let there = there(store, object);
        let (old_revision, old_value) = versions.iter().rev().nth(1).copied().unwrap_or_default();
        let old = Version { revision: old_revision, value: old_value.unwrap_or_default() };
        match (wrong, call, there) {
            (Wrong::StaleRead, ..) => Answer::Found(Some(old)),
            (Wrong::PhantomRead, ..) => Answer::Found(Some(Version { revision: 1, value: u64::MAX })),
            (Wrong::TornRead, _, Some(now)) => Answer::Found(Some(Version { value: old.value, ..now })),
            (Wrong::AbsentRead, ..) => Answer::Found(None),
            (Wrong::FalseConflict, ..) => Answer::Conflict { actual: old.revision },
            (Wrong::FalseExists, ..) => Answer::Exists { actual: old.revision },
            (Wrong::FalseMissing, ..) => Answer::Missing,
            // The revision is a real one, of a write elsewhere.
            (Wrong::LostUpdate | Wrong::LostDelete, ..) => write(store, u64::MAX, Expectation::Any, 0).await,
            (Wrong::DoubleApply, Call::Replace { value, .. }, _) => {
                let answer = self.rightly(store, object, call).await;
                write(store, object, Expectation::Any, value).await;
                answer
            }
            (Wrong::RefusedButDone, Call::Replace { expected, .. }, _) => {
                self.rightly(store, object, call).await;
                Answer::Conflict { actual: expected + 1 }
            }
            (Wrong::BlindReplace, Call::Replace { value, .. }, Some(now))
            | (Wrong::CreateOver, Call::Create { value }, Some(now)) => {
                write(store, object, at(now.revision), value).await
            }
            (Wrong::Resurrected, _, Some(now)) => {
                let answer = self.rightly(store, object, call).await;
                write(store, object, Expectation::Any, now.value).await;
                answer
            }
            (Wrong::RepeatedRevision | Wrong::OldRevision, ..) => {
                let answer = self.rightly(store, object, call).await;
                let notes = self.notes();
                let other = notes.versions.iter().find(|(other, _)| **other != object).expect("checked before").1[0].0;
                match (answer, wrong) {
                    (Answer::Done { .. }, Wrong::RepeatedRevision) => Answer::Done { revision: other },
                    (Answer::Done { .. }, _) => Answer::Done { revision: 0 },
                    (answer, _) => answer,
                }
            }
            (wrong, call, there) => panic!("{wrong:?} does not fit {call:?} of {there:?}"),
        }
    }
}

impl Notes {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// What a server shows of an object.
fn there(store: &Store, object: u64) -> Option<Version> {
    let key = key(object);
    let found = store.snapshot().get(key.resource(), key.namespace(), key.name())?;
    let value = value_of(found.json()).parse().expect("a number");
    Some(Version { revision: found.revision().get(), value })
}

async fn write(store: &Store, object: u64, expectation: Expectation, value: u64) -> Answer {
    commit(store, || put(&key(object), expectation, &value.to_string())).await
}

/// Commits a change. What was not done because the log can't be reached is tried again; that nobody knows is no answer.
async fn commit(store: &Store, change: impl Fn() -> Change) -> Answer {
    loop {
        return match store.commit(Transaction::of(change())).await {
            Ok(committed) => Answer::Done { revision: committed.revision.get() },
            Err(CommitError::Conflict { actual, .. }) => Answer::Conflict { actual: actual.revision().get() },
            Err(CommitError::Exists { actual, .. }) => Answer::Exists { actual: actual.revision().get() },
            Err(CommitError::Missing { .. }) => Answer::Missing,
            Err(CommitError::Unavailable(_)) => continue,
            Err(error) => panic!("{error}"),
        };
    }
}

fn at(revision: u64) -> Expectation {
    Expectation::Unchanged(setpoint_api::Revision::new(revision))
}

fn key(object: u64) -> Key {
    pod("red", &format!("o{object}"))
}
