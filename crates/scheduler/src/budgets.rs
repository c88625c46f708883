//! Budgets of disruption: how many pods may still be sent away.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Pairs;

use crate::wants::selector;

/// All budgets.
#[derive(Default)]
pub struct Budgets(HashMap<Key, Budget>);

/// One budget.
pub struct Budget {
    selector: Selector,
    pub allowed: i32,
    /// Pods whose leaving is counted already.
    pub disrupted: BTreeSet<String>,
}

impl Budgets {
    pub fn see(&mut self, key: Key, budget: PodDisruptionBudget) {
        let written = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let status = budget.status.unwrap_or_default();
        let selector = selector(written);
        let disrupted = status.disrupted_pods.unwrap_or_default().into_keys().collect();
        self.0.insert(key, Budget { selector, allowed: status.disruptions_allowed.unwrap_or_default(), disrupted });
    }

    pub fn lose(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Those that speak of pods with these labels. An empty selector speaks of none.
    pub fn of(&self, namespace: &str, labels: &Pairs) -> impl Iterator<Item = (&Key, &Budget)> {
        self.0.iter().filter(move |(key, budget)| {
            key.namespace() == Some(namespace)
                && labels.iter().next().is_some()
                && !budget.selector.is_everything()
                && budget.selector.matches(labels)
        })
    }
}
