//! Random operations on a store agree with an obvious map.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::TestRunner;
use proptest::{collection, option, sample};
use setpoint_api::Revision;
use setpoint_store::{
    Change, CommitError, Durability, EtcdOptions, Expectation, Key, MemoryDisk, Options, Query, Snapshot, Store,
    Transaction,
};
use support::etcd::{self, Cluster};
use support::watch_checker::Interest;
use support::{
    ByNode, Dump, NAMESPACES, dump, dump_of, json, node, nodes, open, pod, pods, run, seeds, selection, small, text,
};

#[derive(Clone, Debug)]
enum Step {
    Commit { changes: Vec<(usize, Action, Expect)>, relaxed: bool },
    List { interest: Wanted, limit: Option<usize>, meanwhile: Option<usize> },
    At { back: u64 },
    Compact { back: u64 },
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Put { color: usize, node: usize },
    Delete,
}

/// What a change expects, as seen from the present.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Absent,
    Present,
    Other,
    Any,
}

type Wanted = (Option<usize>, Option<usize>, Option<usize>);

const COLORS: [&str; 3] = ["red", "blue", "green"];
const HOSTS: [&str; 3] = ["n1", "n2", ""];

fn keys() -> Vec<Key> {
    let names = ["a", "b", "a-b", "ab"];
    let namespaced = NAMESPACES.iter().flat_map(|namespace| names.iter().map(|name| pod(namespace, name)));
    namespaced.chain(names.iter().map(|name| node(name))).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        3 => (0..COLORS.len(), 0..HOSTS.len()).prop_map(|(color, node)| Action::Put { color, node }),
        1 => Just(Action::Delete),
    ];
    let expect =
        sample::select(vec![Expect::Absent, Expect::Present, Expect::Present, Expect::Any, Expect::Any, Expect::Other]);
    let commit = (collection::vec((0..keys().len(), action, expect), 0..4), any::<bool>())
        .prop_map(|(changes, relaxed)| Step::Commit { changes, relaxed });
    let wanted = (option::of(0..NAMESPACES.len()), option::of(0..COLORS.len()), option::weighted(0.3, 0..HOSTS.len()));
    let list = (wanted, option::of(1..6usize), option::of(0..keys().len()))
        .prop_map(|(interest, limit, meanwhile)| Step::List { interest, limit, meanwhile });
    let step = prop_oneof![
        8 => commit,
        3 => list,
        2 => (0..20u64).prop_map(|back| Step::At { back }),
        1 => (0..20u64).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
    ];
    collection::vec(step, 1..60)
}

/// The obvious map, with its past.
#[derive(Default)]
struct Model {
    state: Dump,
    revision: u64,
    past: BTreeMap<u64, Dump>,
    /// From here on, every revision can be read.
    kept_from: u64,
    /// Before here, none can.
    compacted: u64,
}

impl Model {
    /// The first expectation that does not hold, as an error's name and key.
    fn refusal(&self, changes: &[(Key, Expectation)]) -> Option<(&'static str, Key)> {
        changes.iter().find_map(|(key, expectation)| {
            let why = match (expectation, self.state.get(key)) {
                (Expectation::Absent, Some(_)) => "exists",
                (Expectation::Unchanged(_), None) => "missing",
                (Expectation::Unchanged(expected), Some((revision, _))) if expected != revision => "conflict",
                _ => return None,
            };
            Some((why, key.clone()))
        })
    }

    fn commit(&mut self, revision: Revision, changes: Vec<(Key, Option<Vec<u8>>)>) {
        assert!(revision.get() > self.revision, "{revision} after {}", self.revision);
        self.revision = revision.get();
        for (key, json) in changes {
            match json {
                Some(json) => {
                    let json = String::from_utf8(json).expect("JSON is UTF-8");
                    let version = format!(r#"{{"metadata":{{"resourceVersion":"{}","#, self.revision);
                    let json = json.replacen(r#"{"metadata":{"#, &version, 1);
                    self.state.insert(key, (Revision::new(self.revision), json))
                }
                None => self.state.remove(&key),
            };
        }
        self.past.insert(self.revision, self.state.clone());
    }

    fn at(&self, revision: u64) -> Dump {
        self.past.range(..=revision).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }
}

/// Where a store keeps what it is given.
enum Place {
    Disk(MemoryDisk),
    Etcd(Box<EtcdOptions>),
}

impl Place {
    /// Opens the store, and says how many objects are in it.
    async fn open(&self) -> Store {
        match self {
            Place::Disk(disk) => {
                let (store, report) = open(disk.clone(), options()).await.expect("it opens");
                assert!(report.clean);
                assert_eq!(report.objects, store.snapshot().counts().values().sum::<usize>());
                store
            }
            Place::Etcd(options) => etcd::open((**options).clone()).await,
        }
    }
}

struct World {
    place: Place,
    store: Store,
    model: Model,
    value: u64,
}

impl World {
    async fn new(place: Place) -> World {
        let store = place.open().await;
        let revision = store.snapshot().revision().get();
        let model = Model { revision, kept_from: revision, ..Model::default() };
        World { place, store, model, value: 0 }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Commit { changes, relaxed } => self.commit(changes, relaxed).await,
            Step::List { interest, limit, meanwhile } => self.list(interest, limit, meanwhile).await,
            Step::At { back } => self.check_at(self.model.revision.saturating_sub(back)),
            Step::Compact { back } => {
                let revision = self.model.revision.saturating_sub(back);
                self.store.compact(Revision::new(revision));
                self.model.compacted = self.model.compacted.max(revision);
                self.model.kept_from = self.model.kept_from.max(revision);
                let past = self.model.revision.saturating_sub(20)..=self.model.revision;
                past.for_each(|revision| self.check_at(revision));
            }
            Step::Reopen => {
                self.store.close().await;
                self.store = self.place.open().await;
                self.model.kept_from = self.model.revision;
                self.model.compacted = 0;
            }
        }
        self.check();
    }

    async fn commit(&mut self, wanted: Vec<(usize, Action, Expect)>, relaxed: bool) {
        let all = keys();
        let mut transaction = Transaction::default();
        let (mut expected, mut changes) = (Vec::new(), Vec::new());
        for (index, action, expect) in wanted {
            let key = all[index].clone();
            let present = self.model.state.get(&key).map(|(revision, _)| *revision);
            let expectation = match expect {
                Expect::Absent => Expectation::Absent,
                Expect::Present => Expectation::Unchanged(present.unwrap_or(Revision::new(1))),
                Expect::Other => Expectation::Unchanged(Revision::new(self.model.revision + 7)),
                Expect::Any => Expectation::Any,
            };
            self.value += 1;
            let json = match action {
                Action::Put { color, node } => Some(json(&key, COLORS[color], HOSTS[node], &self.value.to_string())),
                Action::Delete => None,
            };
            transaction = transaction.and(match &json {
                Some(json) => Change::put(key.clone(), expectation, json.clone(), &ByNode).expect("an object"),
                None => Change::delete(key.clone(), expectation),
            });
            expected.push((key.clone(), expectation));
            changes.push((key, json));
        }
        let durability = if relaxed { Durability::Relaxed } else { Durability::Synced };
        let answer = self.store.commit(transaction.durability(durability)).await;
        self.compare(answer, &expected, changes);
    }

    fn compare(
        &mut self,
        answer: Result<setpoint_store::Committed, CommitError>,
        expected: &[(Key, Expectation)],
        changes: Vec<(Key, Option<Vec<u8>>)>,
    ) {
        let twice = (1..expected.len()).any(|at| expected[..at].iter().any(|(key, _)| *key == expected[at].0));
        if expected.is_empty() || twice {
            assert!(matches!(answer, Err(CommitError::Malformed(_))), "{answer:?}");
            return;
        }
        let refusal = match &answer {
            Ok(_) => None,
            Err(CommitError::Exists { key, actual }) => {
                assert_eq!(self.model.state[key].1, text(actual));
                Some(("exists", key.clone()))
            }
            Err(CommitError::Conflict { key, actual, .. }) => {
                assert_eq!(self.model.state[key].1, text(actual));
                Some(("conflict", key.clone()))
            }
            Err(CommitError::Missing { key }) => Some(("missing", key.clone())),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refusal, self.model.refusal(expected));
        let Ok(committed) = answer else { return };
        let removed: Vec<_> = changes.iter().map(|(key, _)| self.model.state.get(key).cloned()).collect();
        if let Place::Disk(_) = self.place {
            assert_eq!(committed.revision.get(), self.model.revision + 1);
        }
        self.model.commit(committed.revision, changes.clone());
        for (((key, json), object), removed) in changes.iter().zip(&committed.objects).zip(removed) {
            let expected = if json.is_some() { self.model.state.get(key).cloned() } else { removed };
            assert_eq!(object.as_ref().map(|object| (object.revision(), text(object))), expected, "{key}");
        }
    }

    /// Lists in pages from one state, while something else is written between the pages.
    async fn list(&mut self, wanted: Wanted, limit: Option<usize>, meanwhile: Option<usize>) {
        let (namespace, color, host) = wanted;
        let interest = Interest {
            namespace: namespace.map(|index| NAMESPACES[index]),
            color: color.map(|index| COLORS[index]),
            node: host.map(|index| HOSTS[index]),
        };
        let snapshot = self.store.snapshot();
        let revision = snapshot.revision();
        self.store.keep(&snapshot);
        let before = self.model.state.clone();
        let mut listed = self.pages(snapshot, &interest, Some(limit.unwrap_or(usize::MAX)), None);
        if let Some(index) = meanwhile {
            self.commit(vec![(index, Action::Put { color: 0, node: 0 }, Expect::Any)], false).await;
        }
        while let Some(after) = listed.1.take() {
            let kept = self.store.snapshot_at(&pods(), revision).expect("a kept root");
            let (items, next) = self.pages(kept, &interest, limit, Some(&after));
            assert!(!items.is_empty() || next.is_none(), "an empty page that is not the last");
            assert!(listed.0.len() < keys().len(), "more items than there are objects");
            listed.0.extend(items);
            listed.1 = next;
        }
        let expected: Vec<_> = before
            .iter()
            .filter(|(key, (_, json))| interest.selects(key, json))
            .map(|(_, (_, json))| json.clone())
            .collect();
        assert_eq!(listed.0, expected, "{interest:?} in pages of {limit:?}");
    }

    fn pages(
        &self,
        snapshot: Snapshot,
        interest: &Interest,
        limit: Option<usize>,
        after: Option<&str>,
    ) -> (Vec<String>, Option<String>) {
        let label = interest.color.map(|color| format!("color={color}")).unwrap_or_default();
        let field = interest.node.map(|node| format!("spec.node={node}")).unwrap_or_default();
        let selection = selection(&label, &field);
        let query = Query { resource: &pods(), namespace: interest.namespace, selection: &selection, after, limit };
        let page = snapshot.list(&query);
        assert!(page.items.len() <= limit.unwrap_or(usize::MAX));
        (page.items.iter().map(|object| text(object)).collect(), page.next.map(|next| next.to_string()))
    }

    /// An earlier revision is as it was, or told to be too old.
    fn check_at(&self, revision: u64) {
        for resource in [pods(), nodes()] {
            match self.store.snapshot_at(&resource, Revision::new(revision)) {
                Ok(snapshot) => {
                    assert!(revision >= self.model.compacted, "{revision} was compacted");
                    let mut expected = self.model.at(revision);
                    expected.retain(|key, _| *key.resource() == resource);
                    assert_eq!(dump_of(&snapshot, &resource), expected, "{resource} at {revision}");
                    assert_eq!(snapshot.count(&resource, None), expected.len());
                }
                Err(expired) => {
                    assert!(revision < self.model.kept_from, "{revision} should be kept: {expired:?}");
                    assert!(expired.oldest.get() > revision);
                }
            }
        }
    }

    /// The present is that of the map: every object, and every count.
    fn check(&self) {
        let snapshot = self.store.snapshot();
        assert_eq!(snapshot.revision().get(), self.model.revision);
        assert_eq!(dump(&snapshot), self.model.state);
        for key in keys() {
            let found = snapshot.get(key.resource(), key.namespace(), key.name());
            let expected = self.model.state.get(&key).cloned();
            assert_eq!(found.map(|object| (object.revision(), text(&object))), expected, "{key}");
        }
        for namespace in NAMESPACES {
            let expected = self.model.state.keys().filter(|key| key.namespace() == Some(namespace)).count();
            assert_eq!(snapshot.count(&pods(), Some(namespace)), expected);
        }
        let counted: usize = snapshot.counts().values().sum();
        assert_eq!(counted, self.model.state.len());
    }
}

fn options() -> Options {
    Options { checkpoint_bytes: 8192, ..small() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seeds(64).end as u32, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_a_map_with_a_past(steps in steps()) {
        run(async {
            let mut world = World::new(Place::Disk(MemoryDisk::new())).await;
            for step in steps {
                world.step(step).await;
            }
        });
    }
}

#[test]
fn a_store_in_etcd_is_a_map_with_a_past() {
    is_a_map_with_a_past(&Cluster::start(1));
}

#[test]
fn a_store_in_an_old_etcd_is_a_map_with_a_past() {
    match Cluster::start_old(1) {
        Some(cluster) => is_a_map_with_a_past(&cluster),
        None => eprintln!("left out: there is no old etcd on this machine; `xtask/tools/etcd.sh` fetches one"),
    }
}

fn is_a_map_with_a_past(cluster: &Cluster) {
    let config = ProptestConfig { cases: seeds(32).end as u32, ..ProptestConfig::default() };
    let tried = TestRunner::new(config).run(&steps(), |steps| {
        etcd::run_real(async {
            let mut world = World::new(Place::Etcd(Box::new(cluster.options(&etcd::prefix(), 0)))).await;
            for step in steps {
                world.step(step).await;
            }
            world.store.close().await;
        });
        Ok(())
    });
    tried.unwrap_or_else(|failed| panic!("{failed}"));
}
