//! Random owner graphs, compared with an obvious model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use setpoint_runtime::clock::Chance;
use setpoint_testkit::ControlPlane;

use super::COLLECTOR;
use crate::owned::{Objects, blocking, owner, with};
use crate::process::spawn;

/// Objects by number, each with the numbers of its owners; the owner of a number that is not there is made up.
type Model = BTreeMap<usize, BTreeSet<usize>>;

/// The number of an owner that never was.
const NOBODY: usize = 99;

const GRAPHS: usize = 1_000;
const OBJECTS_MAX: u64 = 7;

#[derive(Clone, Copy, Debug)]
enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// What must be left: a reference to somebody who is not there doesn't count, and who had references but none that counts goes.
fn collect(model: &mut Model) {
    loop {
        let there: BTreeSet<usize> = model.keys().copied().collect();
        let gone: Vec<usize> = model
            .iter()
            .filter(|(_, owners)| !owners.is_empty() && owners.is_disjoint(&there))
            .map(|(number, _)| *number)
            .collect();
        if gone.is_empty() {
            model.values_mut().for_each(|owners| owners.retain(|owner| there.contains(owner)));
            return;
        }
        gone.iter().for_each(|number| drop(model.remove(number)));
    }
}

fn delete(model: &mut Model, number: usize, policy: Policy) {
    if let Policy::Orphan = policy {
        model.values_mut().for_each(|owners| owners.retain(|owner| *owner != number));
    }
    model.remove(&number);
    collect(model);
}

fn plural(number: usize) -> &'static str {
    ["configmaps", "secrets"][number % 2]
}

/// One graph, in a namespace of its own.
struct Graph {
    namespace: String,
    chance: Chance,
    model: Model,
}

impl Graph {
    fn path(&self, number: usize) -> String {
        format!("/api/v1/namespaces/{}/{}", self.namespace, plural(number))
    }

    /// Makes the objects: owners first, then some references back, so that there are circles.
    async fn make(&mut self, objects: &Objects) {
        objects.make("/api/v1/namespaces", &self.namespace, &[]).await;
        let count = 2 + usize::try_from(self.chance.below(OBJECTS_MAX - 1)).unwrap();
        let mut made: Vec<Value> = Vec::new();
        for number in 0..count {
            let mut owners: BTreeSet<usize> = (0..number).filter(|_| self.chance.below(3) == 0).collect();
            if self.chance.below(8) == 0 {
                owners.insert(NOBODY);
            }
            let references: Vec<Value> = owners.iter().map(|owner| self.reference(&made, *owner)).collect();
            made.push(objects.make(&self.path(number), &number.to_string(), &references).await);
            self.model.insert(number, owners);
        }
        if self.chance.below(3) == 0 {
            let (from, to) = (self.any(count), self.any(count));
            if self.model.get_mut(&from).is_some_and(|owners| owners.insert(to)) {
                let owners = self.model[&from].clone();
                let references: Vec<Value> = owners.iter().map(|owner| self.reference(&made, *owner)).collect();
                let patch = json!({"metadata": {"ownerReferences": references}});
                objects.patch(&self.path(from), &from.to_string(), patch).await;
            }
        }
    }

    fn any(&self, count: usize) -> usize {
        usize::try_from(self.chance.below(count as u64)).unwrap()
    }

    fn reference(&self, made: &[Value], number: usize) -> Value {
        match made.get(number) {
            Some(object) if self.chance.below(2) == 0 => blocking(object),
            Some(object) => owner(object),
            None => with(owner(&made_up()), "uid", json!(format!("{:032x}", self.chance.bits()))),
        }
    }

    /// Deletes one of those that must be there.
    async fn delete_one(&mut self, objects: &Objects) {
        let there: Vec<usize> = self.model.keys().copied().collect();
        if there.is_empty() {
            return;
        }
        let number = there[self.any(there.len())];
        let (policy, how) = match self.chance.below(3) {
            0 => (Policy::Background, DeleteParams::background()),
            1 => (Policy::Foreground, DeleteParams::foreground()),
            _ => (Policy::Orphan, DeleteParams::orphan()),
        };
        objects.delete(&self.path(number), &number.to_string(), &how).await;
        delete(&mut self.model, number, policy);
    }

    fn check(&self, found: &BTreeMap<String, Model>) {
        let none = Model::new();
        let found = found.get(&self.namespace).unwrap_or(&none);
        assert_eq!(found, &self.model, "in {} (seed {})", self.namespace, self.chance.seed());
    }
}

fn made_up() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NOBODY.to_string()}})
}

/// What is there, by namespace.
fn found(plane: &ControlPlane) -> BTreeMap<String, Model> {
    let mut all: BTreeMap<String, Model> = BTreeMap::new();
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<usize>().ok());
    for object in ["configmaps", "secrets"].iter().flat_map(|plural| plane.state().objects("", plural)) {
        let metadata = &object["metadata"];
        let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), number(&metadata["name"])) else {
            continue;
        };
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owners = owners.filter_map(|owner| number(&owner["name"])).collect();
        all.entry(namespace.to_owned()).or_default().insert(name, owners);
    }
    all
}

/// Deletions of all graphs at once, three times, and after each all is as the model says.
async fn run(seed: u64, graphs: usize) {
    let plane = ControlPlane::seeded(seed).await;
    let (objects, chance) = (Objects::on(&plane), Chance::seeded(seed));
    let graph = |number: usize| {
        let namespace = format!("graph-{number}");
        Graph { chance: chance.fork(&namespace), namespace, model: Model::new() }
    };
    let mut graphs: Vec<Graph> = (0..graphs).map(graph).collect();
    for graph in &mut graphs {
        graph.make(&objects).await;
        collect(&mut graph.model);
    }
    // Only now: what has no owner before all is made would be gone before it gets one.
    let running = spawn(&plane, COLLECTOR);
    for _ in 0..3 {
        plane.advance(Duration::from_secs(120)).await;
        let found = found(&plane);
        graphs.iter().for_each(|graph| graph.check(&found));
        for graph in &mut graphs {
            graph.delete_one(&objects).await;
        }
    }
    plane.advance(Duration::from_secs(120)).await;
    let found = found(&plane);
    graphs.iter().for_each(|graph| graph.check(&found));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn random_graphs_end_as_the_model_says() {
    const AT_ONCE: usize = 100;
    for seed in 0..GRAPHS / AT_ONCE {
        run(seed as u64, AT_ONCE).await;
    }
}

#[test]
fn the_model_is_obvious() {
    let model = |all: &[(usize, &[usize])]| -> Model {
        all.iter().map(|(number, owners)| (*number, owners.iter().copied().collect())).collect()
    };
    let mut chain = model(&[(0, &[]), (1, &[0]), (2, &[1, NOBODY]), (3, &[0, 4]), (4, &[])]);
    delete(&mut chain, 0, Policy::Foreground);
    assert_eq!(chain, model(&[(3, &[4]), (4, &[])]));
    let mut orphans = model(&[(0, &[]), (1, &[0]), (2, &[1])]);
    delete(&mut orphans, 0, Policy::Orphan);
    assert_eq!(orphans, model(&[(1, &[]), (2, &[1])]));
    let mut circle = model(&[(0, &[1]), (1, &[0])]);
    collect(&mut circle);
    assert_eq!(circle.len(), 2);
    delete(&mut circle, 1, Policy::Background);
    assert_eq!(circle, model(&[]));
}
