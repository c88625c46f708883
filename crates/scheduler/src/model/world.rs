//! A random cluster: what is in it, what happens to it, and whether decisions about it are right.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::filters::{Resident, View, asked, has, name};
use crate::cluster::{Cluster, Next};
use crate::profile::Profile;

/// Numbers that look random and are the same for the same seed.
pub struct Random(u64);

impl Random {
    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }
}

/// The cluster as the API would show it, and as the scheduler knows it.
pub struct World {
    pub cluster: Cluster,
    pub random: Random,
    nodes: Vec<Value>,
    residents: Vec<Resident>,
    waiting: BTreeMap<String, Value>,
    namespaces: BTreeMap<String, Value>,
    has_priorities: bool,
    next: usize,
}

impl World {
    pub fn new(seed: u64, has_priorities: bool) -> World {
        let mut world = World {
            cluster: Cluster::new(vec![Profile::named(crate::DEFAULT)]),
            random: Random(seed),
            nodes: Vec::new(),
            residents: Vec::new(),
            waiting: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            has_priorities,
            next: 0,
        };
        for namespace in ["one", "two"] {
            world.label_namespace(namespace);
        }
        for _ in 0..world.random.below(6) {
            world.add_node();
        }
        world
    }

    /// Something happens.
    pub fn happen(&mut self) {
        match self.random.below(14) {
            0 => self.add_node(),
            1 => self.change_node(),
            2 => self.remove_node(),
            3 => self.remove_pod(),
            4 => self.change_pod(),
            5 if self.random.one_in(3) => {
                let namespace = self.random.of(&["one", "two"]);
                self.label_namespace(namespace);
            }
            6 => self.remove_waiting(),
            _ => self.add_pod(),
        }
    }

    /// Checks a decision and does what it says.
    pub fn check(&mut self, next: Next, about: &str) {
        let view = self.view();
        match &next {
            Next::Bind(pod, node) => {
                let found = view.reasons(&self.waiting[&*pod.uid], self.node(node));
                // A node may be held for others, who are counted then; that only ever forbids more.
                assert_eq!(found, Default::default(), "{about}: {} was put on {node}", pod.key);
            }
            Next::Tell(pod, told, _) if !self.has_priorities => {
                let object = &self.waiting[&*pod.uid];
                assert_eq!(*told, view.message(object), "{about}: {object}");
            }
            Next::Tell(..) => {}
            Next::Preempt(pod, _, preemption, _) => {
                let object = &self.waiting[&*pod.uid];
                let priority = |pod: &Value| pod["spec"]["priority"].as_i64().unwrap_or(0);
                let is_victim = |it: &&Resident| preemption.victims.iter().any(|victim| *victim.uid == *name(&it.0));
                let (victims, others): (Vec<&Resident>, Vec<&Resident>) = self.residents.iter().partition(is_victim);
                assert!(!victims.is_empty(), "{about}: nobody leaves for {}", pod.key);
                assert!(
                    victims.iter().all(|it| priority(&it.0) < priority(object) && *it.1 == *preemption.name),
                    "{about}"
                );
                let mut others: Vec<Resident> = others.into_iter().cloned().collect();
                let fits = |residents: &[Resident]| {
                    let view = View { nodes: &self.nodes, residents, namespaces: &self.namespaces };
                    view.reasons(object, self.node(&preemption.name)).0.is_empty()
                };
                assert!(fits(&others), "{about}: not enough leave for {}", pod.key);
                let helps = |pod: &Value| pod["spec"]["affinity"]["podAffinity"].is_object();
                for victim in victims.into_iter().filter(|_| !helps(object)) {
                    others.push(victim.clone());
                    let is_held = !self.cluster.nominations.on(preemption.node).is_empty();
                    assert!(!fits(&others) || is_held, "{about}: {} needn't leave for {}", name(&victim.0), pod.key);
                    others.pop();
                }
            }
            Next::Prepare(..) => panic!("{about}: nobody has volumes"),
        }
        self.follow(&next);
        self.check_room(about);
    }

    /// Does what a decision says, as the API would show it.
    pub fn follow(&mut self, next: &Next) {
        match next {
            Next::Bind(pod, node) => {
                let mut object = self.waiting.remove(&*pod.uid).expect("it waited");
                object["spec"]["nodeName"] = json!(&**node);
                self.cluster.bound(&pod.uid);
                self.show(&object);
                self.residents.push((object, node.to_string()));
            }
            Next::Preempt(_, _, preemption, _) => {
                for victim in &preemption.victims {
                    self.residents.retain(|(pod, _)| name(pod) != *victim.uid);
                    self.cluster.lose_pod(&victim.uid);
                }
            }
            Next::Tell(..) | Next::Prepare(..) => {}
        }
    }

    /// No pod that sleeps could be anywhere.
    pub fn check_sleepers(&self, about: &str) {
        let view = self.view();
        for pod in self.waiting.values() {
            for node in &self.nodes {
                let (found, _) = view.reasons(pod, node);
                assert!(!found.is_empty(), "{about}: {} sleeps and could be on {}: {pod}", name(pod), name(node));
            }
        }
    }

    fn check_room(&self, about: &str) {
        for node in &self.nodes {
            let on: Vec<&Value> =
                self.residents.iter().filter(|(_, on)| *on == name(node)).map(|(pod, _)| pod).collect();
            // A node may shrink under its pods: what is then too much stays, but nothing is added.
            let shrank = node["shrank"] == true;
            for resource in ["cpu", "memory", "example.com/gpu"] {
                let taken: i64 = on.iter().map(|pod| asked(pod, resource)).sum();
                assert!(shrank || taken <= has(node, resource), "{about}: too much {resource} on {}", name(node));
            }
        }
    }

    fn view(&self) -> View<'_> {
        View { nodes: &self.nodes, residents: &self.residents, namespaces: &self.namespaces }
    }

    fn node(&self, node: &str) -> &Value {
        self.nodes.iter().find(|it| name(it) == node).expect("a node that is there")
    }

    fn show(&mut self, pod: &Value) {
        self.cluster.see_pod(&serde_json::from_value(pod.clone()).expect("a pod"));
    }

    fn show_node(&mut self, node: &Value) {
        self.cluster.see_node(serde_json::from_value(node.clone()).expect("a node"));
    }

    fn label_namespace(&mut self, namespace: &str) {
        let labels = json!({"team": self.random.of(&["a", "b"])});
        self.cluster.relations.see_namespace(namespace, serde_json::from_value(labels.clone()).ok());
        self.cluster.pass_on_calls();
        self.namespaces.insert(namespace.to_owned(), labels);
    }

    fn add_node(&mut self) {
        if self.nodes.len() >= 7 {
            return;
        }
        self.next += 1;
        let node = self.random_node(&format!("node-{}", self.next));
        self.show_node(&node);
        self.nodes.push(node);
    }

    fn change_node(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        let index = self.random.below(self.nodes.len());
        let mut node = self.random_node(&name(&self.nodes[index]));
        node["shrank"] = json!(true);
        self.show_node(&node);
        self.nodes[index] = node;
    }

    fn remove_node(&mut self) {
        if self.nodes.is_empty() || self.random.one_in(2) {
            return;
        }
        let index = self.random.below(self.nodes.len());
        let gone = name(&self.nodes.remove(index));
        self.cluster.lose_node(&gone);
        if self.random.one_in(2) {
            // Its pods are collected, or stay for a while.
            let pods: Vec<String> =
                self.residents.iter().filter(|(_, on)| *on == gone).map(|(pod, _)| name(pod)).collect();
            self.residents.retain(|(_, on)| *on != gone);
            pods.iter().for_each(|uid| self.cluster.lose_pod(uid));
        }
    }

    fn remove_pod(&mut self) {
        if self.residents.is_empty() {
            return;
        }
        let index = self.random.below(self.residents.len());
        let (pod, _) = self.residents.remove(index);
        self.cluster.lose_pod(&name(&pod));
    }

    fn remove_waiting(&mut self) {
        if let Some(uid) = self.waiting.keys().next().cloned() {
            self.waiting.remove(&uid);
            self.cluster.lose_pod(&uid);
        }
    }

    /// A pod on a node gets other labels, or is on its way out.
    fn change_pod(&mut self) {
        if self.residents.is_empty() {
            return;
        }
        let index = self.random.below(self.residents.len());
        let mut pod = self.residents[index].0.clone();
        if self.random.one_in(2) {
            pod["metadata"]["labels"] = json!({"app": self.random.of(&["x", "y", "z"])});
        } else {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        self.show(&pod);
        self.residents[index].0 = pod;
    }

    fn add_pod(&mut self) {
        if self.waiting.len() >= 12 {
            return;
        }
        self.next += 1;
        let uid = format!("pod-{}", self.next);
        let pod = self.random_pod(&uid);
        self.show(&pod);
        self.waiting.insert(uid, pod);
    }

    fn random_node(&mut self, name: &str) -> Value {
        let random = &mut self.random;
        let mut labels = json!({"kubernetes.io/hostname": name});
        if !random.one_in(4) {
            labels["topology.kubernetes.io/zone"] = json!(random.of(&["east", "west", "north"]));
        }
        if random.one_in(2) {
            labels["disk"] = json!(random.of(&["ssd", "hdd"]));
        }
        let mut spec = json!({});
        if random.one_in(5) {
            spec["taints"] = json!([{"key": "only", "value": "some", "effect": random.of(&["NoSchedule", "NoExecute", "PreferNoSchedule"])}]);
        }
        if random.one_in(8) {
            spec["unschedulable"] = json!(true);
        }
        let allocatable = json!({
            "cpu": random.of(&["2", "4", "1500m"]),
            "memory": random.of(&["4000", "8000"]),
            "pods": random.of(&["3", "6", "10"]),
            "example.com/gpu": random.of(&["0", "1"]),
        });
        json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}})
    }

    fn random_pod(&mut self, uid: &str) -> Value {
        let mut requests = json!({});
        if !self.random.one_in(4) {
            requests["cpu"] = json!(self.random.of(&["500m", "1", "250m", "3"]));
        }
        if self.random.one_in(3) {
            requests["memory"] = json!(self.random.of(&["1000", "3000"]));
        }
        if self.random.one_in(8) {
            requests["example.com/gpu"] = json!("1");
        }
        let mut container = json!({"name": "a", "image": "a", "resources": {"requests": requests}});
        if self.random.one_in(8) {
            let mut port = json!({"hostPort": 80, "containerPort": 80});
            if self.random.one_in(2) {
                port["hostIP"] = json!(self.random.of(&["10.0.0.1", "10.0.0.2"]));
            }
            container["ports"] = json!([port]);
        }
        let mut spec = json!({"schedulerName": "default-scheduler", "containers": [container]});
        if self.random.one_in(6) {
            let mut first = json!({"name": "i", "resources": {"requests": {"cpu": self.random.of(&["500m", "2"])}}});
            if self.random.one_in(2) {
                first["restartPolicy"] = json!("Always");
            }
            spec["initContainers"] = json!([first]);
        }
        if self.random.one_in(5) {
            spec["nodeSelector"] = json!({"disk": self.random.of(&["ssd", "hdd"])});
        }
        if self.random.one_in(4) {
            spec["tolerations"] = match self.random.below(3) {
                0 => json!([{"operator": "Exists"}]),
                1 => json!([{"key": "only", "value": "some", "effect": "NoSchedule"}]),
                _ => json!([{"key": "only", "operator": "Exists"}]),
            };
        }
        self.add_affinity(&mut spec);
        self.add_spread(&mut spec);
        if self.has_priorities {
            spec["priority"] = json!(self.random.below(3));
        }
        let labels = json!({"app": self.random.of(&["x", "y", "z"])});
        let namespace = self.random.of(&["one", "two"]);
        json!({"metadata": {"name": uid, "namespace": namespace, "uid": uid, "labels": labels}, "spec": spec})
    }

    fn add_affinity(&mut self, spec: &mut Value) {
        if self.random.one_in(8) {
            let values = match self.random.below(2) {
                0 => json!({"key": "disk", "operator": "NotIn", "values": ["hdd"]}),
                _ => json!({"key": "topology.kubernetes.io/zone", "operator": "Exists"}),
            };
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                json!([{"matchExpressions": [values]}]);
        }
        for (kind, odds) in [("podAffinity", 7), ("podAntiAffinity", 5)] {
            if self.random.one_in(odds) {
                let terms: Vec<Value> = (0..=self.random.below(2)).map(|_| self.random_term()).collect();
                spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
            }
            if self.random.one_in(8) {
                let term = json!({"weight": 10, "podAffinityTerm": self.random_term()});
                spec["affinity"][kind]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
            }
        }
    }

    fn random_term(&mut self) -> Value {
        let mut term =
            json!({"topologyKey": self.random.of(&["kubernetes.io/hostname", "topology.kubernetes.io/zone"])});
        match self.random.below(6) {
            0 => term["labelSelector"] = json!({}),
            1 => {
                let wanted = json!({"key": "app", "operator": "In", "values": ["x", "y"]});
                term["labelSelector"] = json!({"matchExpressions": [wanted]});
            }
            2 if self.random.one_in(2) => {}
            _ => term["labelSelector"] = json!({"matchLabels": {"app": self.random.of(&["x", "y", "z"])}}),
        }
        match self.random.below(6) {
            0 => term["namespaces"] = json!(["two"]),
            1 => term["namespaceSelector"] = json!({}),
            2 => term["namespaceSelector"] = json!({"matchLabels": {"team": "a"}}),
            _ => {}
        }
        term
    }

    fn add_spread(&mut self, spec: &mut Value) {
        if !self.random.one_in(4) {
            return;
        }
        let constraints: Vec<Value> = (0..=self.random.below(2)).map(|_| self.random_constraint()).collect();
        spec["topologySpreadConstraints"] = json!(constraints);
    }

    fn random_constraint(&mut self) -> Value {
        let mut constraint = json!({
            "topologyKey": self.random.of(&["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
            "maxSkew": 1 + self.random.below(2),
            "whenUnsatisfiable": if self.random.one_in(4) { "ScheduleAnyway" } else { "DoNotSchedule" },
        });
        match self.random.below(5) {
            0 => constraint["labelSelector"] = json!({}),
            1 if self.random.one_in(2) => {}
            _ => constraint["labelSelector"] = json!({"matchLabels": {"app": self.random.of(&["x", "y", "z"])}}),
        }
        if self.random.one_in(4) && constraint["whenUnsatisfiable"] == "DoNotSchedule" {
            constraint["minDomains"] = json!(2);
        }
        if self.random.one_in(4) {
            constraint["nodeAffinityPolicy"] = json!("Ignore");
        }
        if self.random.one_in(4) {
            constraint["nodeTaintsPolicy"] = json!("Honor");
        }
        constraint
    }
}
