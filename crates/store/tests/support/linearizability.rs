//! Whether what clients saw can be explained by operations that each happened at one moment between call and return.
//!
//! The search is that of Wing and Gong with Lowe's memory of states already tried, for each object alone: objects don't depend on
//! each other. Over all objects, revisions must follow the order of calls and returns.

use std::collections::{BTreeMap, HashSet};

/// One version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub revision: u64,
    /// Tells each write from all others.
    pub value: u64,
}

/// What a client asked of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Get,
    Create { value: u64 },
    Replace { expected: u64, value: u64 },
    Put { value: u64 },
    Delete { expected: u64 },
}

/// What it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Found(Option<Version>),
    Done { revision: u64 },
    Conflict { actual: u64 },
    Exists { actual: u64 },
    Missing,
}

/// A call with its answer and the moments of both.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub object: u64,
    pub call: Call,
    pub answer: Answer,
    pub called: u64,
    pub returned: u64,
}

/// Why a history can't be explained.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two writes have one revision.
    Repeated { revision: u64 },
    /// A write that began after another had returned has an older revision.
    OutOfOrder { earlier: u64, later: u64 },
    /// No order of its operations explains what was seen of this object.
    Unexplained { object: u64 },
}

/// Checks a whole history.
pub fn check(history: &[Operation]) -> Result<(), Violation> {
    check_revisions(history)?;
    let mut objects: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        objects.entry(operation.object).or_default().push(*operation);
    }
    for (object, operations) in objects {
        if !Search::new(&operations).explain() {
            return Err(Violation::Unexplained { object });
        }
    }
    Ok(())
}

/// Revisions of writes are distinct, and follow the order in time where there is one.
fn check_revisions(history: &[Operation]) -> Result<(), Violation> {
    let mut writes: Vec<(u64, u64, u64)> = history
        .iter()
        .filter_map(|operation| match operation.answer {
            Answer::Done { revision } => Some((revision, operation.called, operation.returned)),
            _ => None,
        })
        .collect();
    writes.sort_unstable();
    if let Some(pair) = writes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Violation::Repeated { revision: pair[0].0 });
    }
    let mut earliest_return = (u64::MAX, 0);
    for (revision, called, returned) in writes.into_iter().rev() {
        if earliest_return.0 < called {
            return Err(Violation::OutOfOrder { earlier: earliest_return.1, later: revision });
        }
        earliest_return = earliest_return.min((returned, revision));
    }
    Ok(())
}

/// An object as the model has it: what is there, and the newest revision it ever had.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Model {
    there: Option<Version>,
    newest: u64,
}

impl Model {
    /// The state after the operation, if its answer is right in this state.
    fn apply(self, call: Call, answer: Answer) -> Option<Model> {
        let is_at = |revision: u64| self.there.is_some_and(|version| version.revision == revision);
        match (call, answer) {
            (Call::Get, Answer::Found(version)) => (version == self.there).then_some(self),
            (Call::Create { value }, Answer::Done { revision }) if self.there.is_none() => self.write(revision, value),
            (Call::Create { .. }, Answer::Exists { actual }) => is_at(actual).then_some(self),
            (Call::Put { value }, Answer::Done { revision }) => self.write(revision, value),
            (Call::Replace { expected, value }, Answer::Done { revision }) if is_at(expected) => {
                self.write(revision, value)
            }
            (Call::Delete { expected }, Answer::Done { revision }) if is_at(expected) && revision > self.newest => {
                Some(Model { there: None, newest: revision })
            }
            (Call::Replace { expected, .. } | Call::Delete { expected }, Answer::Conflict { actual }) => {
                (is_at(actual) && actual != expected).then_some(self)
            }
            (Call::Replace { .. } | Call::Delete { .. }, Answer::Missing) => self.there.is_none().then_some(self),
            _ => None,
        }
    }

    fn write(self, revision: u64, value: u64) -> Option<Model> {
        (revision > self.newest).then_some(Model { there: Some(Version { revision, value }), newest: revision })
    }
}

/// One side of an operation in the list of moments.
#[derive(Clone, Copy)]
struct Entry {
    operation: usize,
    /// Where the return is, for a call.
    matching: Option<usize>,
    previous: usize,
    next: usize,
}

/// The search for an order. Entry 0 is the head of the list.
struct Search<'a> {
    operations: &'a [Operation],
    entries: Vec<Entry>,
    taken: Vec<u64>,
    tried: HashSet<(Vec<u64>, Model)>,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation]) -> Search<'a> {
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            moments.push((operation.called, false, index));
            moments.push((operation.returned, true, index));
        }
        moments.sort_unstable();
        let mut returns = vec![0; operations.len()];
        let last = moments.len();
        let mut entries = vec![Entry { operation: usize::MAX, matching: None, previous: 0, next: 1 }];
        for (at, (_, is_return, operation)) in (1..).zip(&moments) {
            if *is_return {
                returns[*operation] = at;
            }
            let next = if at == last { 0 } else { at + 1 };
            entries.push(Entry { operation: *operation, matching: None, previous: at - 1, next });
        }
        for (entry, (_, is_return, operation)) in entries.iter_mut().skip(1).zip(&moments) {
            entry.matching = (!is_return).then(|| returns[*operation]);
        }
        if moments.is_empty() {
            entries[0].next = 0;
        }
        Search { operations, entries, taken: vec![0; operations.len().div_ceil(64)], tried: HashSet::new() }
    }

    /// Takes operations in some order until none is left; goes back where it gets stuck.
    fn explain(mut self) -> bool {
        let mut model = Model::default();
        let mut path: Vec<(usize, Model)> = Vec::new();
        let mut at = self.entries[0].next;
        while self.entries[0].next != 0 {
            let entry = self.entries[at];
            match entry.matching {
                Some(_) => match self.try_next(&entry, model) {
                    Some(next) => {
                        path.push((at, model));
                        model = next;
                        self.lift(at);
                        at = self.entries[0].next;
                    }
                    None => at = entry.next,
                },
                // A return whose call was not taken: something taken before was wrong.
                None => {
                    let Some((call, before)) = path.pop() else { return false };
                    self.put_back(call);
                    model = before;
                    at = self.entries[call].next;
                }
            }
        }
        true
    }

    /// The state after taking this operation, if its answer is right and this has not been tried before.
    fn try_next(&mut self, entry: &Entry, model: Model) -> Option<Model> {
        let operation = &self.operations[entry.operation];
        let next = model.apply(operation.call, operation.answer)?;
        let mut taken = self.taken.clone();
        taken[entry.operation / 64] |= 1 << (entry.operation % 64);
        if !self.tried.insert((taken.clone(), next)) {
            return None;
        }
        self.taken = taken;
        Some(next)
    }

    fn lift(&mut self, call: usize) {
        let matching = self.entries[call].matching.expect("a call");
        for at in [call, matching] {
            let Entry { previous, next, .. } = self.entries[at];
            self.entries[previous].next = next;
            self.entries[next].previous = previous;
        }
    }

    fn put_back(&mut self, call: usize) {
        let matching = self.entries[call].matching.expect("a call");
        for at in [matching, call] {
            let Entry { previous, next, .. } = self.entries[at];
            self.entries[previous].next = at;
            self.entries[next].previous = at;
        }
        let operation = self.entries[call].operation;
        self.taken[operation / 64] &= !(1 << (operation % 64));
    }
}
