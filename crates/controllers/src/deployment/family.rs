//! The sets of a deployment, as they are and as they should be.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use super::annotations::{self, Annotations};
use super::bounds::Bounds;
use super::template;
use crate::replica_set::Replicated;

/// One set, and what it should be.
#[derive(Clone, Debug)]
pub struct Member {
    /// As it is.
    pub set: Arc<ReplicaSet>,
    /// How many pods it should have.
    pub replicas: i64,
    /// The annotations that it should have.
    pub annotations: Annotations,
    /// How long its pods should have been ready to count as available.
    pub min_ready_seconds: i32,
}

/// The sets of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// The set of the deployment's template.
    pub new: Option<Member>,
    /// All others, oldest first.
    pub old: Vec<Member>,
}

impl Family {
    /// Finds the set of the deployment's template: the oldest that asks for the same pods.
    pub fn of(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>) -> Family {
        let wanted = deployment.spec.as_ref().map(|spec| &spec.template);
        let mut old: Vec<_> = sets.into_iter().map(Member::of).collect();
        old.sort_by(|one, other| one.age_order().cmp(&other.age_order()));
        let new = old.iter().position(|member| template::is_same(member.set.template(), wanted));
        Family { new: new.map(|at| old.remove(at)), old }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Member> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// How many pods all together should have.
    pub fn total(&self) -> i64 {
        self.all().map(|member| member.replicas).sum()
    }

    /// The revision that follows those of all old sets.
    pub fn next_revision(&self) -> i64 {
        let newest = self.old.iter().filter_map(|member| annotations::revision(&member.annotations)).max();
        newest.unwrap_or(0).max(0).saturating_add(1)
    }
}

impl Member {
    pub fn of(set: Arc<ReplicaSet>) -> Member {
        Member {
            replicas: i64::from(set.replicas()).max(0),
            annotations: set.metadata.annotations.clone().unwrap_or_default(),
            min_ready_seconds: set.min_ready_seconds(),
            set,
        }
    }

    pub fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    /// Oldest first; names tell those of the same second apart.
    pub fn age_order(&self) -> (Timestamp, &str) {
        let created = self.set.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        (created, self.name())
    }

    /// How many pods of it are available.
    pub fn available(&self) -> i64 {
        let status = self.set.status.as_ref();
        i64::from(status.and_then(|status| status.available_replicas).unwrap_or(0))
    }

    /// How many pods it says that it has.
    pub fn actual(&self) -> i64 {
        i64::from(self.set.status.as_ref().map_or(0, |status| status.replicas))
    }

    /// Whether it should have pods.
    pub fn is_active(&self) -> bool {
        self.replicas > 0
    }

    /// Gives it another size, and notes the deployment's.
    pub fn resize(&mut self, replicas: i64, bounds: &Bounds) {
        self.replicas = replicas.max(0);
        annotations::note_size(&mut self.annotations, bounds);
    }

    /// Whether it should be another than it is.
    pub fn has_changed(&self) -> bool {
        let was = Member::of(self.set.clone());
        (self.replicas, &self.annotations, self.min_ready_seconds)
            != (was.replicas, &was.annotations, was.min_ready_seconds)
    }

    /// Whether it has no pods, has seen its size, and isn't going already: it is kept for its template only.
    pub fn is_history(&self) -> bool {
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        !self.is_active() && self.actual() == 0 && self.set.metadata.generation.unwrap_or(0) <= observed
    }

    /// Whether it is being deleted.
    pub fn is_going(&self) -> bool {
        self.set.is_deleting()
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A set of some age, size and available pods, made when its deployment allowed so many.
    pub fn member(name: &str, replicas: i64, available: i64, most: i64) -> Member {
        let annotations =
            json!({annotations::DESIRED_REPLICAS: most.to_string(), annotations::MAX_REPLICAS: most.to_string()});
        let created =
            format!("2026-01-01T00:00:0{}Z", name.bytes().last().map_or(0, |byte| byte.wrapping_sub(b'0') % 10));
        Member::of(Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": created, "annotations": annotations, "generation": 1},
                "spec": {"replicas": replicas, "selector": {}},
                "status": {"replicas": replicas, "availableReplicas": available, "observedGeneration": 1},
            }))
            .unwrap(),
        ))
    }

    #[test]
    fn the_new_set_is_the_oldest_with_the_same_template() {
        let set = |name: &str, second: u8, image: &str| {
            Arc::new(
                serde_json::from_value::<ReplicaSet>(json!({
                    "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                    "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
                }))
                .unwrap(),
            )
        };
        let template = json!({"spec": {"containers": [{"name": "c", "image": "b"}]}});
        let deployment = json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "template": template}});
        let deployment = serde_json::from_value(deployment).unwrap();
        let family =
            Family::of(&deployment, vec![set("d", 4, "b"), set("c", 3, "b"), set("b", 2, "a"), set("a", 5, "a")]);
        assert_eq!(family.new.as_ref().map(Member::name), Some("c"));
        assert_eq!(family.old.iter().map(Member::name).collect::<Vec<_>>(), ["b", "d", "a"]);
    }

    #[test]
    fn the_next_revision_follows_the_greatest_that_can_be_read() {
        let with = |name: &str, revision: &str| {
            let mut member = member(name, 0, 0, 1);
            member.annotations.insert(annotations::REVISION.to_owned(), revision.to_owned());
            member
        };
        let family = |old| Family { new: None, old };
        assert_eq!(family(vec![]).next_revision(), 1);
        assert_eq!(
            family(vec![with("a", "4"), with("b", "odd"), with("c", "-9"), member("d", 0, 0, 1)]).next_revision(),
            5
        );
    }
}
