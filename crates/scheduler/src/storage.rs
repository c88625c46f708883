//! Claims and volumes: on which nodes a pod can have them, and what has to be done for that.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use setpoint_api::quantity::Quantity;
use setpoint_runtime::Key;

use crate::fit::{Obstacles, Reason, selects};
use crate::node::Offer;
use crate::queue::Call;
use crate::wants::selector;

/// On a claim: the node of its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: it was bound once.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// A class of this provisioner has only volumes that somebody makes by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The labels of volumes that are in one zone or region.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// What is known of storage.
#[derive(Default)]
pub struct Storage {
    claims: HashMap<Key, PersistentVolumeClaim>,
    volumes: HashMap<String, PersistentVolume>,
    classes: HashMap<String, StorageClass>,
    /// Volumes that were given to a claim and aren't shown so yet.
    given: HashMap<String, Key>,
    /// How many pods on nodes have each claim.
    users: HashMap<Key, usize>,
}

/// The claims of a pod.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Those that have a volume, by its name.
    bound: Vec<String>,
    /// Those that get one when their node is known.
    waiting: Vec<Key>,
    is_in_use: bool,
    /// Where its devices are.
    pub places: Vec<NodeSelector>,
}

/// What has to be done before a pod can be bound to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The claim gets this volume.
    Give { claim: Key, uid: String, volume: String },
    /// Somebody is to make a volume for the claim where the pod will be.
    Select { claim: Key },
    /// Somebody does that already.
    Await { claim: Key },
}

impl Claims {
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.waiting.is_empty() && self.places.is_empty()
    }
}

impl Step {
    pub fn claim(&self) -> &Key {
        match self {
            Step::Give { claim, .. } | Step::Select { claim } | Step::Await { claim } => claim,
        }
    }
}

impl Storage {
    pub fn see_claim(&mut self, key: Key, claim: PersistentVolumeClaim) {
        self.claims.insert(key, claim);
    }

    pub fn lose_claim(&mut self, key: &Key) {
        self.claims.remove(key);
        self.given.retain(|_, claim| claim != key);
    }

    pub fn see_volume(&mut self, name: &str, volume: PersistentVolume) {
        if volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some()) {
            self.given.remove(name);
        }
        self.volumes.insert(name.to_owned(), volume);
    }

    pub fn lose_volume(&mut self, name: &str) {
        self.volumes.remove(name);
        self.given.remove(name);
    }

    pub fn see_class(&mut self, name: &str, class: Option<StorageClass>) {
        match class {
            Some(class) => drop(self.classes.insert(name.to_owned(), class)),
            None => drop(self.classes.remove(name)),
        }
    }

    /// A pod with this claim has come to a node, or left it.
    pub fn use_claim(&mut self, key: Key, more: bool) {
        let users = self.users.entry(key.clone()).or_default();
        *users = if more { *users + 1 } else { users.saturating_sub(1) };
        if *users == 0 {
            self.users.remove(&key);
        }
    }

    /// The claims of a pod with this key and identity; if it can be nowhere because of them, why, and what it waits for.
    pub fn claims(&self, pod: &Key, uid: &str, names: &[(Box<str>, bool)]) -> Result<Claims, (String, Vec<Call>)> {
        let namespace = pod.namespace().unwrap_or_default();
        let mut claims = Claims::default();
        let mut immediate = Vec::new();
        for (name, is_ephemeral) in names {
            let key = Key::namespaced(namespace, name);
            let refuse = |why: String| Err((why, vec![Call::Claim(key.clone())]));
            let Some(claim) = self.claims.get(&key) else {
                return refuse(match is_ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                    ),
                    false => format!("persistentvolumeclaim \"{name}\" not found"),
                });
            };
            let spec = claim.spec.clone().unwrap_or_default();
            let volume = spec.volume_name.as_deref().unwrap_or_default();
            if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
                return refuse(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                ));
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return refuse(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            if *is_ephemeral && !is_controlled_by(claim, uid) {
                return refuse(format!("PVC {key} was not created for pod {pod} (pod is not owner)"));
            }
            let is_exclusive = spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteOncePod");
            claims.is_in_use |= is_exclusive && self.users.contains_key(&key);
            if !volume.is_empty() && annotation(claim, BIND_COMPLETED).is_some() {
                claims.bound.push(volume.to_owned());
            } else if volume.is_empty() && self.waits(&spec.storage_class_name) {
                claims.waiting.push(key);
            } else {
                immediate.push(Call::Claim(key));
            }
        }
        if !immediate.is_empty() {
            immediate.push(Call::Storage);
            return Err(("pod has unbound immediate PersistentVolumeClaims".to_owned(), immediate));
        }
        Ok(claims)
    }

    /// What would have to happen for claims to fit other nodes.
    pub fn calls(&self, claims: &Claims) -> Vec<Call> {
        let calls = claims.waiting.iter().map(|key| Call::Claim(key.clone()));
        calls.chain((!claims.is_empty()).then_some(Call::Storage)).collect()
    }

    /// What has to be done to have the claims on a node, or why they can't be there.
    pub fn judge(&self, claims: &Claims, offer: &Offer) -> Result<Vec<Step>, Obstacles> {
        if claims.is_in_use {
            return Err(Obstacles::passing(Reason::ClaimInUse));
        }
        if !claims.places.iter().all(|place| selects(place, offer)) {
            return Err(Obstacles::lasting(Reason::DevicesElsewhere));
        }
        let (mut reasons, mut steps) = (Vec::new(), Vec::new());
        let affinity = |name: &String| {
            let volume = self.volumes.get(name)?;
            Some(is_reachable(volume, offer))
        };
        match claims.bound.iter().map(affinity).find(|found| *found != Some(true)) {
            Some(None) => reasons.push(Reason::LostVolume),
            Some(Some(_)) => reasons.push(Reason::VolumeElsewhere),
            None => {}
        }
        for key in &claims.waiting {
            match self.step(key, offer, &steps) {
                Some(step) => steps.push(step),
                None => {
                    reasons.push(Reason::NoVolume);
                    break;
                }
            }
        }
        if reasons.is_empty() && !claims.bound.iter().all(|name| self.is_in_zone(name, offer)) {
            reasons.push(Reason::VolumeZone);
        }
        if reasons.is_empty() { Ok(steps) } else { Err(Obstacles { reasons, is_final: true }) }
    }

    /// Volumes are given: nobody else gets them.
    pub fn give(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Give { claim, volume, .. } = step {
                self.given.insert(volume.clone(), claim.clone());
            }
        }
    }

    /// They could not be given.
    pub fn take_back(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Give { volume, .. } = step {
                self.given.remove(volume);
            }
        }
    }

    /// What a claim without a volume needs on a node; none if it can't be there.
    fn step(&self, key: &Key, offer: &Offer, taken: &[Step]) -> Option<Step> {
        let claim = self.claims.get(key)?;
        if let Some(selected) = annotation(claim, SELECTED_NODE) {
            let is_here = selected == &*offer.name && self.can_provision(claim, offer);
            return is_here.then(|| Step::Await { claim: key.clone() });
        }
        if let Some(volume) = self.volume_for(key, claim, offer, taken) {
            let uid = claim.metadata.uid.clone().unwrap_or_default();
            return Some(Step::Give { claim: key.clone(), uid, volume });
        }
        self.can_provision(claim, offer).then(|| Step::Select { claim: key.clone() })
    }

    fn can_provision(&self, claim: &PersistentVolumeClaim, offer: &Offer) -> bool {
        let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        let Some(class) = self.classes.get(name) else { return false };
        let allowed = class.allowed_topologies.as_deref().unwrap_or_default();
        let is_allowed = allowed.is_empty()
            || allowed.iter().any(|term| {
                term.match_label_expressions.iter().flatten().all(|wanted| {
                    offer.labels.get(&wanted.key).is_some_and(|found| wanted.values.iter().any(|value| value == found))
                })
            });
        !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER && is_allowed
    }

    /// The smallest volume that a claim can have on a node.
    fn volume_for(&self, key: &Key, claim: &PersistentVolumeClaim, offer: &Offer, taken: &[Step]) -> Option<String> {
        let is_free = |name: &str| {
            self.given.get(name).is_none_or(|other| other == key)
                && !taken.iter().any(|step| matches!(step, Step::Give { volume, .. } if volume == name))
        };
        let fitting = self
            .volumes
            .iter()
            .filter(|(name, volume)| is_free(name) && suits(volume, key, claim) && is_reachable(volume, offer));
        fitting.min_by_key(|(name, volume)| (capacity(volume), (*name).clone())).map(|(name, _)| name.clone())
    }

    fn waits(&self, class: &Option<String>) -> bool {
        let class = class.as_deref().and_then(|name| self.classes.get(name));
        class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
    }

    fn is_in_zone(&self, volume: &str, offer: &Offer) -> bool {
        let has_zone = ZONES.iter().any(|label| offer.labels.get(label).is_some());
        let labels = self.volumes.get(volume).and_then(|volume| volume.metadata.labels.as_ref());
        !has_zone
            || ZONES.iter().all(|label| {
                let wanted = labels.and_then(|labels| labels.get(*label));
                wanted.is_none_or(|wanted| {
                    offer.labels.get(label).is_some_and(|found| wanted.split("__").any(|zone| zone == found))
                })
            })
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether a claim was made for the pod with this identity.
fn is_controlled_by(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Whether a volume can be used on a node.
fn is_reachable(volume: &PersistentVolume, offer: &Offer) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| selects(required, offer))
}

/// Whether a volume is free, or meant for the claim, and what the claim asks for.
fn suits(volume: &PersistentVolume, key: &Key, claim: &PersistentVolumeClaim) -> bool {
    let (Some(has), Some(asks)) = (&volume.spec, &claim.spec) else { return false };
    let is_meant = has.claim_ref.as_ref().is_none_or(|claimed| {
        claimed.namespace.as_deref() == key.namespace()
            && claimed.name.as_deref() == Some(key.name())
            && claimed.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    });
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_free = has.claim_ref.is_some() || matches!(phase, Some("Available"));
    let class = |name: &Option<String>| name.clone().unwrap_or_default();
    let mode = |name: &Option<String>| name.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let has_modes =
        asks.access_modes.iter().flatten().all(|mode| has.access_modes.iter().flatten().any(|it| it == mode));
    let labels = volume.metadata.labels.clone().unwrap_or_default();
    is_meant
        && is_free
        && volume.metadata.deletion_timestamp.is_none()
        && class(&has.storage_class_name) == class(&asks.storage_class_name)
        && mode(&has.volume_mode) == mode(&asks.volume_mode)
        && has_modes
        && asks.selector.as_ref().is_none_or(|written| selector(Some(written)).matches(&labels))
        && capacity(volume) >= requested(claim)
}

fn capacity(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    amount(capacity.and_then(|capacity| capacity.get("storage")).map(|quantity| &*quantity.0))
}

fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    amount(requests.and_then(|requests| requests.get("storage")).map(|quantity| &*quantity.0))
}

fn amount(text: Option<&str>) -> i64 {
    text.and_then(|text| Quantity::parse(text).ok()).map_or(0, |quantity| quantity.value())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str) -> Key {
        Key::namespaced("shop", name)
    }

    fn claim(storage: &mut Storage, name: &str, metadata: Value, spec: Value) {
        let mut whole = json!({"name": name, "namespace": "shop", "uid": format!("uid of {name}")});
        whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let claim = json!({"metadata": whole, "spec": spec});
        storage.see_claim(key(name), serde_json::from_value(claim).unwrap());
    }

    fn asked(storage: &Storage, name: &str, is_own: bool) -> Result<Claims, String> {
        storage.claims(&key("web"), "u", &[(name.into(), is_own)]).map_err(|(why, _)| why)
    }

    fn offer(name: &str, labels: Value) -> Offer {
        let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        let node = json!({"metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"allocatable": room, "capacity": room}});
        Offer::of(serde_json::from_value(node).unwrap())
    }

    fn bound() -> Value {
        json!({"annotations": {BIND_COMPLETED: "yes"}})
    }

    #[test]
    fn a_claim_of_a_pods_own_must_be_that_very_pods() {
        let mut storage = Storage::default();
        let wait = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"web-c\"";
        assert_eq!(asked(&storage, "web-c", true).unwrap_err(), wait);
        let owned = |uid: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true});
            json!({"annotations": {BIND_COMPLETED: "yes"}, "ownerReferences": [owner]})
        };
        claim(&mut storage, "web-c", owned("earlier"), json!({"volumeName": "v"}));
        let why = "PVC shop/web-c was not created for pod shop/web (pod is not owner)";
        assert_eq!(asked(&storage, "web-c", true).unwrap_err(), why);
        claim(&mut storage, "web-c", owned("u"), json!({"volumeName": "v"}));
        assert_eq!(asked(&storage, "web-c", true).unwrap().bound, ["v"]);
    }

    #[test]
    fn a_claim_for_one_pod_is_in_use_while_a_pod_on_a_node_has_it() {
        let mut storage = Storage::default();
        claim(&mut storage, "alone", bound(), json!({"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}));
        let volume = json!({"metadata": {"name": "v"}, "spec": {}});
        storage.see_volume("v", serde_json::from_value(volume).unwrap());
        let node = offer("n", json!({}));
        let verdict = |storage: &Storage| storage.judge(&asked(storage, "alone", false).unwrap(), &node).map(drop);
        assert!(verdict(&storage).is_ok());
        storage.use_claim(key("alone"), true);
        let obstacles = verdict(&storage).unwrap_err();
        assert_eq!((obstacles.reasons, obstacles.is_final), (vec![Reason::ClaimInUse], false));
        storage.use_claim(key("alone"), false);
        assert!(verdict(&storage).is_ok());
    }

    #[test]
    fn a_volume_is_reached_where_its_affinity_and_its_zone_say() {
        let mut storage = Storage::default();
        let on = |name: &str| {
            json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]}}})
        };
        for (name, labels, spec) in
            [("local", json!({}), on("one")), ("zonal", json!({"topology.kubernetes.io/zone": "a__b"}), json!({}))]
        {
            claim(&mut storage, name, bound(), json!({"volumeName": name}));
            let volume = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
            storage.see_volume(name, serde_json::from_value(volume).unwrap());
        }
        claim(&mut storage, "lost", bound(), json!({"volumeName": "nothing"}));
        for (name, node, zone, against) in [
            ("local", "one", None, None),
            ("local", "two", None, Some(Reason::VolumeElsewhere)),
            ("zonal", "one", Some("b"), None),
            ("zonal", "one", Some("c"), Some(Reason::VolumeZone)),
            // A node that doesn't say where it is may be anywhere.
            ("zonal", "one", None, None),
            ("lost", "one", None, Some(Reason::LostVolume)),
        ] {
            let mut labels = json!({"kubernetes.io/hostname": node});
            if let Some(zone) = zone {
                labels["topology.kubernetes.io/zone"] = json!(zone);
            }
            let verdict = storage.judge(&asked(&storage, name, false).unwrap(), &offer(node, labels));
            let found = verdict.err().map(|obstacles| obstacles.reasons);
            assert_eq!(found, against.map(|reason| vec![reason]), "{name} on {node} in {zone:?}");
        }
    }

    #[test]
    fn a_claim_that_waits_gets_the_smallest_volume_of_the_node_and_nobody_else_does() {
        let mut storage = Storage::default();
        let class = json!({"metadata": {"name": "local"}, "provisioner": NO_PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer"});
        storage.see_class("local", Some(serde_json::from_value(class).unwrap()));
        for (name, node, size) in [("large", "one", "9Gi"), ("small", "one", "2Gi"), ("other", "two", "1Gi")] {
            let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
            let volume = json!({"metadata": {"name": name}, "status": {"phase": "Available"}, "spec": {"storageClassName": "local",
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "nodeAffinity": affinity}});
            storage.see_volume(name, serde_json::from_value(volume).unwrap());
        }
        let asks = json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}});
        claim(&mut storage, "first", json!({}), asks.clone());
        claim(&mut storage, "second", json!({}), asks.clone());
        claim(&mut storage, "third", json!({}), asks);
        let one = offer("one", json!({"kubernetes.io/hostname": "one"}));
        let given = |storage: &mut Storage, name: &str| {
            let claims = asked(storage, name, false).unwrap();
            let steps = storage.judge(&claims, &one).map_err(|obstacles| obstacles.reasons)?;
            storage.give(&steps);
            Ok(steps
                .into_iter()
                .map(|step| match step {
                    Step::Give { volume, .. } => volume,
                    Step::Select { .. } | Step::Await { .. } => "made".to_owned(),
                })
                .collect::<Vec<_>>())
        };
        assert_eq!(given(&mut storage, "first"), Ok(vec!["small".to_owned()]));
        assert_eq!(given(&mut storage, "second"), Ok(vec!["large".to_owned()]));
        assert_eq!(given(&mut storage, "third"), Err(vec![Reason::NoVolume]));
    }
}
