//! What deployments write on their sets: which revision they are, and how large all were meant to be.

use std::collections::BTreeMap;

use super::bounds::Bounds;

pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Longest history of a set's revisions, in characters.
const HISTORY_MAX: usize = 2000;

pub type Annotations = BTreeMap<String, String>;

/// Whether an annotation belongs to one object and is never copied between a deployment and its sets.
pub fn is_own(name: &str) -> bool {
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO].contains(&name)
}

/// The revision of a set; none if it can't be read, zero if it has none.
pub fn revision(annotations: &Annotations) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// A count that an annotation holds.
pub fn count(annotations: &Annotations, name: &str) -> Option<i64> {
    let text = annotations.get(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse::<i32>().ok().map(i64::from)
}

/// Notes how large a deployment is meant to be.
pub fn note_size(annotations: &mut Annotations, bounds: &Bounds) {
    annotations.insert(DESIRED_REPLICAS.to_owned(), bounds.replicas.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), bounds.most().to_string());
}

/// Gives the newest set the deployment's annotations, and the newest revision; the one that it had before becomes history.
pub fn refresh(set: &mut Annotations, deployment: &Annotations, newest: i64) {
    let had = set.get(REVISION).cloned();
    // A revision that can't be read is somebody else's doing: hands off.
    let Ok(old) = had.as_deref().filter(|text| !text.is_empty()).map_or(Ok(0), str::parse::<i64>) else { return };
    for (name, value) in deployment.iter().filter(|(name, _)| !is_own(name)) {
        set.insert(name.clone(), value.clone());
    }
    if old >= newest {
        return;
    }
    set.insert(REVISION.to_owned(), newest.to_string());
    if let Some(had) = had {
        add_to_history(set, &had);
    }
}

/// The oldest revisions go if there is no room.
fn add_to_history(set: &mut Annotations, revision: &str) {
    let history = set.get(REVISION_HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(revision);
    let length = |revisions: &[&str]| revisions.iter().map(|revision| revision.len() + 1).sum::<usize>() - 1;
    let first = (0..revisions.len()).find(|first| length(&revisions[*first..]) <= HISTORY_MAX);
    if let Some(first) = first {
        set.insert(REVISION_HISTORY.to_owned(), revisions[first..].join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn check(set: &[(&str, &str)], deployment: &[(&str, &str)], newest: i64, expected: &[(&str, &str)]) {
        let mut set = of(set);
        refresh(&mut set, &of(deployment), newest);
        assert_eq!(set, of(expected), "{deployment:?} {newest}");
    }

    #[test]
    fn the_newest_set_has_the_deployments_annotations_and_the_newest_revision() {
        check(&[], &[("a", "b"), (LAST_APPLIED, "{}"), (REVISION, "7")], 1, &[("a", "b"), (REVISION, "1")]);
        check(
            &[("a", "x"), ("own", "y"), (REVISION, "3")],
            &[("a", "b")],
            3,
            &[("a", "b"), ("own", "y"), (REVISION, "3")],
        );
        check(&[(REVISION, "9")], &[], 3, &[(REVISION, "9")]);
        check(&[(REVISION, "odd")], &[("a", "b")], 3, &[(REVISION, "odd")]);
    }

    #[test]
    fn a_set_that_is_used_again_remembers_its_revisions() {
        check(&[(REVISION, "1")], &[], 3, &[(REVISION, "3"), (REVISION_HISTORY, "1")]);
        check(&[(REVISION, "3"), (REVISION_HISTORY, "1")], &[], 5, &[(REVISION, "5"), (REVISION_HISTORY, "1,3")]);
        let long = vec!["1234"; 400].join(",");
        let mut set = of(&[(REVISION, "5678"), (REVISION_HISTORY, &long)]);
        refresh(&mut set, &Annotations::new(), 9999);
        assert_eq!(set[REVISION_HISTORY].len(), 1999);
        assert!(set[REVISION_HISTORY].ends_with("1234,5678"));
    }

    #[test]
    fn counts_are_whole_numbers_without_sign() {
        for (text, expected) in
            [("3", Some(3)), ("0", Some(0)), ("-1", None), ("+1", None), ("x", None), ("2147483648", None)]
        {
            assert_eq!(count(&of(&[(DESIRED_REPLICAS, text)]), DESIRED_REPLICAS), expected, "{text}");
        }
    }
}
