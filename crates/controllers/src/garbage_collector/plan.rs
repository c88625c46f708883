//! What becomes of an object, given how its owners are.

use super::node::Facts;

/// How an owner is that an object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is there and stays, or goes without regard to its dependents.
    Solid,
    /// It isn't there.
    Dangling,
    /// It is being deleted and waits for its dependents to be deleted first.
    Waiting,
}

/// What else is known of the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Situation {
    pub has_dependents: bool,
    /// One of its dependents is being deleted and waits for its own: a circle, perhaps.
    pub dependent_waits: bool,
    pub facts: Facts,
}

/// What becomes of its dependents when an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Orphan,
    Foreground,
    Background,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// It is owned by others still: the references at these places go.
    LetGo(Vec<usize>),
    /// Nobody owns it.
    Delete {
        policy: Policy,
        /// First no owner waits for it any more: it may be in a circle of objects that wait for each other.
        unblock: bool,
    },
}

/// What to do with an object with these owners.
pub fn plan(owners: &[Standing], situation: Situation) -> Verdict {
    let is = |wanted: Standing| owners.contains(&wanted);
    if owners.is_empty() {
        return Verdict::Keep;
    }
    if is(Standing::Solid) {
        let others = owners.iter().enumerate().filter(|(_, standing)| **standing != Standing::Solid);
        let places: Vec<_> = others.map(|(place, _)| place).collect();
        return if places.is_empty() { Verdict::Keep } else { Verdict::LetGo(places) };
    }
    if is(Standing::Waiting) && situation.has_dependents {
        return Verdict::Delete { policy: Policy::Foreground, unblock: situation.dependent_waits };
    }
    Verdict::Delete { policy: policy(situation.facts), unblock: false }
}

/// The policy that an object's own finalizers ask for.
pub fn policy(facts: Facts) -> Policy {
    match facts {
        Facts { orphans: true, .. } => Policy::Orphan,
        Facts { waits: true, .. } => Policy::Foreground,
        _ => Policy::Background,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners as letters (solid, dangling, waiting), and the situation in words.
    fn check(owners: &str, situation: &str, expected: Verdict) {
        let owners: Vec<_> = owners
            .chars()
            .map(|letter| match letter {
                's' => Standing::Solid,
                'd' => Standing::Dangling,
                _ => Standing::Waiting,
            })
            .collect();
        let has = |word: &str| situation.split(' ').any(|other| other == word);
        let facts = Facts { deleting: false, orphans: has("orphans"), waits: has("waits") };
        let situation = Situation { has_dependents: has("parent"), dependent_waits: has("circle"), facts };
        assert_eq!(plan(&owners, situation), expected, "{owners:?} {situation:?}");
    }

    #[test]
    fn an_object_goes_when_no_owner_is_solid() {
        let delete = |policy| Verdict::Delete { policy, unblock: false };
        check("", "parent", Verdict::Keep);
        check("s", "", Verdict::Keep);
        check("ss", "orphans waits", Verdict::Keep);
        check("sd", "", Verdict::LetGo(vec![1]));
        check("dsw", "parent circle", Verdict::LetGo(vec![0, 2]));
        check("d", "", delete(Policy::Background));
        check("dd", "parent", delete(Policy::Background));
        check("d", "waits", delete(Policy::Foreground));
        check("d", "waits orphans", delete(Policy::Orphan));
        check("w", "", delete(Policy::Background));
        check("w", "waits", delete(Policy::Foreground));
        check("wd", "parent", delete(Policy::Foreground));
        check("w", "parent orphans", delete(Policy::Foreground));
        check("w", "parent circle", Verdict::Delete { policy: Policy::Foreground, unblock: true });
        check("d", "parent circle", delete(Policy::Background));
    }
}
