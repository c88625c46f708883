//! Owners that the server said are not there. An identity never comes back, so what is here needs no second question.

use std::collections::{BTreeMap, HashMap};

use super::identity::Identity;

/// How many are remembered. Same as Kubernetes.
const ABSENT_MAX: usize = 500;

/// The owners that were asked for last and were not there.
#[derive(Default)]
pub struct Absent {
    used: HashMap<Identity, u64>,
    order: BTreeMap<u64, Identity>,
    clock: u64,
}

impl Absent {
    /// Remembers an owner; the one that nobody asked about for longest makes room.
    pub fn add(&mut self, identity: Identity) {
        self.touch(identity);
        if self.used.len() > ABSENT_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Whether it is known not to be there.
    pub fn has(&mut self, identity: &Identity) -> bool {
        let known = self.used.contains_key(identity);
        if known {
            self.touch(identity.clone());
        }
        known
    }

    fn touch(&mut self, identity: Identity) {
        self.clock += 1;
        if let Some(before) = self.used.insert(identity.clone(), self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, identity);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::identity::TypeName;
    use super::*;

    #[test]
    fn the_last_500_that_were_asked_for_are_known() {
        let kind = Arc::new(TypeName { api_version: "v1".into(), kind: "Pod".into() });
        let owner = |number: usize| Identity {
            kind: kind.clone(),
            namespace: None,
            name: "a".into(),
            uid: (&*number.to_string()).into(),
        };
        let mut absent = Absent::default();
        for number in 0..ABSENT_MAX {
            absent.add(owner(number));
        }
        assert!(absent.has(&owner(0)));
        absent.add(owner(ABSENT_MAX));
        absent.add(owner(ABSENT_MAX));
        assert!(absent.has(&owner(0)) && absent.has(&owner(ABSENT_MAX)));
        assert!(!absent.has(&owner(1)), "nobody asked for it for longest");
        assert_eq!((absent.used.len(), absent.order.len()), (ABSENT_MAX, ABSENT_MAX));
    }
}
