//! Who a simulated node is: its name, its addresses, and the object that stands for it.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_api::quantity::Quantity;

use super::Options;
use super::admission::Capacity;

/// The annotations that choose what happens begin with this.
pub const ANNOTATIONS: &str = "simulated.setpoint.dev/";

/// The label that tells a simulated node from a real one.
pub const SIMULATED_LABEL: &str = "setpoint.dev/simulated";

/// What nodes say that their agent is.
const VERSION: &str = "v1.36.4";

/// Services have their addresses from 10.0, or, where kubeadm has set a server up, from 10.96 to 10.111: pods must not.
const SERVICES: [std::ops::RangeInclusive<u32>; 2] = [0..=0, 96..=111];

/// All simulated nodes of this process.
pub struct Nodes {
    options: Options,
}

impl Nodes {
    pub fn new(options: Options) -> Nodes {
        Nodes { options }
    }

    pub fn count(&self) -> usize {
        self.options.count
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.options.prefix)
    }

    /// The number of the node with this name, if it is one of these.
    pub fn number(&self, name: &str) -> Option<usize> {
        let digits = name.strip_prefix(&*self.options.prefix)?.strip_prefix('-')?;
        let number: usize = digits.parse().ok()?;
        (number < self.options.count && self.name(number) == name).then_some(number)
    }

    /// What each node has for pods.
    pub fn capacity(&self) -> Capacity {
        let parsed = |text: &str| Quantity::parse(text).ok();
        Capacity {
            cpu: parsed(&self.options.cpu).map_or(i64::MAX, |it| it.milli_value()),
            memory: parsed(&self.options.memory).map_or(i64::MAX, |it| it.value()),
            pods: i64::from(self.options.pods),
        }
    }

    /// The object that a node registers with.
    pub fn object(&self, number: usize, now: Timestamp) -> Node {
        let name = self.name(number);
        let network = network(number);
        let object = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    SIMULATED_LABEL: "true",
                },
                "annotations": {
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
            },
            "spec": {
                "podCIDR": format!("{network}/24"),
                "podCIDRs": [format!("{network}/24")],
                "providerID": format!("simulated://{name}"),
            },
            "status": self.status(number, now),
        });
        serde_json::from_value(object).expect("a node that was written here is one")
    }

    /// How a node is that is well.
    fn status(&self, number: usize, now: Timestamp) -> Value {
        let name = self.name(number);
        let resources = json!({
            "cpu": self.options.cpu,
            "ephemeral-storage": "100Gi",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": self.options.memory,
            "pods": self.options.pods.to_string(),
        });
        json!({
            "addresses": [
                {"type": "InternalIP", "address": host_address(number).to_string()},
                {"type": "Hostname", "address": name},
            ],
            "allocatable": resources,
            "capacity": resources,
            "conditions": conditions(now, true),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": format!("00000000-0000-4000-8000-{number:012x}"),
                "containerRuntimeVersion": "simulated://1.0.0",
                "kernelVersion": "6.12.0-simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": VERSION,
                "machineID": format!("{number:032x}"),
                "operatingSystem": "linux",
                "osImage": "Simulated",
                "systemUUID": format!("00000000-0000-4000-9000-{number:012x}"),
            },
        })
    }
}

/// The conditions of a node that is well, or that can't run pods.
pub fn conditions(now: Timestamp, is_ready: bool) -> Value {
    let now = super::status::time(now);
    let all = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        match is_ready {
            true => ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            false => ("Ready", "False", "KubeletNotReady", "simulated: the node was told not to be ready"),
        },
    ];
    let condition = |(kind, status, reason, message)| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    all.map(condition).into_iter().collect()
}

/// The network of a node's pods, which has 256 addresses.
pub fn network(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let past = |second: u32, range: &std::ops::RangeInclusive<u32>| match second >= *range.start() {
        true => second + 1 + range.end() - range.start(),
        false => second,
    };
    let second = SERVICES.iter().fold(number >> 8, past);
    Ipv4Addr::from((10 << 24) | (second.min(255) << 16) | ((number & 255) << 8))
}

/// The address of a node.
pub fn host_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    Ipv4Addr::from((172 << 24 | 18 << 16) + number.saturating_add(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_number() {
        let nodes = Nodes::new(Options { count: 3, ..Options::default() });
        for (name, number) in [
            ("simulated-0", Some(0)),
            ("simulated-2", Some(2)),
            ("simulated-3", None),
            ("simulated-01", None),
            ("simulated-+1", None),
            ("other-1", None),
            ("simulated", None),
        ] {
            assert_eq!(nodes.number(name), number, "{name}");
        }
    }

    #[test]
    fn networks_of_pods_are_apart_from_each_other_and_from_services() {
        let networks: std::collections::BTreeSet<_> = (0..super::super::NODES_MAX).map(network).collect();
        assert_eq!(networks.len(), super::super::NODES_MAX);
        let is_apart = |second: u8| second != 0 && !(96..=111).contains(&second);
        assert!(networks.iter().all(|network| network.octets()[0] == 10 && is_apart(network.octets()[1])));
    }

    #[test]
    fn a_node_says_that_it_is_simulated() {
        let nodes = Nodes::new(Options::default());
        let node = nodes.object(0, Timestamp::UNIX_EPOCH);
        assert_eq!(node.metadata.labels.unwrap()[SIMULATED_LABEL], "true");
        assert_eq!(node.spec.unwrap().pod_cidr.as_deref(), Some("10.1.0.0/24"));
    }
}
