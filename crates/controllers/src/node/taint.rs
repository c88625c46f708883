//! Taints keep pods away from nodes; tolerations let them stay.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, Serialize};

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing new is placed here.
    NoSchedule,
    /// Nothing new is placed here if it can be elsewhere.
    PreferNoSchedule,
    /// What is here has to go.
    NoExecute,
    /// One that this version doesn't know.
    #[serde(other)]
    Unknown,
}

/// A mark on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: Box<str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub value: Box<str>,
    pub effect: Effect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

/// What a pod bears. Compared and matched as the server does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: Box<str>,
    pub operator: Box<str>,
    pub value: Box<str>,
    pub effect: Box<str>,
    pub toleration_seconds: Option<i64>,
}

/// All that a pod bears. Nearly every pod has the two tolerations that the server gives it; those take no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tolerations {
    /// Five minutes on a node that isn't ready or can't be reached.
    Usual,
    /// Others.
    Own(Box<[Toleration]>),
}

static USUAL: LazyLock<[Toleration; 2]> = LazyLock::new(|| {
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        value: Box::default(),
        effect: "NoExecute".into(),
        toleration_seconds: Some(300),
    })
});

impl Tolerations {
    /// Each of them, in order.
    pub fn all(&self) -> &[Toleration] {
        match self {
            Tolerations::Usual => &*USUAL,
            Tolerations::Own(own) => own,
        }
    }
}

impl Default for Tolerations {
    fn default() -> Self {
        Tolerations::Own(Box::default())
    }
}

impl<'de> Deserialize<'de> for Tolerations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let own = Vec::<Toleration>::deserialize(deserializer)?;
        Ok(if own == *USUAL { Tolerations::Usual } else { Tolerations::Own(own.into_boxed_slice()) })
    }
}

impl Taint {
    /// A taint without a value.
    pub fn new(key: &str, effect: Effect) -> Taint {
        Taint { key: key.into(), value: Box::default(), effect, time_added: None }
    }

    /// Whether two are the same mark: key and effect count, the value doesn't.
    pub fn is_same_mark(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
            Effect::Unknown => "",
        }
    }
}

impl Toleration {
    /// Whether it bears a taint. Comparisons of numbers (`Lt`, `Gt`) are off by default in Kubernetes and bear nothing.
    pub fn bears(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || *self.effect == *taint.effect.as_str();
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match &*self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        effect && key && value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tolerations_that_the_server_gives_take_no_memory() {
        let given = json!([
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ]);
        let usual: Tolerations = serde_json::from_value(given).unwrap();
        assert_eq!((&usual, usual.all().len()), (&Tolerations::Usual, 2));
        let own: Tolerations = serde_json::from_value(json!([{"operator": "Exists"}])).unwrap();
        assert_eq!(own.all().len(), 1);
    }

    #[test]
    fn a_toleration_bears_taints_by_effect_key_and_value() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        for (toleration, bears) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "l", "operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "1"}), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(parsed.bears(&taint), bears, "{toleration}");
        }
    }
}
