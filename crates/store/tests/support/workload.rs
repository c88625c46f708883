//! Several writers at once doing what writers do, and a note of each answer and of when it came.

use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::Revision;
use setpoint_store::{
    Change, CommitError, Committed, Durability, Expectation, Key, MemoryDisk, Object, Store, Transaction,
};

use super::truth::Truth;
use super::{ByNode, NAMESPACES, json, node, pod, rest};

/// How much a run does.
#[derive(Clone, Copy)]
pub struct Load {
    pub seed: u64,
    pub writers: u64,
    pub commits_each: u64,
    /// Of ten transactions, so many need no sync of their own.
    pub relaxed_in_ten: u32,
    /// Bytes of most objects.
    pub value_bytes: usize,
    /// Writers pause at times, long enough for the log to note that it is quiet.
    pub pauses: bool,
}

impl Load {
    pub fn new(seed: u64) -> Load {
        Load { seed, writers: 4, commits_each: 20, relaxed_in_ten: 3, value_bytes: 10, pauses: true }
    }
}

/// A transaction that was acknowledged.
pub struct Acknowledged {
    pub revision: Revision,
    pub durability: Durability,
    pub changes: Vec<(Key, Option<Arc<Object>>)>,
    /// Changing operations of the disk when the answer came.
    pub at: u64,
}

/// Everything that the writers were told.
#[derive(Default)]
pub struct Answers {
    pub acknowledged: Vec<Acknowledged>,
    pub full: usize,
    pub unavailable: usize,
    pub stopped: Vec<String>,
}

impl Answers {
    pub fn note(
        &mut self,
        answer: Result<Committed, CommitError>,
        durability: Durability,
        keys: Vec<(Key, bool)>,
        at: u64,
    ) {
        match answer {
            Ok(Committed { revision, objects }) => {
                let changes = keys.into_iter().zip(objects).map(|((key, put), object)| (key, object.filter(|_| put)));
                self.acknowledged.push(Acknowledged { revision, durability, changes: changes.collect(), at });
            }
            Err(CommitError::Full(_)) => self.full += 1,
            Err(CommitError::Unavailable(_)) => self.unavailable += 1,
            Err(CommitError::Stopped(why)) => self.stopped.push(why),
            Err(CommitError::Conflict { .. } | CommitError::Exists { .. } | CommitError::Missing { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds all acknowledged transactions to the truth.
    pub fn tell(&self, truth: &mut Truth) {
        let mut sorted: Vec<_> = self.acknowledged.iter().collect();
        sorted.sort_by_key(|acknowledged| acknowledged.revision);
        for acknowledged in sorted {
            truth.commit(acknowledged.revision, acknowledged.changes.clone());
        }
    }

    /// The newest revision that was acknowledged as durable when the disk had done so many operations.
    pub fn durable_by(&self, operations: u64) -> Revision {
        self.newest(|a| a.at <= operations && a.durability == Durability::Synced)
    }

    /// The newest revision that anyone could see by then.
    pub fn visible_by(&self, operations: u64) -> Revision {
        self.newest(|a| a.at <= operations)
    }

    fn newest(&self, which: impl Fn(&Acknowledged) -> bool) -> Revision {
        self.acknowledged.iter().filter(|a| which(a)).map(|a| a.revision).max().unwrap_or_default()
    }
}

/// Runs the writers to their end.
pub async fn work(store: &Store, disk: &MemoryDisk, load: Load) -> Answers {
    let answers = Arc::new(Mutex::new(Answers::default()));
    let writers = (0..load.writers).map(|writer| {
        let (store, disk, answers) = (store.clone(), disk.clone(), Arc::clone(&answers));
        tokio::spawn(async move { write(store, disk, load, writer, answers).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer");
    }
    rest().await;
    std::mem::take(&mut *answers.lock().expect("no writer panicked"))
}

async fn write(store: Store, disk: MemoryDisk, load: Load, writer: u64, answers: Arc<Mutex<Answers>>) {
    let mut rng = StdRng::seed_from_u64(load.seed * 1000 + writer);
    for number in 0..load.commits_each {
        let relaxed = rng.random_range(0..10) < load.relaxed_in_ten;
        let durability = if relaxed { Durability::Relaxed } else { Durability::Synced };
        let (transaction, keys) =
            transaction(&store, &mut rng, &format!("{}-{writer}-{number}", load.seed), load.value_bytes);
        let answer = store.commit(transaction.durability(durability)).await;
        answers.lock().expect("no writer panicked").note(answer, durability, keys, disk.operations());
        if load.pauses && rng.random_range(0..12) == 0 {
            tokio::time::advance(std::time::Duration::from_millis(150)).await;
        }
    }
}

/// One to four changes of distinct keys, and for each key whether it is put.
pub fn transaction(store: &Store, rng: &mut StdRng, id: &str, value_bytes: usize) -> (Transaction, Vec<(Key, bool)>) {
    let mut transaction = Transaction::default();
    let mut keys: Vec<(Key, bool)> = Vec::new();
    let count = if rng.random_range(0..4) == 0 { rng.random_range(2..=4) } else { 1 };
    while keys.len() < count {
        let key = any_key(rng);
        if keys.iter().any(|(taken, _)| *taken == key) {
            continue;
        }
        let there = store.snapshot().get(key.resource(), key.namespace(), key.name());
        let expectation = match (&there, rng.random_range(0..4)) {
            (_, 0) => Expectation::Any,
            (Some(object), _) => Expectation::Unchanged(object.revision()),
            (None, _) => Expectation::Absent,
        };
        let delete = there.is_some() && rng.random_range(0..4) == 0;
        let change = if delete {
            Change::delete(key.clone(), expectation)
        } else {
            let padding = "x".repeat(if rng.random_range(0..8) == 0 { rng.random_range(0..1200) } else { value_bytes });
            let json = json(
                &key,
                ["red", "blue"][rng.random_range(0..2)],
                ["n1", "n2"][rng.random_range(0..2)],
                &format!("{id}-{padding}"),
            );
            Change::put(key.clone(), expectation, json, &ByNode).expect("an object")
        };
        transaction = transaction.and(change);
        keys.push((key, !delete));
    }
    (transaction, keys)
}

fn any_key(rng: &mut StdRng) -> Key {
    let name = format!("o{}", rng.random_range(0..5));
    match rng.random_range(0..4) {
        3 => node(&name),
        namespace => pod(NAMESPACES[namespace], &name),
    }
}
