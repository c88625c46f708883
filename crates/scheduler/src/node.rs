//! A node: what it offers, and what is on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Pairs};

use crate::demand::{Demand, Weight};
use crate::pod::Port;
use crate::resources::{Resources, Written};

/// The number of a node, for as long as the scheduler knows it.
pub type NodeNumber = u32;

/// By this label nodes are in zones.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A node as the API shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub labels: Pairs,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Spec {
    pub unschedulable: bool,
    pub taints: Box<[core::Taint]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub allocatable: Written,
    pub images: Box<[Image]>,
}

/// An image that is on a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    pub names: Box<[Box<str>]>,
    pub size_bytes: i64,
}

impl Cached for Node {
    type Kind = core::Node;

    fn key(&self) -> Key {
        Key::cluster(&self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

/// What a node offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    pub name: Box<str>,
    pub labels: Pairs,
    pub is_unschedulable: bool,
    pub taints: Box<[core::Taint]>,
    pub allocatable: Resources,
    pub pods: i64,
    pub images: Box<[Image]>,
}

impl Offer {
    pub fn of(node: Node) -> Offer {
        let pods = node.status.allocatable.get("pods");
        Offer {
            name: node.metadata.name,
            labels: node.metadata.labels,
            is_unschedulable: node.spec.unschedulable,
            taints: node.spec.taints,
            pods: pods.and_then(|text| text.parse().ok()).unwrap_or_default(),
            allocatable: Resources::read(&node.status.allocatable),
            images: node.status.images,
        }
    }
}

/// A node and what is on it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// None while only its pods are known.
    pub offer: Option<Offer>,
    pub load: Load,
    /// Who is on it: priority and uid, the least important first.
    pub residents: BTreeSet<(i32, Arc<str>)>,
    /// Where classes keep it: nodes of one zone together.
    pub shelf: u8,
}

/// What is taken of a node.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pub requested: Resources,
    pub weight: Weight,
    pub pods: i64,
    /// Ports that are taken, with how often: pods that clash can be there before us.
    pub ports: BTreeMap<Port, u32>,
}

impl Load {
    pub fn put(&mut self, demand: &Demand) {
        self.requested.add(&demand.requests);
        self.weight.cpu += demand.weight.cpu;
        self.weight.memory += demand.weight.memory;
        self.pods += 1;
        for port in &demand.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
    }

    pub fn take(&mut self, demand: &Demand) {
        self.requested.subtract(&demand.requests);
        self.weight.cpu -= demand.weight.cpu;
        self.weight.memory -= demand.weight.memory;
        self.pods -= 1;
        for port in &demand.ports {
            if let Some(count) = self.ports.get_mut(port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(port);
                }
            }
        }
    }
}

impl State {
    /// Whether nothing is known of it any more.
    pub fn is_forgotten(&self) -> bool {
        self.offer.is_none() && self.load.pods == 0
    }
}
