//! What a pod asks of a node. Pods that ask for the same are one class.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, PreferredSchedulingTerm, Toleration};

use crate::pod::{Port, Wishes};
use crate::profile::Profile;
use crate::resources::Resources;

/// What a container without requests counts as when nodes are compared, so that such pods spread too.
const CPU_AT_LEAST: i64 = 100;
const MEMORY_AT_LEAST: i64 = 200 * 1024 * 1024;

/// What a class of pods asks of a node.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The number of the class.
    pub class: u64,
    pub profile: Arc<Profile>,
    pub requests: Resources,
    /// The requests by which nodes are compared.
    pub weight: Weight,
    /// Labels that a node must have.
    pub selector: Vec<(Box<str>, Box<str>)>,
    pub affinity: Option<NodeSelector>,
    pub preferences: Vec<PreferredSchedulingTerm>,
    pub tolerations: Box<[Toleration]>,
    /// The ports of the node that it takes.
    pub ports: Vec<Port>,
    /// The only nodes that it may be on, if it names them.
    pub named: Option<Vec<Box<str>>>,
}

/// Processors and memory, at least a little of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    pub cpu: i64,
    pub memory: i64,
}

impl Demand {
    /// What a pod with these wishes asks for.
    pub fn of(wishes: &Wishes, profile: &Arc<Profile>, class: u64) -> Demand {
        let affinity =
            wishes.affinity.as_deref().and_then(|affinity| affinity.node_affinity.clone()).unwrap_or_default();
        let required = affinity.required_during_scheduling_ignored_during_execution;
        Demand {
            class,
            profile: profile.clone(),
            requests: requests(wishes),
            weight: weight(wishes),
            selector: wishes.node_selector.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            named: required.as_ref().and_then(named),
            affinity: required,
            preferences: affinity.preferred_during_scheduling_ignored_during_execution.unwrap_or_default(),
            tolerations: wishes.tolerations.clone(),
            ports: ports(wishes),
        }
    }
}

/// The nodes that every term names; none if a term leaves the name open.
fn named(affinity: &NodeSelector) -> Option<Vec<Box<str>>> {
    let mut all = std::collections::BTreeSet::new();
    for term in &affinity.node_selector_terms {
        let fields = term.match_fields.iter().flatten();
        let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        let mut left: Vec<String> = names.next()?.values.clone().unwrap_or_default();
        for more in names {
            left.retain(|name| more.values.iter().flatten().any(|other| other == name));
        }
        all.extend(left.into_iter().map(String::into_boxed_str));
    }
    (!affinity.node_selector_terms.is_empty()).then(|| all.into_iter().collect())
}

/// The text of what makes a class.
pub fn class(wishes: &Wishes, profile: &Profile) -> String {
    let mut text = serde_json::to_string(wishes).unwrap_or_default();
    text.push_str(&profile.name);
    text
}

/// What all containers ask for at their worst moment: all main containers with all sidecars, or one init container
/// with the sidecars before it.
fn requests(wishes: &Wishes) -> Resources {
    let mut sum = Resources::default();
    for container in &wishes.containers {
        sum.add(&Resources::read(&container.resources.requests));
    }
    let (mut sidecars, mut peak) = (Resources::default(), Resources::default());
    for container in &wishes.init_containers {
        let asked = Resources::read(&container.resources.requests);
        if container.is_sidecar() {
            sidecars.add(&asked);
            sum.add(&asked);
            peak.raise(&sidecars);
        } else {
            let mut moment = sidecars.clone();
            moment.add(&asked);
            peak.raise(&moment);
        }
    }
    sum.raise(&peak);
    // What the pod as a whole asks for counts instead.
    sum.replace(&Resources::read(&wishes.resources.requests), &wishes.resources.requests);
    sum.add(&Resources::read(&wishes.overhead));
    sum
}

fn weight(wishes: &Wishes) -> Weight {
    let main = wishes.containers.iter().chain(wishes.init_containers.iter().filter(|container| container.is_sidecar()));
    let mut weight = Weight::default();
    for container in main {
        let requests = &container.resources.requests;
        let asked = Resources::read(requests);
        weight.cpu += if requests.contains_key("cpu") { asked.cpu } else { CPU_AT_LEAST };
        weight.memory += if requests.contains_key("memory") { asked.memory } else { MEMORY_AT_LEAST };
    }
    weight
}

fn ports(wishes: &Wishes) -> Vec<Port> {
    let sidecars = wishes.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = wishes.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter());
    let mut ports: Vec<Port> = ports.filter(|port| port.host_port > 0).cloned().map(Port::whole).collect();
    ports.sort();
    ports.dedup();
    ports
}

impl Port {
    /// With what is meant when nothing is said.
    fn whole(self) -> Port {
        let or = |text: Box<str>, other: &str| if text.is_empty() { other.into() } else { text };
        Port { host_port: self.host_port, host_ip: or(self.host_ip, "0.0.0.0"), protocol: or(self.protocol, "TCP") }
    }

    /// Whether both can't be taken on one node.
    pub fn clashes(&self, other: &Port) -> bool {
        let everywhere = |port: &Port| matches!(&*port.host_ip, "0.0.0.0" | "::");
        self.host_port == other.host_port
            && self.protocol == other.protocol
            && (everywhere(self) || everywhere(other) || self.host_ip == other.host_ip)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn demand(spec: Value) -> Demand {
        Demand::of(&serde_json::from_value::<Wishes>(spec).unwrap(), &Arc::new(Profile::named("a")), 0)
    }

    #[test]
    fn the_worst_moment_counts() {
        let cpu = |text: &str| json!({"resources": {"requests": {"cpu": text}}});
        let sidecar = |text: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": text}}});
        for (init, main, overhead, expected) in [
            (json!([]), json!([cpu("1"), cpu("500m")]), json!({}), 1500),
            (json!([cpu("4")]), json!([cpu("1")]), json!({}), 4000),
            (json!([sidecar("1"), cpu("2")]), json!([cpu("1")]), json!({}), 3000),
            (json!([cpu("2"), sidecar("1")]), json!([cpu("2")]), json!({"cpu": "10m"}), 3010),
        ] {
            let found = demand(json!({"initContainers": init, "containers": main, "overhead": overhead}));
            assert_eq!(found.requests.cpu, expected, "{init} {main}");
        }
        let whole = demand(json!({"containers": [cpu("1")], "resources": {"requests": {"cpu": "3"}}}));
        assert_eq!(whole.requests.cpu, 3000, "what the pod as a whole asks for");
    }

    #[test]
    fn pods_that_ask_for_the_same_are_one_class() {
        let text = |cpu: &str, name: &str, profile: &str| {
            let spec = json!({"containers": [{"name": name, "resources": {"requests": {"cpu": cpu}}}]});
            class(&serde_json::from_value(spec).unwrap(), &Profile::named(profile))
        };
        assert_eq!(text("1", "a", "x"), text("1", "b", "x"));
        assert_ne!(text("1", "a", "x"), text("2", "a", "x"));
        assert_ne!(text("1", "a", "x"), text("1", "a", "y"));
    }

    #[test]
    fn a_port_of_the_node_is_taken_once() {
        let port = |ip: &str, number: i32, protocol: &str| {
            Port { host_ip: ip.into(), host_port: number, protocol: protocol.into() }.whole()
        };
        for (one, other, clash) in [
            (port("", 80, ""), port("", 80, "TCP"), true),
            (port("", 80, "TCP"), port("", 80, "UDP"), false),
            (port("10.0.0.1", 80, ""), port("", 80, ""), true),
            (port("10.0.0.1", 80, ""), port("10.0.0.2", 80, ""), false),
            (port("", 80, ""), port("", 81, ""), false),
        ] {
            assert_eq!(one.clashes(&other), clash, "{one:?} {other:?}");
        }
    }
}
