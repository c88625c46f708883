//! Going back to an earlier revision because an annotation asks for it; `kubectl rollout undo` changes the template by itself.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::annotations::{self, Annotations, ROLLBACK_TO};
use super::family::{Family, Member};
use super::template;
use crate::replica_set::Replicated;

/// What to do about a wish to go back. Whatever it is, the wish itself is taken away.
#[derive(Clone, Debug, PartialEq)]
pub enum Rollback {
    /// To this template, with these annotations.
    To { revision: i64, template: Box<PodTemplateSpec>, annotations: Annotations },
    /// The template is the same already.
    Unchanged,
    /// There is no earlier revision.
    NoLast,
    /// There is no such revision.
    NotFound,
}

/// The revision that an annotation asks for; zero is the last one.
pub fn wanted(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.as_ref()?.get(ROLLBACK_TO)?.parse().ok()
}

/// What to do about a wish to go back to a revision.
pub fn rollback(deployment: &Deployment, family: &Family, revision: i64) -> Rollback {
    let revision = match revision {
        0 => match last_revision(family) {
            0 => return Rollback::NoLast,
            last => last,
        },
        revision => revision,
    };
    let is_it = |member: &&Member| annotations::revision(&member.annotations) == Some(revision);
    let Some(member) = family.all().find(is_it) else { return Rollback::NotFound };
    let current = deployment.spec.as_ref().map(|spec| &spec.template);
    let Some(wanted) = member.set.template().filter(|_| !template::is_same(member.set.template(), current)) else {
        return Rollback::Unchanged;
    };
    let had = deployment.metadata.annotations.clone().unwrap_or_default();
    let own = had.into_iter().filter(|(name, _)| annotations::is_own(name));
    let others = member.annotations.clone().into_iter().filter(|(name, _)| !annotations::is_own(name));
    Rollback::To {
        revision,
        template: Box::new(template::without_hash(wanted)),
        annotations: own.chain(others).filter(|(name, _)| name != ROLLBACK_TO).collect(),
    }
}

/// The second greatest revision; zero if there is none.
fn last_revision(family: &Family) -> i64 {
    let mut revisions: Vec<_> = family.all().filter_map(|member| annotations::revision(&member.annotations)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0).max(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn member(image: &str, revision: &str) -> Member {
        let template = json!({"metadata": {"labels": {"app": "web", template::HASH: image}}, "spec": {"containers": [{"name": "c", "image": image}]}});
        let annotations = json!({annotations::REVISION: revision, "kubernetes.io/change-cause": image});
        let set = json!({"metadata": {"name": image, "annotations": annotations}, "spec": {"selector": {}, "template": template}});
        Member::of(Arc::new(serde_json::from_value(set).unwrap()))
    }

    fn check(revision: i64, family: &Family, expected: &str) {
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v3"}]}});
        let annotations = json!({ROLLBACK_TO: "0", "kubernetes.io/change-cause": "v3", annotations::REVISION: "3"});
        let deployment =
            json!({"metadata": {"annotations": annotations}, "spec": {"selector": {}, "template": template}});
        let deployment = serde_json::from_value(deployment).unwrap();
        let said = match rollback(&deployment, family, revision) {
            Rollback::To { revision, template, annotations } => format!(
                "{revision} {} {}",
                serde_json::to_value(template).unwrap()["spec"]["containers"][0]["image"],
                serde_json::to_value(annotations).unwrap(),
            ),
            other => format!("{other:?}"),
        };
        assert_eq!(said, expected, "{revision}");
    }

    #[test]
    fn a_rollback_takes_template_and_annotations_of_the_revision() {
        let all = Family {
            new: Some(member("v3", "3")),
            old: vec![member("v1", "1"), member("v2", "2"), member("vx", "odd")],
        };
        let to_two = r#"2 "v2" {"deployment.kubernetes.io/revision":"3","kubernetes.io/change-cause":"v2"}"#;
        check(0, &all, to_two);
        check(2, &all, to_two);
        check(1, &all, r#"1 "v1" {"deployment.kubernetes.io/revision":"3","kubernetes.io/change-cause":"v1"}"#);
        check(3, &all, "Unchanged");
        check(7, &all, "NotFound");
        check(0, &Family { new: Some(member("v3", "3")), old: vec![] }, "NoLast");
    }
}
