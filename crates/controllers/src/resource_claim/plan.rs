//! What a claim should be, and what is left of it when those go who use it.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use setpoint_runtime::cache::Cached;

use crate::pod::Pod;

/// On a claim: what the pod calls it that it was made for.
const OF_POD: &str = "resource.kubernetes.io/pod-claim-name";

/// Keeps a claim that has devices until they are taken back.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Longest beginning of a name that leaves room for what the server adds.
const NAME_MAX: usize = 57;

/// The pods that use a claim. Users of other kinds are for others to judge.
pub fn users(claim: &ResourceClaim) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    let all = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    all.filter(|user| user.api_group.as_deref().unwrap_or_default().is_empty() && user.resource == "pods")
}

/// The pod that a claim was made for: its name and its uid.
pub fn owner(claim: &ResourceClaim) -> Option<(&str, &str)> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let found = owners.find(|it| it.controller == Some(true) && it.api_version == "v1" && it.kind == "Pod")?;
    Some((&found.name, &found.uid))
}

/// Whether a claim was made for a pod, under this name.
pub fn is_for(claim: &ResourceClaim, pod: &Pod, name: &str) -> bool {
    let called = claim.metadata.annotations.as_ref().and_then(|all| all.get(OF_POD));
    owner(claim).is_some_and(|(_, uid)| *uid == *pod.metadata.uid) && called.is_some_and(|called| called == name)
}

/// The claim that a pod was told to use instead of this one that was made for it too.
pub fn used_instead<'a>(claim: &ResourceClaim, pod: &'a Pod) -> Option<&'a str> {
    let called = claim.metadata.annotations.as_ref()?.get(OF_POD)?;
    let told = pod.status.resource_claims.iter().find(|it| *it.name == **called)?;
    told.claim.as_deref().filter(|used| claim.metadata.name.as_deref() != Some(used))
}

/// Whether a pod will never run again, or never begin to.
pub fn is_done(pod: &Pod) -> bool {
    pod.has_ended() || (pod.is_deleting() && pod.spec.node_name.is_empty())
}

/// The claim that a pod gets under this name.
pub fn make(pod: &Pod, name: &str, template: &ResourceClaimTemplate) -> ResourceClaim {
    let described = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = described.annotations.unwrap_or_default();
    annotations.insert(OF_POD.to_owned(), name.to_owned());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.to_string(),
        uid: pod.metadata.uid.to_string(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(beginning(&pod.metadata.name, name)),
            namespace: Some(pod.metadata.namespace.to_string()),
            labels: described.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// How the name of a claim begins: both names, each cut by its share if they are long.
fn beginning(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= NAME_MAX {
        return whole;
    }
    // Names of objects are plain ASCII.
    let cut = |text: &str| text[..text.len() * NAME_MAX / whole.len()].to_owned();
    format!("{}-{}", cut(pod), cut(claim))
}

/// What to do with a claim.
#[derive(Debug, Default, PartialEq)]
pub struct Tidy {
    /// Who uses it from now on, if it is others than before.
    pub users: Option<Vec<ResourceClaimConsumerReference>>,
    /// Whether it gives its devices back.
    pub gives_back: bool,
    /// Whether nothing keeps it any more.
    pub lets_go: bool,
    /// Whether it goes.
    pub goes: bool,
}

impl Tidy {
    /// What to do if these users, by uid, are gone, and if it was made for a pod that needs it no more.
    pub fn of(claim: &ResourceClaim, gone: &[String], is_needless: bool) -> Tidy {
        let status = claim.status.clone().unwrap_or_default();
        let before = status.reserved_for.unwrap_or_default();
        let left: Vec<_> = before.iter().filter(|user| !gone.contains(&user.uid)).cloned().collect();
        let is_kept = claim.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER);
        let (loses, is_free) = (left.len() < before.len(), left.is_empty());
        let ends = is_kept && is_free && (loses || claim.metadata.deletion_timestamp.is_some());
        Tidy {
            users: loses.then_some(left),
            gives_back: ends && status.allocation.is_some(),
            lets_go: ends,
            goes: is_free && is_needless && claim.metadata.deletion_timestamp.is_none(),
        }
    }

    /// The claim without what keeps it.
    pub fn let_go(claim: &mut ResourceClaim) {
        claim.metadata.finalizers.get_or_insert_default().retain(|it| it != FINALIZER);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(users: Value, finalizer: bool, deleted: bool) -> ResourceClaim {
        let finalizers = if finalizer { json!([FINALIZER]) } else { json!([]) };
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "c", "finalizers": finalizers, "deletionTimestamp": deleted},
            "spec": {}, "status": {"allocation": {}, "reservedFor": users},
        }))
        .unwrap()
    }

    fn user(uid: &str) -> Value {
        json!({"resource": "pods", "name": uid, "uid": uid})
    }

    #[test]
    fn a_claim_gives_its_devices_back_with_its_last_user() {
        let check = |users: Value, finalizer, deleted, gone: &[&str], needless, expected: [bool; 4]| {
            let gone: Vec<String> = gone.iter().map(|uid| (*uid).to_owned()).collect();
            let found = Tidy::of(&claim(users.clone(), finalizer, deleted), &gone, needless);
            let found = [found.users.is_some(), found.gives_back, found.lets_go, found.goes];
            assert_eq!(found, expected, "{users} {finalizer} {deleted} {gone:?} {needless}");
        };
        check(json!([user("a"), user("b")]), true, false, &[], false, [false; 4]);
        check(json!([user("a"), user("b")]), true, false, &["a"], true, [true, false, false, false]);
        check(json!([user("a")]), true, false, &["a"], false, [true, true, true, false]);
        check(json!([user("a")]), false, false, &["a"], true, [true, false, false, true]);
        check(json!([]), true, false, &[], false, [false; 4]);
        check(json!([]), true, true, &[], false, [false, true, true, false]);
        check(json!([]), false, false, &[], true, [false, false, false, true]);
    }

    #[test]
    fn long_names_are_cut_by_their_share() {
        assert_eq!(beginning("web", "gpu"), "web-gpu-");
        let (pod, claim) = ("p".repeat(60), "c".repeat(30));
        let name = beginning(&pod, &claim);
        assert!(name.len() <= NAME_MAX && name.contains("p-c"), "{name}");
    }
}
