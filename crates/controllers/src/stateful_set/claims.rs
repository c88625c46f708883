//! The claims of a set's pods: what they are called, and what they go with.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Lister};
use setpoint_runtime::owners;

use super::identity::{ordinal_of, pod_name};
use super::plan::ClaimFacts;
use crate::pod::Pod;

/// The claims of a set.
pub struct Claims<'a> {
    pub set: &'a StatefulSet,
    pub spec: &'a StatefulSetSpec,
    pub cached: Lister<PersistentVolumeClaim>,
}

/// The pod that a claim is for.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    pub name: &'a str,
    /// Empty before there is one.
    pub uid: &'a str,
    /// Whether the set should not have it.
    pub is_condemned: bool,
}

/// The names of a pod's volumes and of the claims that they are.
pub fn names<'a>(
    set: &'a str,
    spec: &'a StatefulSetSpec,
    ordinal: i64,
) -> impl Iterator<Item = (&'a str, String)> + 'a {
    let templates = spec.volume_claim_templates.iter().flatten();
    templates.filter_map(move |template| {
        let template = template.metadata.name.as_deref()?;
        Some((template, format!("{template}-{set}-{ordinal}")))
    })
}

/// The sets that a claim wakes: those whose pods it is for, by its name.
pub fn sets_of(
    sets: &Informer<StatefulSet>,
) -> impl Fn(&PersistentVolumeClaim) -> Vec<Key> + Send + Sync + 'static + use<> {
    let sets = sets.lister();
    move |claim| {
        let key = Cached::key(claim);
        let snapshot = sets.snapshot();
        let candidates = snapshot.namespace(key.namespace().unwrap_or_default());
        candidates.filter(|set| is_of(set, key.name())).map(|set| Cached::key(&**set)).collect()
    }
}

fn is_of(set: &StatefulSet, claim: &str) -> bool {
    let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    let mut names = templates.filter_map(|template| template.metadata.name.as_deref());
    let set = set.metadata.name.as_deref().unwrap_or_default();
    names.any(|template| {
        let rest = claim.strip_prefix(template).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| ordinal_of(set, rest).is_some())
    })
}

impl Claims<'_> {
    /// The claims of the pod with an ordinal that aren't there, as they are to be made.
    pub fn missing(&self, ordinal: i64) -> Vec<PersistentVolumeClaim> {
        let templates = self.spec.volume_claim_templates.iter().flatten();
        let named = templates.zip(names(self.name(), self.spec, ordinal));
        let missing = named.filter(|(_, (_, name))| self.get(name).is_none());
        missing.map(|(template, (_, name))| self.make(template, name)).collect()
    }

    /// The claims of the pod with an ordinal that are there.
    pub fn present(&self, ordinal: i64) -> Vec<Arc<PersistentVolumeClaim>> {
        names(self.name(), self.spec, ordinal).filter_map(|(_, name)| self.get(&name)).collect()
    }

    /// The owners that a claim should have; none if those that it has are right.
    pub fn owners(&self, claim: &PersistentVolumeClaim, pod: &Claimant<'_>) -> Option<Vec<OwnerReference>> {
        owners_of(claim.metadata.owner_references.as_deref().unwrap_or_default(), self.set, self.policy(), pod)
    }

    /// Whether somebody else controls a claim that the set would let go with its pods.
    pub fn is_foreign(&self, claim: &PersistentVolumeClaim, pod: &Claimant<'_>) -> bool {
        let references = claim.metadata.owner_references.as_deref().unwrap_or_default();
        self.policy() != Policy::default() && has_other_controller(references, self.set, pod)
    }

    fn make(&self, template: &PersistentVolumeClaim, name: String) -> PersistentVolumeClaim {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(self.spec.selector.match_labels.clone().unwrap_or_default());
        let owner = owners::controller_reference(self.set).filter(|_| self.policy().deleted_with_set);
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.set.metadata.namespace.clone(),
                labels: Some(labels).filter(|labels: &BTreeMap<_, _>| !labels.is_empty()),
                annotations: template.metadata.annotations.clone(),
                finalizers: template.metadata.finalizers.clone(),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    }

    fn get(&self, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let namespace = self.set.metadata.namespace.as_deref().unwrap_or_default();
        self.cached.get(Key::namespaced(namespace, name).as_str())
    }

    fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    fn policy(&self) -> Policy {
        let policy = self.spec.persistent_volume_claim_retention_policy.as_ref();
        let is_delete = |what: Option<&String>| what.is_some_and(|what| what == "Delete");
        Policy {
            deleted_with_set: is_delete(policy.and_then(|policy| policy.when_deleted.as_ref())),
            deleted_with_pod: is_delete(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }
}

impl ClaimFacts for Claims<'_> {
    fn are_stale(&self, ordinal: i64) -> bool {
        let name = pod_name(self.name(), ordinal);
        let is_of_gone = |claim: &Arc<PersistentVolumeClaim>| {
            claim.metadata.owner_references.iter().flatten().any(|owner| is_pod(owner, &name))
        };
        self.policy().deleted_with_pod && self.present(ordinal).iter().any(is_of_gone)
    }

    fn are_missing(&self, ordinal: i64) -> bool {
        names(self.name(), self.spec, ordinal).any(|(_, name)| self.get(&name).is_none())
    }

    fn are_retained_right(&self, ordinal: i64, pod: &Pod, is_condemned: bool) -> bool {
        let pod = Claimant { name: &pod.metadata.name, uid: &pod.metadata.uid, is_condemned };
        self.present(ordinal).iter().all(|claim| self.owners(claim, &pod).is_none())
    }

    fn are_mounted(&self, ordinal: i64, pod: &Pod) -> bool {
        let mut names = names(self.name(), self.spec, ordinal);
        names.all(|(volume, claim)| pod.spec.mounts(volume, &claim))
    }
}

/// What claims go with; nothing unless told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Policy {
    deleted_with_set: bool,
    deleted_with_pod: bool,
}

/// The owners that a claim should have, if those that it has are not right.
fn owners_of(
    references: &[OwnerReference],
    set: &StatefulSet,
    policy: Policy,
    pod: &Claimant<'_>,
) -> Option<Vec<OwnerReference>> {
    let set_uid = Cached::uid(set);
    let is_stale = |owner: &&OwnerReference| {
        (is_set(owner, set) && owner.uid != set_uid) || (is_pod(owner, pod.name) && owner.uid != pod.uid)
    };
    if references.iter().any(|owner| is_stale(&owner)) {
        // It was the claim of a set or pod that is gone, and the collector will see to it.
        return None;
    }
    let owner = |uid: &str| references.iter().find(|owner| !uid.is_empty() && owner.uid == uid);
    let (of_set, of_pod) = (owner(set_uid), owner(pod.uid));
    let others = references.iter().filter(|owner| !is_set(owner, set) && !is_pod(owner, pod.name)).cloned();
    if policy != Policy::default() && has_other_controller(references, set, pod) {
        return (of_set.is_some() || of_pod.is_some()).then(|| others.collect());
    }
    let wants_pod = policy.deleted_with_pod && pod.is_condemned;
    let wants_set = policy.deleted_with_set && !wants_pod;
    let is_right = |found: Option<&OwnerReference>, wanted: bool| match found {
        Some(owner) => wanted && owner.controller == Some(true),
        None => !wanted,
    };
    if is_right(of_set, wants_set) && is_right(of_pod, wants_pod) {
        return None;
    }
    let set_owner = owners::controller_reference(set).filter(|_| wants_set);
    Some(others.chain(set_owner).chain(wants_pod.then(|| pod_owner(pod))).collect())
}

fn has_other_controller(references: &[OwnerReference], set: &StatefulSet, pod: &Claimant<'_>) -> bool {
    references.iter().any(|owner| {
        if is_set(owner, set) {
            owner.uid != Cached::uid(set)
        } else if is_pod(owner, pod.name) {
            owner.uid != pod.uid
        } else {
            owner.controller == Some(true)
        }
    })
}

fn is_set(owner: &OwnerReference, set: &StatefulSet) -> bool {
    owner.api_version == "apps/v1" && owner.kind == "StatefulSet" && Some(&owner.name) == set.metadata.name.as_ref()
}

fn is_pod(owner: &OwnerReference, name: &str) -> bool {
    owner.api_version == "v1" && owner.kind == "Pod" && owner.name == name
}

fn pod_owner(pod: &Claimant<'_>) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.to_owned(),
        uid: pod.uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> StatefulSet {
        let spec = json!({"selector": {}, "template": {}, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]});
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "s"}, "spec": spec})).unwrap()
    }

    /// Owners as `Kind/name/uid`, with `!` in front if it is no controller.
    fn owner(text: &str) -> OwnerReference {
        let (is_controller, text) = text.strip_prefix('!').map_or((true, text), |text| (false, text));
        let parts: Vec<_> = text.split('/').collect();
        OwnerReference {
            api_version: if parts[0] == "StatefulSet" { "apps/v1" } else { "v1" }.to_owned(),
            kind: parts[0].to_owned(),
            name: parts[1].to_owned(),
            uid: parts[2].to_owned(),
            controller: is_controller.then_some(true),
            block_owner_deletion: None,
        }
    }

    #[test]
    fn claims_go_with_what_the_policy_says() {
        let set = set();
        let check = |policy: (bool, bool), is_condemned: bool, has: &[&str], wanted: Option<&[&str]>| {
            let references: Vec<_> = has.iter().map(|text| owner(text)).collect();
            let policy = Policy { deleted_with_set: policy.0, deleted_with_pod: policy.1 };
            let pod = Claimant { name: "web-0", uid: "p", is_condemned };
            let found = owners_of(&references, &set, policy, &pod);
            let names = |owners: Vec<OwnerReference>| -> Vec<String> {
                owners.iter().map(|owner| format!("{}/{}/{}", owner.kind, owner.name, owner.uid)).collect()
            };
            let wanted = wanted.map(|wanted| wanted.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            assert_eq!(found.map(names), wanted, "{policy:?} {is_condemned} {has:?}");
        };
        const SET: &str = "StatefulSet/web/s";
        const POD: &str = "Pod/web-0/p";
        check((false, false), false, &[], None);
        check((false, false), false, &[SET], Some(&[]));
        check((false, false), true, &[POD, "Other/x/1"], Some(&["Other/x/1"]));
        check((true, false), false, &[], Some(&[SET]));
        check((true, false), false, &[SET], None);
        check((true, false), false, &["!StatefulSet/web/s"], Some(&[SET]));
        check((true, false), true, &[SET], None);
        check((false, true), false, &[], None);
        check((false, true), true, &[], Some(&[POD]));
        check((false, true), false, &[POD], Some(&[]));
        check((true, true), false, &[POD], Some(&[SET]));
        check((true, true), true, &[SET], Some(&[POD]));
        // Of a set or a pod of the same name that is gone.
        check((true, true), true, &["StatefulSet/web/old"], None);
        check((true, true), true, &["Pod/web-0/old"], None);
        // Somebody else controls it: it is theirs.
        check((true, false), false, &["Other/x/1"], None);
        check((true, false), false, &["Other/x/1", SET], Some(&["Other/x/1"]));
        check((true, false), false, &["!Other/x/1"], Some(&["Other/x/1", SET]));
    }

    #[test]
    fn a_claim_is_of_the_set_that_its_name_says() {
        for (claim, is_ours) in [
            ("data-web-0", true),
            ("data-web-12", true),
            ("data-web-x", false),
            ("data-db-0", false),
            ("logs-web-0", false),
            ("data-web", false),
        ] {
            assert_eq!(is_of(&set(), claim), is_ours, "{claim}");
        }
    }
}
