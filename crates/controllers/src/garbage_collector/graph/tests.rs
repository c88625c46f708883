//! Facts about the graph: what is looked at after each change.

use std::sync::Arc;

use super::{Effect, Graph, Reference, Sighting};
use crate::garbage_collector::identity::{Identity, TypeName};
use crate::garbage_collector::node::Facts;

/// Objects are called `kind/namespace/name`, with that as their uid; `kind//name` has no namespace.
#[derive(Default)]
struct Bench {
    graph: Graph,
    epoch: u32,
}

/// `kind/namespace/name`, and for references after `=` the uid that is really meant.
fn parts(text: &str) -> (&str, &str, &str, &str) {
    let (place, uid) = text.split_once('=').unwrap_or((text, text));
    let mut words = place.split('/');
    let mut next = || words.next().unwrap();
    (next(), next(), next(), uid)
}

impl Bench {
    fn kind(&mut self, kind: &str) -> Arc<TypeName> {
        self.graph.kind("v1", kind)
    }

    /// An object with owners; those with `!` block.
    fn see(&mut self, object: &str, owners: &[&str], facts: Facts) -> Vec<String> {
        let (kind, namespace, name, uid) = parts(object);
        let reference = |text: &&str| {
            let blocks = text.starts_with('!');
            let (kind, _, name, uid) = parts(text.trim_start_matches('!'));
            Reference { api_version: "v1".into(), kind: kind.into(), name: name.into(), uid: uid.into(), blocks }
        };
        let sighting = Sighting {
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()).map(Into::into),
            name: name.into(),
            uid: uid.into(),
            version: 1,
            facts,
            owners: owners.iter().map(reference).collect(),
        };
        let (kind, epoch) = (self.kind(kind), self.epoch);
        said(|effects| self.graph.observe(&kind, epoch, sighting, effects))
    }

    fn add(&mut self, object: &str, owners: &[&str]) -> Vec<String> {
        self.see(object, owners, Facts::default())
    }

    fn gone(&mut self, object: &str) -> Vec<String> {
        let uid = parts(object).3.into();
        said(|effects| self.graph.gone(&uid, effects))
    }

    fn not_found(&mut self, object: &str) -> Vec<String> {
        let (kind, namespace, name, uid) = parts(object);
        let reference = Reference {
            api_version: "v1".into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            blocks: false,
        };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let identity = self.graph.identity_of(&reference, namespace);
        said(|effects| self.graph.not_found(identity, namespace.is_some(), effects))
    }

    fn identity(&self, uid: &str) -> Option<Identity> {
        self.graph.item(&uid.into()).map(|item| item.identity)
    }
}

fn said(change: impl FnOnce(&mut Vec<Effect>)) -> Vec<String> {
    let mut effects = Vec::new();
    change(&mut effects);
    let mut words: Vec<String> = effects
        .into_iter()
        .map(|effect| match effect {
            Effect::Judge(uid) => format!("judge {uid}"),
            Effect::JudgeLater(uid) => format!("later {uid}"),
            Effect::Orphan(uid) => format!("orphan {uid}"),
            Effect::InvalidNamespace { dependent, owner } => format!("{} not in {}", owner.name, dependent.namespace()),
        })
        .collect();
    words.sort();
    words
}

const NOTHING: [&str; 0] = [];
const WAITS: Facts = Facts { deleting: true, orphans: false, waits: true };

#[test]
fn an_unknown_owner_is_looked_for_and_a_known_one_is_not() {
    let mut bench = Bench::default();
    assert_eq!(bench.add("Pod/a/web", &["Set/a/set"]), ["judge Set/a/set"]);
    assert_eq!(bench.add("Pod/a/web2", &["Set/a/set"]), NOTHING);
    assert_eq!(bench.add("Set/a/set", &[]), NOTHING);
    assert_eq!(bench.add("Pod/a/web3", &["Set/a/set"]), NOTHING);
    assert_eq!(bench.gone("Set/a/set"), ["judge Pod/a/web", "judge Pod/a/web2", "judge Pod/a/web3"]);
    for pod in ["Pod/a/web", "Pod/a/web2", "Pod/a/web3"] {
        assert!(bench.graph.unowned(&pod.into()).is_some(), "its owner is known to be absent");
        assert_eq!(bench.gone(pod), NOTHING);
    }
    assert_eq!((bench.graph.len(), bench.graph.edges.len()), (0, 0), "nothing is left");
}

#[test]
fn an_owner_that_was_gone_is_looked_for_again_when_somebody_names_it() {
    let mut bench = Bench::default();
    bench.add("Set/a/set", &[]);
    bench.add("Pod/a/web", &["Set/a/set"]);
    bench.gone("Set/a/set");
    assert_eq!(bench.add("Pod/a/late", &["Set/a/set"]), ["judge Set/a/set"]);
    assert_eq!(bench.not_found("Set/a/set"), ["judge Pod/a/late", "judge Pod/a/web"]);
}

#[test]
fn who_waits_is_looked_at_when_one_it_waits_for_goes_or_lets_go() {
    let mut bench = Bench::default();
    bench.add("Set/a/set", &[]);
    bench.add("Pod/a/one", &["!Set/a/set"]);
    bench.add("Pod/a/two", &["!Set/a/set"]);
    bench.add("Pod/a/free", &["Set/a/set"]);
    let all = ["judge Pod/a/free", "judge Pod/a/one", "judge Pod/a/two", "judge Set/a/set"];
    assert_eq!(bench.see("Set/a/set", &[], WAITS), all);
    assert_eq!(bench.see("Set/a/set", &[], WAITS), NOTHING, "it began to wait only once");
    assert_eq!(bench.graph.blocking(&"Set/a/set".into()).len(), 2);
    assert_eq!(bench.gone("Pod/a/one"), ["judge Set/a/set"]);
    assert_eq!(bench.add("Pod/a/two", &["Set/a/set"]), ["judge Set/a/set"]);
    assert_eq!(bench.graph.blocking(&"Set/a/set".into()), []);
}

#[test]
fn dependents_are_let_go_once() {
    let mut bench = Bench::default();
    let orphans = Facts { deleting: true, orphans: true, waits: false };
    bench.add("Set/a/set", &[]);
    bench.add("Pod/a/web", &["Set/a/set"]);
    assert_eq!(bench.see("Set/a/set", &[], orphans), ["orphan Set/a/set"]);
    assert_eq!(bench.see("Set/a/set", &[], orphans), NOTHING);
    assert_eq!(bench.add("Pod/a/web", &[]), NOTHING);
    assert_eq!(bench.gone("Set/a/set"), NOTHING);
}

#[test]
fn an_owner_in_another_namespace_is_told_and_its_dependent_looked_at() {
    let mut bench = Bench::default();
    bench.add("Set/a/set", &[]);
    assert_eq!(bench.add("Pod/b/web", &["Set/a/set"]), ["judge Pod/b/web", "set not in b"]);
    let mut later = Bench::default();
    assert_eq!(later.add("Pod/b/web", &["Set/a/set"]), ["judge Set/a/set"], "nobody knows yet");
    assert_eq!(later.add("Set/a/set", &[]), ["judge Pod/b/web", "set not in b"]);
    let mut cluster = Bench::default();
    cluster.add("Role//role", &[]);
    assert_eq!(cluster.add("Pod/b/web", &["Role//role"]), NOTHING);
}

#[test]
fn one_wrong_dependent_does_not_speak_for_the_others() {
    let mut bench = Bench::default();
    assert_eq!(bench.add("Pod/a/wrong", &["Box/a/set=Set/a/set"]), ["judge Set/a/set"]);
    assert_eq!(bench.add("Pod/a/right", &["Set/a/set"]), ["judge Pod/a/right"]);
    // No such Box: whoever said so is looked at, and the owner is looked for as the other one calls it.
    assert_eq!(bench.not_found("Box/a/set=Set/a/set"), ["judge Pod/a/wrong", "later Set/a/set"]);
    assert_eq!(bench.identity("Set/a/set").map(|owner| owner.kind.kind.clone()), Some("Set".into()));
    assert_eq!(bench.add("Set/a/set", &[]), NOTHING);
    assert_eq!(bench.not_found("Box/a/set=Set/a/set"), ["judge Pod/a/wrong"], "the real one stays");
    assert!(bench.identity("Set/a/set").is_some());
    assert!(bench.graph.unowned(&"Pod/a/right".into()).is_none());
    assert!(bench.graph.unowned(&"Pod/a/wrong".into()).is_some());
}

#[test]
fn owners_of_the_whole_cluster_are_absent_everywhere_at_once() {
    let mut bench = Bench::default();
    bench.add("Pod/a/one", &["Role//role"]);
    bench.add("Pod/b/two", &["Role//role"]);
    // A virtual node stands in the namespace of whoever named it first, until its kind is known to have none.
    let owner = bench.identity("Role//role").unwrap();
    let effects = said(|effects| bench.graph.not_found(owner, false, effects));
    assert_eq!(effects, ["judge Pod/a/one", "judge Pod/b/two"]);
    assert!(bench.graph.unowned(&"Pod/b/two".into()).is_some());
}

#[test]
fn what_a_list_does_not_show_is_gone() {
    let mut bench = Bench::default();
    bench.add("Set/a/set", &[]);
    bench.add("Set/a/other", &[]);
    bench.add("Pod/a/web", &["Set/a/set"]);
    bench.epoch = 1;
    bench.add("Set/a/other", &[]);
    let kind = bench.kind("Set");
    assert_eq!(said(|effects| bench.graph.sweep(&kind, 1, effects)), ["judge Pod/a/web"]);
    assert_eq!(bench.graph.len(), 3, "the pod, the other, and the place of the one that the pod names");
}

#[test]
fn an_object_may_own_itself() {
    let mut bench = Bench::default();
    assert_eq!(bench.add("Pod/a/web", &["!Pod/a/web"]), NOTHING);
    assert_eq!(bench.see("Pod/a/web", &["!Pod/a/web"], WAITS), ["judge Pod/a/web"]);
    assert_eq!(bench.graph.blocking(&"Pod/a/web".into()), [], "nobody waits for himself");
    bench.gone("Pod/a/web");
    assert_eq!((bench.graph.len(), bench.graph.edges.len()), (0, 0));
}

#[test]
fn a_kind_that_is_gone_takes_nothing_with_it() {
    let mut bench = Bench::default();
    bench.add("Set/a/set", &["Role//role"]);
    bench.add("Set/a/lonely", &[]);
    bench.add("Pod/a/web", &["Set/a/set"]);
    let kind = bench.kind("Set");
    bench.graph.forget_kind(&kind);
    assert!(bench.identity("Set/a/lonely").is_none());
    assert!(!bench.graph.item(&"Set/a/set".into()).unwrap().is_observed);
    assert!(bench.graph.unowned(&"Pod/a/web".into()).is_none());
}
