//! What is said about a namespace that is going: what could not be found, what could not be deleted, what remains.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What was found while the content of a namespace was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why not all kinds are known.
    pub discovery: Option<String>,
    /// Why content could not be deleted.
    pub failures: Vec<String>,
    /// How many objects remain, by resource.
    pub remaining: BTreeMap<String, usize>,
    /// How many objects wait for a finalizer, by finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

/// A type of condition, and what it says when all is well.
struct Kind {
    name: &'static str,
    well: (&'static str, &'static str),
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "NamespaceDeletionDiscoveryFailure",
        well: ("ResourcesDiscovered", "All resources successfully discovered"),
    },
    Kind {
        name: "NamespaceDeletionGroupVersionParsingFailure",
        well: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    },
    Kind {
        name: "NamespaceDeletionContentFailure",
        well: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    },
    Kind { name: "NamespaceContentRemaining", well: ("ContentRemoved", "All content successfully removed") },
    Kind {
        name: "NamespaceFinalizersRemaining",
        well: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    },
];

/// The conditions that follow, if they differ from those that are there.
pub fn conditions(old: &[NamespaceCondition], findings: &Findings, now: Time) -> Option<Vec<NamespaceCondition>> {
    let mut new = old.to_vec();
    for kind in &KINDS {
        let (is_bad, reason, message) = match said(kind.name, findings) {
            Some((reason, message)) => (true, reason, message),
            None => (false, kind.well.0, kind.well.1.to_owned()),
        };
        let status = if is_bad { "True" } else { "False" };
        let known = new.iter_mut().find(|condition| condition.type_ == kind.name);
        let condition = NamespaceCondition {
            type_: kind.name.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: match &known {
                Some(known) if known.status == status => known.last_transition_time.clone(),
                _ => Some(now.clone()),
            },
        };
        match known {
            Some(known) => *known = condition,
            None => new.push(condition),
        }
    }
    (new != old).then_some(new)
}

/// What is wrong.
fn said(kind: &str, findings: &Findings) -> Option<(&'static str, String)> {
    let counted = |all: &BTreeMap<String, usize>, has: &str| {
        let mut words: Vec<_> =
            all.iter().map(|(name, count)| format!("{name} {has} {count} resource instances")).collect();
        words.sort_unstable();
        words.join(", ")
    };
    match kind {
        "NamespaceDeletionDiscoveryFailure" => Some(("DiscoveryFailed", findings.discovery.clone()?)),
        "NamespaceDeletionContentFailure" if !findings.failures.is_empty() => {
            let mut failures = findings.failures.clone();
            failures.sort_unstable();
            let (count, list) = (failures.len(), failures.join(", "));
            let message = format!("Failed to delete all resource types, {count} remaining: {list}");
            Some(("ContentDeletionFailed", message))
        }
        "NamespaceContentRemaining" if !findings.remaining.is_empty() => {
            let list = counted(&findings.remaining, "has");
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {list}")))
        }
        "NamespaceFinalizersRemaining" if !findings.finalizers.is_empty() => {
            let list = counted(&findings.finalizers, "in");
            let message = format!("Some content in the namespace has finalizers remaining: {list}");
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    fn find<'a>(all: &'a [NamespaceCondition], kind: &str) -> (&'a str, &'a str, &'a str) {
        let one = all.iter().find(|condition| condition.type_ == kind).unwrap();
        (&one.status, one.reason.as_deref().unwrap(), one.message.as_deref().unwrap())
    }

    #[test]
    fn conditions_say_what_remains_and_why() {
        let findings = Findings {
            remaining: [("pods.".to_owned(), 2), ("boxes.example.com".to_owned(), 1)].into(),
            finalizers: [("example.com/hold".to_owned(), 1)].into(),
            failures: vec!["two".to_owned(), "one".to_owned()],
            discovery: None,
        };
        let all = conditions(&[], &findings, at(0)).unwrap();
        assert_eq!(all.len(), 5);
        assert_eq!(
            find(&all, "NamespaceContentRemaining"),
            (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: boxes.example.com has 1 resource instances, pods. has 2 resource instances"
            )
        );
        assert_eq!(
            find(&all, "NamespaceFinalizersRemaining").2,
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!(
            find(&all, "NamespaceDeletionContentFailure").2,
            "Failed to delete all resource types, 2 remaining: one, two"
        );
        assert_eq!(
            find(&all, "NamespaceDeletionDiscoveryFailure"),
            ("False", "ResourcesDiscovered", "All resources successfully discovered")
        );
    }

    #[test]
    fn a_condition_moves_only_when_it_changes_and_its_time_only_with_its_status() {
        let bad = Findings { remaining: [("pods.".to_owned(), 2)].into(), ..Findings::default() };
        let first = conditions(&[], &bad, at(0)).unwrap();
        assert_eq!(conditions(&first, &bad, at(9)), None);
        let fewer = Findings { remaining: [("pods.".to_owned(), 1)].into(), ..Findings::default() };
        let second = conditions(&first, &fewer, at(9)).unwrap();
        assert!(second.iter().all(|condition| condition.last_transition_time == Some(at(0))));
        let done = conditions(&second, &Findings::default(), at(9)).unwrap();
        let moved: Vec<_> = done.iter().filter(|one| one.last_transition_time == Some(at(9))).collect();
        assert_eq!((moved.len(), &*moved[0].type_), (1, "NamespaceContentRemaining"));
    }
}
