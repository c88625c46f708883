//! The history of a pod template: one ControllerRevision for each version that pods were made from.
//!
//! What a revision holds is a patch that puts its template back, and its name is made of a hash of that: both are as
//! Kubernetes makes them, so that `kubectl rollout history` and `undo` read ours and we read those that others made.

mod hash;
mod keep;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use setpoint_api::labels::Selector;
use setpoint_runtime::cache::{Cached, Informer, Snapshot};

use crate::claim::Claimable;

pub use hash::hash;
pub use keep::History;

/// Revisions, the oldest first.
pub type Revisions = Vec<Arc<ControllerRevision>>;

/// The label of a revision with its hash.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The label of a pod that says which revision it was made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// How many old revisions are kept unless the owner says otherwise.
pub const HISTORY_LIMIT: i32 = 10;

/// The index of revisions by the identity of their controller; those without one are under the empty name.
const BY_CONTROLLER: &str = "controller";

/// Names of revisions get a hash after this many bytes of their owner's name.
const NAME_STEM_MAX: usize = 223;

/// The cache of revisions with its index. Whoever asks first adds it.
pub fn indexed(revisions: Informer<ControllerRevision>) -> Informer<ControllerRevision> {
    revisions.add_index(BY_CONTROLLER, |revision| {
        vec![revision.controller().map(|owner| owner.uid.to_owned()).unwrap_or_default()]
    });
    revisions
}

/// The revisions that an owner has or may adopt.
pub fn candidates(snapshot: &Snapshot<ControllerRevision>, namespace: &str, owner_uid: &str) -> Revisions {
    let orphans = snapshot.by_index(BY_CONTROLLER, "").filter(|revision| is_in(revision, namespace));
    snapshot.by_index(BY_CONTROLLER, owner_uid).chain(orphans).cloned().collect()
}

fn is_in(revision: &ControllerRevision, namespace: &str) -> bool {
    revision.metadata.namespace.as_deref() == Some(namespace)
}

/// Sorts by number, then by age, then by name.
pub fn sort(revisions: &mut Revisions) {
    revisions.sort_by(|one, other| {
        let age = |revision: &ControllerRevision| revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (one.revision, age(one), &one.metadata.name).cmp(&(other.revision, age(other), &other.metadata.name))
    });
}

/// What a revision of a template holds.
pub fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision puts back; none if it holds no template.
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    let mut template = data.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// Whether a revision holds this.
pub fn holds(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|RawExtension(held)| held == data)
}

/// The name of a revision.
pub fn name(owner: &str, hash: &str) -> String {
    let stem = owner.get(..NAME_STEM_MAX.min(owner.len())).unwrap_or(owner);
    format!("{stem}-{hash}")
}

/// The name of a revision that there is.
pub fn name_of(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// The number of the next revision, given all that there are.
pub fn next_number(revisions: &[Arc<ControllerRevision>]) -> i64 {
    revisions.iter().map(|revision| revision.revision).max().map_or(1, |newest| newest.saturating_add(1))
}

/// Those that are to go: the oldest of those that nobody uses, beyond a limit. The revisions are sorted.
pub fn surplus(
    revisions: &[Arc<ControllerRevision>],
    is_used: impl Fn(&ControllerRevision) -> bool,
    limit: Option<i32>,
) -> Vec<&Arc<ControllerRevision>> {
    let unused: Vec<_> = revisions.iter().filter(|revision| !is_used(revision)).collect();
    // A limit below zero is none.
    let limit = usize::try_from(limit.unwrap_or(HISTORY_LIMIT)).unwrap_or(usize::MAX);
    let surplus = unused.len().saturating_sub(limit);
    unused.into_iter().take(surplus).collect()
}

impl Claimable for ControllerRevision {
    fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(self.metadata.labels.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64, name: &str) -> Arc<ControllerRevision> {
        let value = json!({"metadata": {"name": name}, "revision": number});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_template_comes_back_from_its_revision() {
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1", "resources": {}}]}});
        let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
        let data = data_of(&template);
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        let revision =
            ControllerRevision { data: Some(RawExtension(data.clone())), revision: 1, metadata: Default::default() };
        assert_eq!(template_of(&revision), Some(template));
        assert!(holds(&revision, &data));
        assert!(!holds(&revision, &json!({})));
    }

    #[test]
    fn a_revision_without_a_template_gives_none() {
        for data in
            [json!(null), json!({}), json!({"spec": {"template": 7}}), json!({"spec": {"template": {"spec": 1}}})]
        {
            let revision = ControllerRevision { data: Some(RawExtension(data)), ..ControllerRevision::default() };
            assert_eq!(template_of(&revision), None);
        }
    }

    #[test]
    fn the_oldest_that_nobody_uses_go_first() {
        let check = |limit: Option<i32>, used: &[&str], expected: &[&str]| {
            let mut all = vec![revision(3, "c"), revision(1, "a"), revision(2, "b"), revision(2, "bb")];
            sort(&mut all);
            let gone = surplus(&all, |revision| used.contains(&name_of(revision)), limit);
            let gone: Vec<_> = gone.into_iter().map(|revision| name_of(revision)).collect();
            assert_eq!(gone, expected, "{limit:?} {used:?}");
        };
        check(Some(0), &["c"], &["a", "b", "bb"]);
        check(Some(1), &["c"], &["a", "b"]);
        check(Some(1), &["a", "c"], &["b"]);
        check(Some(2), &["a", "c"], &[]);
        check(None, &[], &[]);
        check(Some(-1), &[], &[]);
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(name("web", "abc"), "web-abc");
        assert_eq!(name(&"w".repeat(300), "abc").len(), 223 + 4);
        assert_eq!(next_number(&[]), 1);
        assert_eq!(next_number(&[revision(7, "a"), revision(2, "b")]), 8);
        assert_eq!(next_number(&[revision(i64::MAX, "a")]), i64::MAX);
    }
}
