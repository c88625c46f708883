//! Claims of devices: whether a pod has them. Nobody here gives devices away; a pod waits until somebody else has.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1 as api;
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Cached;

use crate::pod::{Owner, Pod};
use crate::queue::Call;

/// One claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Somebody else's, by its name.
    Named(Box<str>),
    /// One that was made for the pod.
    Made(Box<str>),
    /// One that is to be made for it.
    Unmade,
}

/// What is known of claims and their classes.
#[derive(Default)]
pub struct Devices {
    claims: HashMap<Key, Claim>,
    classes: BTreeSet<Box<str>>,
}

/// Why a pod can be nowhere because of its claims.
pub struct Lack {
    pub why: String,
    /// Whether it is that nobody has given it devices.
    pub is_unallocated: bool,
    pub calls: Vec<Call>,
}

/// The claims that a pod asks for. Those that turned out to be needless are left out.
pub fn wanted(pod: &Pod) -> Box<[Wanted]> {
    let made = |name: &str| pod.status.resource_claim_statuses.iter().find(|it| *it.name == *name);
    let wanted = pod.spec.resource_claims.iter().filter_map(|it| match (&it.resource_claim_name, made(&it.name)) {
        (Some(name), _) => Some(Wanted::Named(name.clone())),
        (None, Some(made)) => made.resource_claim_name.clone().map(Wanted::Made),
        (None, None) => Some(Wanted::Unmade),
    });
    wanted.collect()
}

impl Devices {
    pub fn see_claim(&mut self, key: Key, claim: Claim) {
        self.claims.insert(key, claim);
    }

    pub fn lose_claim(&mut self, key: &Key) {
        self.claims.remove(key);
    }

    pub fn see_class(&mut self, name: &str, is_there: bool) {
        match is_there {
            true => drop(self.classes.insert(name.into())),
            false => drop(self.classes.remove(name)),
        }
    }

    /// Where the devices of a pod can be used; if it hasn't got them all, why.
    pub fn places(&self, pod: &Key, uid: &str, wanted: &[Wanted]) -> Result<Vec<&NodeSelector>, Lack> {
        let (namespace, mut places) = (pod.namespace().unwrap_or_default(), Vec::new());
        for one in wanted {
            let (name, is_own) = match one {
                Wanted::Named(name) => (name, false),
                Wanted::Made(name) => (name, true),
                Wanted::Unmade => {
                    let why = format!("pod \"{namespace}/{}\": ResourceClaim not created yet", pod.name());
                    return Err(Lack { why, is_unallocated: false, calls: Vec::new() });
                }
            };
            let key = Key::namespaced(namespace, name);
            let lack = |why: String| Lack { why, is_unallocated: false, calls: vec![Call::Device(key.clone())] };
            let Some(claim) = self.claims.get(&key) else {
                return Err(lack(format!("resourceclaim.resource.k8s.io \"{name}\" not found")));
            };
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(lack(format!("resourceclaim \"{name}\" is being deleted")));
            }
            if is_own && !claim.metadata.owner_references.iter().any(|it| it.controller && *it.uid == *uid) {
                let pod = format!("{namespace}/{}", pod.name());
                return Err(lack(format!(
                    "ResourceClaim {namespace}/{name} was not created for Pod {pod} (Pod is not owner)"
                )));
            }
            match &claim.status.allocation {
                Some(allocation) => places.extend(&allocation.node_selector),
                None => return Err(self.unallocated(claim, lack(String::new()))),
            }
        }
        Ok(places)
    }

    fn unallocated(&self, claim: &Claim, lack: Lack) -> Lack {
        let asked = claim.spec.devices.requests.iter().flat_map(|request| {
            let exactly = request.exactly.iter().map(|it| (request.name.to_string(), &it.device_class_name));
            let or = request.first_available.iter();
            exactly.chain(or.map(|it| (format!("{}/{}", request.name, it.name), &it.device_class_name)))
        });
        let mut missing = asked.filter(|(_, class)| !self.classes.contains(*class));
        match missing.next() {
            Some((request, class)) => {
                let why = format!("request {request}: device class {class} does not exist");
                let calls = lack.calls.into_iter().chain([Call::DeviceClass]).collect();
                Lack { why, is_unallocated: false, calls }
            }
            None => Lack { why: "cannot allocate all claims".to_owned(), is_unallocated: true, ..lack },
        }
    }
}

/// A claim as the scheduler reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct Claim {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    owner_references: Box<[Owner]>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    devices: Asked,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    requests: Box<[Request]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    name: Box<str>,
    exactly: Option<Exact>,
    first_available: Box<[Exact]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Exact {
    name: Box<str>,
    device_class_name: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Allocation {
    node_selector: Option<NodeSelector>,
}

impl Cached for Claim {
    type Kind = api::ResourceClaim;

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told of a pod with one claim, made for it or not, that looks so; with the device class `gpu`.
    fn told(wanted: Wanted, claim: Option<Value>) -> String {
        let mut devices = Devices::default();
        devices.see_class("gpu", true);
        if let Some(mut claim) = claim {
            claim["metadata"]["name"] = json!("c");
            devices.see_claim(Key::namespaced("shop", "c"), serde_json::from_value(claim).unwrap());
        }
        match devices.places(&Key::namespaced("shop", "p"), "u", &[wanted]) {
            Ok(places) => format!("{} places", places.len()),
            Err(lack) => lack.why,
        }
    }

    fn asking(class: &str) -> Value {
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class}}]}})
    }

    #[test]
    fn a_pod_waits_until_its_claims_are_made_and_devices_are_given() {
        let named = || Wanted::Named("c".into());
        let own = json!({"ownerReferences": [{"controller": true, "uid": "u"}]});
        let place = json!({"allocation": {"nodeSelector": {"nodeSelectorTerms": [{}]}}});
        for (wanted, claim, expected) in [
            (Wanted::Unmade, None, "pod \"shop/p\": ResourceClaim not created yet"),
            (named(), None, "resourceclaim.resource.k8s.io \"c\" not found"),
            (named(), Some(json!({"metadata": {}, "spec": asking("gpu")})), "cannot allocate all claims"),
            (
                named(),
                Some(json!({"metadata": {}, "spec": asking("fpga")})),
                "request r: device class fpga does not exist",
            ),
            (
                named(),
                Some(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
                "resourceclaim \"c\" is being deleted",
            ),
            (
                Wanted::Made("c".into()),
                Some(json!({"metadata": {}, "status": {"allocation": {}}})),
                "ResourceClaim shop/c was not created for Pod shop/p (Pod is not owner)",
            ),
            (Wanted::Made("c".into()), Some(json!({"metadata": own, "status": {"allocation": {}}})), "0 places"),
            (named(), Some(json!({"metadata": {}, "status": place})), "1 places"),
        ] {
            assert_eq!(told(wanted, claim.clone()), expected, "{claim:?}");
        }
    }

    #[test]
    fn claims_of_a_pod_are_known_by_its_spec_and_its_status() {
        let spec = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "other"},
            {"name": "b", "resourceClaimTemplateName": "t"}, {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimTemplateName": "t"}]});
        let status = json!({"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "d"}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
        let expected = [Wanted::Named("other".into()), Wanted::Made("p-b-x".into()), Wanted::Unmade];
        assert_eq!(*wanted(&pod), expected);
    }
}
