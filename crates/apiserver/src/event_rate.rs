//! How many Events a client on the network may write: a bound for each namespace and for each user, far above what anything in order
//! needs, so that nothing out of order fills the disk. Kubernetes has this as the plugin EventRateLimit, which is off by default.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use setpoint_api::Status;
use tokio::time::Instant;

use crate::authorization::{Asked, What};
use crate::user::User;

/// Events in a second, for as long as one likes; and how many at once after a pause.
const PER_SECOND: f64 = 500.0;
const AT_ONCE: f64 = 5_000.0;

/// How many namespaces and users are kept in mind. Those that have not written for ten seconds need not be.
const REMEMBERED_MAX: usize = 10_000;

/// Who has written how much lately.
#[derive(Default)]
pub(crate) struct EventRate {
    buckets: Mutex<HashMap<(Kind, String), Bucket>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Namespace,
    User,
}

/// What may still be written, as of some moment.
#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl EventRate {
    /// Counts a request if it writes an Event; 429 if there were too many.
    pub(crate) fn count(&self, user: &User, asked: &Asked<'_>) -> Result<(), Box<Status>> {
        let What::Resource { group: "" | "events.k8s.io", resource: "events", namespace, .. } = asked.what else {
            return Ok(());
        };
        if !matches!(asked.verb, "create" | "update" | "patch") {
            return Ok(());
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for (kind, key) in [(Kind::Namespace, namespace), (Kind::User, &*user.name)] {
            if !take(&mut buckets, (kind, key.to_owned()), now) {
                let message = format!("limit reached on type {kind:?} for key {key}");
                return Err(Box::new(Status::too_many_requests(message, 1)));
            }
        }
        Ok(())
    }
}

fn take(buckets: &mut HashMap<(Kind, String), Bucket>, key: (Kind, String), now: Instant) -> bool {
    if buckets.len() >= REMEMBERED_MAX && !buckets.contains_key(&key) {
        buckets.retain(|_, bucket| bucket.refilled(now) < AT_ONCE);
        // All of them are busy: one more is let through uncounted rather than held to another's account.
        if buckets.len() >= REMEMBERED_MAX {
            return true;
        }
    }
    let bucket = buckets.entry(key).or_insert(Bucket { left: AT_ONCE, at: now });
    *bucket = Bucket { left: bucket.refilled(now), at: now };
    let has_some = bucket.left >= 1.0;
    if has_some {
        bucket.left -= 1.0;
    }
    has_some
}

impl Bucket {
    fn refilled(&self, now: Instant) -> f64 {
        (self.left + now.duration_since(self.at).as_secs_f64() * PER_SECOND).min(AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn write<'a>(namespace: &'a str, verb: &'a str) -> Asked<'a> {
        Asked::new(verb, What::Resource { group: "", resource: "events", subresource: "", namespace, name: "" })
    }

    fn user(name: &str) -> User {
        User { name: name.to_owned(), ..User::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_events_are_refused_for_a_while_and_others_go_on() {
        let rate = EventRate::default();
        let (ann, bob) = (user("ann"), user("bob"));
        let mut taken = 0;
        let refused = loop {
            match rate.count(&ann, &write("default", "create")) {
                Ok(()) => taken += 1,
                Err(status) => break status,
            }
        };
        assert_eq!(taken, 5_000);
        assert_eq!((refused.code, &*refused.message), (429, "limit reached on type Namespace for key default"));
        let refused = rate.count(&ann, &write("other", "patch")).unwrap_err();
        assert_eq!(refused.message, "limit reached on type User for key ann");
        assert!(rate.count(&bob, &write("other", "create")).is_ok());
        assert!(rate.count(&ann, &write("default", "list")).is_ok(), "reading is no writing");
        tokio::time::advance(Duration::from_secs(1)).await;
        let again = (0..1_000).filter(|_| rate.count(&bob, &write("default", "create")).is_ok()).count();
        assert_eq!(again, 500);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_remembered() {
        let rate = EventRate::default();
        for number in 0..3 * REMEMBERED_MAX {
            assert!(rate.count(&user(&number.to_string()), &write("default", "create")).is_ok() || number >= 5_000);
            if number % 4_000 == 0 {
                tokio::time::advance(Duration::from_secs(20)).await;
            }
        }
        assert!(rate.buckets.lock().unwrap().len() <= REMEMBERED_MAX);
    }
}
