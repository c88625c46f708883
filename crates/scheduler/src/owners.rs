//! Who owns pods and which services lead to them: pods that are alike in that are spread if they say nothing else.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use setpoint_api::field::Path;
use setpoint_api::labels::{Operator, Requirement, Selector};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Cached;

use crate::pod::Pod;
use crate::wants::selector;

/// Everything that selects pods, by what it is and where.
#[derive(Default)]
pub struct Owners {
    /// Services of each namespace, by name, with the labels that they select.
    services: HashMap<Box<str>, HashMap<Box<str>, Labels>>,
    controllers: HashMap<(&'static str, Key), Selector>,
}

/// Labels and their values.
pub type Labels = BTreeMap<String, String>;

/// A selector as services and replication controllers write it, or as all others do.
pub trait Selects: DeserializeOwned + Default + Send + Sync + Clone + std::fmt::Debug + 'static {}
impl Selects for Option<Labels> {}
impl Selects for Option<LabelSelector> {}

/// What is read of an object that selects pods.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "S: Selects")]
pub struct Selecting<K, S: Selects> {
    metadata: Meta,
    #[serde(default)]
    pub spec: Spec<S>,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, bound = "S: Selects")]
pub struct Spec<S: Selects> {
    pub selector: S,
}

impl<K: kube::Resource<DynamicType = ()> + Send + Sync + 'static, S: Selects> Cached for Selecting<K, S> {
    type Kind = K;

    fn key(&self) -> Key {
        Key::namespaced(&self.metadata.namespace, &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

impl Owners {
    pub fn see_service(&mut self, key: &Key, labels: Option<Labels>) {
        let namespace = key.namespace().unwrap_or_default();
        match labels.filter(|labels| !labels.is_empty()) {
            Some(labels) => {
                self.services.entry(namespace.into()).or_default().insert(key.name().into(), labels);
            }
            None => self.lose_service(key),
        }
    }

    pub fn lose_service(&mut self, key: &Key) {
        let namespace = key.namespace().unwrap_or_default();
        if let Some(services) = self.services.get_mut(namespace) {
            services.remove(key.name());
            if services.is_empty() {
                self.services.remove(namespace);
            }
        }
    }

    /// A replication controller.
    pub fn see_labels(&mut self, kind: &'static str, key: &Key, labels: Option<Labels>) {
        let written = LabelSelector { match_labels: Some(labels.unwrap_or_default()), ..LabelSelector::default() };
        self.see_selector(kind, key, Some(&written));
    }

    pub fn see_selector(&mut self, kind: &'static str, key: &Key, written: Option<&LabelSelector>) {
        self.controllers.insert((kind, key.clone()), selector(written));
    }

    pub fn lose(&mut self, kind: &'static str, key: &Key) {
        self.controllers.remove(&(kind, key.clone()));
    }

    /// Selects the pods that are like this one; nothing if nobody owns it and no service leads to it.
    pub fn alike(&self, pod: &Pod) -> Option<Selector> {
        let mut all = Labels::new();
        let labels = &pod.metadata.labels;
        for wanted in self.services.get(&pod.metadata.namespace).into_iter().flat_map(HashMap::values) {
            if wanted.iter().all(|(name, value)| labels.get(name) == Some(value)) {
                all.extend(wanted.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        let same = |(name, value): (&String, &String)| {
            Requirement::new(name, Operator::In, vec![value.clone()], &Path::root("selector")).ok()
        };
        let mut requirements: Vec<Requirement> = all.iter().filter_map(same).collect();
        if let Some(selector) = pod.controller().and_then(|owner| {
            let kind =
                ["ReplicaSet", "StatefulSet", "ReplicationController"].into_iter().find(|it| *it == &*owner.kind)?;
            self.controllers.get(&(kind, Key::namespaced(&pod.metadata.namespace, &owner.name)))
        }) {
            requirements.extend(selector.requirements().iter().cloned());
        }
        (!requirements.is_empty()).then(|| Selector::new(requirements))
    }
}
