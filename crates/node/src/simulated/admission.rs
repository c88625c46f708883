//! Whether a node takes a pod that was bound to it: what nodes of the real sort refuse, these refuse in the same words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::PodStatus;
use setpoint_api::quantity::Quantity;

use super::pod::{Container, Pod, Spec};

/// What a pod takes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Ports of the node itself.
    pub ports: Box<[Port]>,
}

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    number: u16,
    protocol: Box<str>,
    /// The address of the node that it is for; empty for all.
    address: Box<str>,
}

impl Demand {
    /// What a pod takes: what its containers ask for together, or an init container and the sidecars before it. Once it was told what is
    /// set aside for a container, that counts.
    pub fn of(spec: &Spec, status: &PodStatus) -> Demand {
        let all = [&status.init_container_statuses, &status.container_statuses];
        let told = |container: &Container| {
            let own = all.into_iter().flatten().flatten().find(|it| *it.name == *container.name)?;
            own.resources.as_ref().map(|_| own.allocated_resources.as_ref())
        };
        Demand::with(spec, |container| match told(container) {
            Some(aside) => amounts(|name| aside?.get(name).map(|amount| &*amount.0)),
            None => amounts(|name| container.resources.requests.get(name)),
        })
    }

    /// What a pod with this spec asks for.
    pub fn asked(spec: &Spec) -> Demand {
        Demand::with(spec, |container| amounts(|name| container.resources.requests.get(name)))
    }

    fn with(spec: &Spec, asked: impl Fn(&Container) -> (i64, i64)) -> Demand {
        let mut running = spec.containers.iter().map(&asked).fold((0, 0), plus);
        let (mut sidecars, mut first) = ((0, 0), (0, 0));
        for container in &spec.init_containers {
            let own = asked(container);
            if container.is_sidecar() {
                sidecars = plus(sidecars, own);
                running = plus(running, own);
                first = most(first, sidecars);
            } else {
                first = most(first, plus(sidecars, own));
            }
        }
        let (cpu, memory) = plus(most(running, first), amounts(|name| spec.overhead.get(name)));
        let ports = spec.containers.iter().chain(&spec.init_containers).flat_map(|container| &container.ports);
        let ports = ports.filter(|port| port.host_port > 0).map(|port| Port {
            number: port.host_port,
            protocol: if port.protocol.is_empty() { "TCP".into() } else { port.protocol.clone() },
            address: if &*port.host_ip == "0.0.0.0" { Box::default() } else { port.host_ip.clone() },
        });
        Demand { cpu, memory, ports: ports.collect() }
    }
}

fn amounts<'a>(of: impl Fn(&'static str) -> Option<&'a str>) -> (i64, i64) {
    let parsed = |name| of(name).and_then(|text| Quantity::parse(text).ok());
    (parsed("cpu").map_or(0, |it| it.milli_value()), parsed("memory").map_or(0, |it| it.value()))
}

fn plus(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
}

fn most(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.max(other.0), one.1.max(other.1))
}

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// How many pods.
    pub pods: i64,
}

/// Why a node doesn't take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: &'static str,
    pub message: String,
}

/// Whether there is room beside those that are there.
fn decide(capacity: Capacity, there: &[&Demand], asked: &Demand) -> Result<(), Rejection> {
    let used = |amount: fn(&Demand) -> i64| there.iter().map(|it| amount(it)).fold(0, i64::saturating_add);
    let count = i64::try_from(there.len()).unwrap_or(i64::MAX);
    let resources = [
        ("OutOfpods", "pods", 1, count, capacity.pods),
        ("OutOfcpu", "cpu", asked.cpu, used(|it| it.cpu), capacity.cpu),
        ("OutOfmemory", "memory", asked.memory, used(|it| it.memory), capacity.memory),
    ];
    for (reason, name, requested, used, capacity) in resources {
        if requested > 0 && requested.saturating_add(used) > capacity {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            return Err(Rejection { reason, message });
        }
    }
    let taken: BTreeSet<&Port> = there.iter().flat_map(|it| &it.ports).collect();
    let clashes = |port: &&Port| {
        let same = |other: &&&Port| {
            let anywhere = port.address.is_empty() || other.address.is_empty() || port.address == other.address;
            port.number == other.number && port.protocol == other.protocol && anywhere
        };
        taken.iter().any(|other| same(&other))
    };
    if asked.ports.iter().any(|port| clashes(&port)) {
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned();
        return Err(Rejection { reason: "NodePorts", message });
    }
    Ok(())
}

/// Who was let in a moment ago, and may not be seen yet.
#[derive(Default)]
pub struct Admission {
    /// By node, then by uid.
    fresh: Mutex<BTreeMap<usize, BTreeMap<Box<str>, Demand>>>,
}

impl Admission {
    /// Lets a pod in beside the others of its node, or says why not.
    pub fn admit<'a>(
        &self,
        node: usize,
        capacity: Capacity,
        pod: &Pod,
        others: impl Iterator<Item = &'a Pod>,
    ) -> Result<(), Rejection> {
        self.take(node, capacity, pod, pod.demand.clone(), others)
    }

    /// Gives a pod that is there what it asks for now, or says why not.
    pub fn resize<'a>(
        &self,
        node: usize,
        capacity: Capacity,
        pod: &Pod,
        others: impl Iterator<Item = &'a Pod>,
    ) -> Result<(), Rejection> {
        self.take(node, capacity, pod, Demand::asked(&pod.spec), others)
    }

    fn take<'a>(
        &self,
        node: usize,
        capacity: Capacity,
        pod: &Pod,
        asked: Demand,
        others: impl Iterator<Item = &'a Pod>,
    ) -> Result<(), Rejection> {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = fresh.entry(node).or_default();
        let mut there: BTreeMap<&str, &Demand> = fresh.iter().map(|(uid, demand)| (&**uid, demand)).collect();
        for other in others {
            match other.has_ended() {
                true => drop(there.remove(&*other.metadata.uid)),
                // What was given a moment ago is not seen yet.
                false if other.has_arrived() => drop(there.entry(&other.metadata.uid).or_insert(&other.demand)),
                false => {}
            }
        }
        there.remove(&*pod.metadata.uid);
        let there: Vec<&Demand> = there.into_values().collect();
        decide(capacity, &there, &asked)?;
        fresh.insert(pod.metadata.uid.clone(), asked);
        Ok(())
    }

    /// A pod is seen to be in, or to be gone: nobody has to remember it here.
    pub fn seen(&self, node: usize, uid: &str) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_node) = fresh.get_mut(&node) {
            of_node.remove(uid);
            if of_node.is_empty() {
                fresh.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, spec: Value, status: Value) -> Pod {
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": spec, "status": status});
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        pod.settle();
        pod
    }

    fn asking(cpu: &str, memory: &str, port: u16) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}},
            "ports": [{"containerPort": 80, "hostPort": port}]}]})
    }

    const CAPACITY: Capacity = Capacity { cpu: 4000, memory: 1 << 30, pods: 3 };

    #[test]
    fn what_doesn_t_fit_is_refused_in_known_words() {
        let started = || json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
        let there = [
            pod("a", asking("3", "512Mi", 8080), started()),
            pod("b", asking("9", "9Gi", 9), json!({"phase": "Failed"})),
        ];
        let check = |spec: Value, expected: Result<(), (&str, &str)>| {
            let admission = Admission::default();
            let found = admission.admit(0, CAPACITY, &pod("new", spec, json!({})), there.iter());
            let expected = expected.map_err(|(reason, message)| (reason.to_owned(), message.to_owned()));
            assert_eq!(found.map_err(|it| (it.reason.to_owned(), it.message)), expected);
        };
        check(asking("1", "512Mi", 8081), Ok(()));
        check(asking("1", "512Mi", 0), Ok(()));
        let cpu = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000";
        check(asking("2", "1Mi", 0), Err(("OutOfcpu", cpu)));
        let memory =
            "Node didn't have enough resource: memory, requested: 536870913, used: 536870912, capacity: 1073741824";
        check(asking("0", "536870913", 0), Err(("OutOfmemory", memory)));
        let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(asking("0", "0", 8080), Err(("NodePorts", ports)));
    }

    #[test]
    fn those_let_in_a_moment_ago_count_until_they_are_seen() {
        let admission = Admission::default();
        let admit = |uid: &str| admission.admit(0, CAPACITY, &pod(uid, asking("1", "1Mi", 0), json!({})), [].iter());
        for uid in ["a", "b", "c", "c"] {
            assert_eq!(admit(uid), Ok(()), "{uid}");
        }
        let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3".to_owned();
        assert_eq!(admit("d"), Err(Rejection { reason: "OutOfpods", message }));
        admission.seen(0, "b");
        assert_eq!(admit("d"), Ok(()));
    }

    #[test]
    fn sidecars_count_with_what_comes_after_them() {
        let with = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "i", "resources": with("300m")},
                {"name": "s", "restartPolicy": "Always", "resources": with("200m")},
                {"name": "j", "resources": with("400m")},
            ],
            "containers": [{"name": "c", "resources": with("100m")}, {"name": "d", "resources": with("50m")}],
        });
        assert_eq!(Demand::asked(&serde_json::from_value(spec).unwrap()).cpu, 610);
    }
}
