//! The claims of volumes that a pod makes.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;

use super::Pod;

/// A volume of a pod that is a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodClaim {
    /// One that is there for itself: the volume's name in the pod, and the claim's.
    Named { volume: Box<str>, claim: Box<str> },
    /// One that is made for the pod and goes with it, by the name of the volume.
    Own(Box<str>),
}

/// The index of pods by the keys of the claims that they use.
pub const BY_CLAIM: &str = "claim";

/// Adds [`BY_CLAIM`].
pub fn index(pods: &Informer<Pod>) {
    pods.add_index(BY_CLAIM, |pod| pod.claims().map(|(key, _)| key.as_str().to_owned()).collect());
}

impl Pod {
    /// The keys of the claims that it uses, and whether they are its own.
    pub fn claims(&self) -> impl Iterator<Item = (Key, bool)> {
        let key = |name: &str| Key::namespaced(&self.metadata.namespace, name);
        self.spec.claims.iter().map(move |claim| match claim {
            PodClaim::Named { claim, .. } => (key(claim), false),
            PodClaim::Own(volume) => (key(&format!("{}-{volume}", self.metadata.name)), true),
        })
    }
}

/// Reads claims from volumes.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[PodClaim]>, D::Error> {
    let volumes = Option::<Vec<Volume>>::deserialize(deserializer)?.unwrap_or_default();
    let claim = |volume: Volume| match volume.persistent_volume_claim {
        Some(source) => Some(PodClaim::Named { volume: volume.name, claim: source.claim_name }),
        None => volume.ephemeral.map(|_| PodClaim::Own(volume.name)),
    };
    Ok(volumes.into_iter().filter_map(claim).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    persistent_volume_claim: Option<Source>,
    #[serde(default)]
    ephemeral: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(default)]
    claim_name: Box<str>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_found_among_volumes() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"volumes": [
            {"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}}]}}))
            .unwrap();
        let found: Vec<_> = pod.claims().map(|(key, is_own)| (key.to_string(), is_own)).collect();
        assert_eq!(found, [("shop/data".to_owned(), false), ("shop/web-c".to_owned(), true)]);
    }
}
