//! Tokens whose signature was checked: it can't become wrong, and checking it is most of what a token costs.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use setpoint_api::Revision;

use super::{Refused, Said};
use crate::user::User;

/// Most tokens that are remembered: one for each pod of a cluster of some hundred nodes. Each is a few hundred bytes.
const REMEMBERED_MAX: usize = 16_384;

/// A token, without keeping it: its digest.
type Key = [u8; 32];

/// What tokens with a right signature say.
#[derive(Default)]
pub(super) struct Verified {
    generations: Mutex<Generations>,
}

/// Those used lately, and those used before: when the first are many, the second are forgotten.
#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<Opened>>,
    old: HashMap<Key, Arc<Opened>>,
}

/// The claims of a token, and what was found about them.
pub(super) struct Opened {
    pub(super) said: Said,
    /// Whose they are, for those who have asked.
    pub(super) user: OnceLock<Arc<User>>,
    /// The versions of the objects that it is bound to in which they were found to be the right ones, and not being deleted.
    seen: Mutex<[Option<Revision>; Bound::COUNT]>,
}

/// What a token can be bound to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Account,
    Secret,
    Pod,
    Node,
}

impl Bound {
    const COUNT: usize = 4;
}

impl Opened {
    fn new(said: Said) -> Opened {
        Opened { said, user: OnceLock::new(), seen: Mutex::default() }
    }

    /// Whether this version of an object was looked at before, and was right.
    pub(super) fn has_seen(&self, bound: Bound, revision: Revision) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[bound as usize] == Some(revision)
    }

    pub(super) fn saw(&self, bound: Bound, revision: Revision) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[bound as usize] = Some(revision);
    }
}

impl Verified {
    /// What a token says; `open` checks its signature if nobody did lately. One that is not right is never remembered.
    pub(super) fn get_or_open(
        &self,
        token: &str,
        open: impl FnOnce() -> Result<Said, Refused>,
    ) -> Result<Arc<Opened>, Refused> {
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let key: Key = digest.as_ref().try_into().expect("a digest of 32 bytes");
        if let Some(known) = self.lock().get(&key) {
            return Ok(known);
        }
        let opened = Arc::new(Opened::new(open()?));
        self.lock().insert(key, Arc::clone(&opened));
        Ok(opened)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, key: &Key) -> Option<Arc<Opened>> {
        if let Some(found) = self.young.get(key) {
            return Some(Arc::clone(found));
        }
        let found = self.old.remove(key)?;
        self.insert(*key, Arc::clone(&found));
        Some(found)
    }

    fn insert(&mut self, key: Key, opened: Arc<Opened>) {
        if self.young.len() >= REMEMBERED_MAX / 2 {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, opened);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claims, Named, Subject};
    use super::*;

    fn claims(name: &str) -> Said {
        let account = Named { name: name.to_owned(), uid: String::new() };
        let kubernetes = Subject {
            namespace: String::new(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: account,
            warnafter: None,
        };
        let (iss, jti, sub) = (String::new(), String::new(), String::new());
        Said::Bound(Box::new(Claims { aud: Vec::new(), exp: 0, iat: 0, iss, jti, kubernetes, nbf: 0, sub }))
    }

    #[test]
    fn a_signature_is_checked_once_and_a_wrong_one_every_time() {
        let verified = Verified::default();
        let mut checks = 0;
        for _ in 0..3 {
            let opened = verified.get_or_open("right", || {
                checks += 1;
                Ok(claims("a"))
            });
            let opened = opened.unwrap_or_else(|_| panic!("it is right"));
            assert!(matches!(&opened.said, Said::Bound(claims) if claims.kubernetes.serviceaccount.name == "a"));
            let wrong = verified.get_or_open("wrong", || {
                checks += 1;
                Err(Refused::Foreign)
            });
            assert_eq!(wrong.map(|_| ()), Err(Refused::Foreign));
        }
        assert_eq!(checks, 4);
    }

    #[test]
    fn not_more_than_so_many_are_remembered_and_those_in_use_stay() {
        let verified = Verified::default();
        for number in 0..REMEMBERED_MAX * 2 {
            verified.get_or_open(&number.to_string(), || Ok(claims(""))).unwrap_or_else(|_| panic!("it is right"));
            let used = verified.get_or_open("used", || match number {
                0 => Ok(claims("")),
                _ => Err(Refused::Foreign),
            });
            assert!(used.is_ok(), "forgotten after {number} others");
        }
        let generations = verified.lock();
        assert!(generations.young.len() + generations.old.len() <= REMEMBERED_MAX);
    }
}
