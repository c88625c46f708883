//! Writes of leaders: one that names its term is made only while that term lasts.
//!
//! A leader that was paused doesn't know that another has taken over, and neither does a request that it left in a
//! socket. So a leader says under which Lease it writes, and the commit itself compares that with the Lease as it is then.

use http::{HeaderMap, HeaderName, Method};
use serde::Deserialize;
use setpoint_api::quote::quote;
use setpoint_api::{GroupResource, Status};
use setpoint_store::{Key, Object, Transaction};

use crate::call::Call;
use crate::registry::Served;

/// `NAMESPACE/NAME HOLDER TRANSITIONS` of the Lease under which a write is made.
const HEADER: HeaderName = HeaderName::from_static("setpoint-fence");

/// The term of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence<'a> {
    namespace: &'a str,
    name: &'a str,
    holder: &'a str,
    transitions: i32,
}

impl<'a> Fence<'a> {
    /// The term that a request names, if it changes anything and names one.
    pub(crate) fn of(method: &Method, headers: &'a HeaderMap) -> Result<Option<Fence<'a>>, Box<Status>> {
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(None);
        }
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let fence = value.to_str().ok().filter(|_| values.next().is_none()).and_then(Fence::parse);
        fence.map(Some).ok_or_else(|| {
            let form = "must be NAMESPACE/NAME HOLDER TRANSITIONS of the Lease under which the write is made";
            Box::new(Status::bad_request(format!("the header {HEADER} {form}")))
        })
    }

    /// The holder may have spaces in its name; the other parts can't.
    fn parse(text: &'a str) -> Option<Fence<'a>> {
        let (lease, rest) = text.split_once(' ')?;
        let (namespace, name) = lease.split_once('/')?;
        let (holder, transitions) = rest.rsplit_once(' ')?;
        let transitions = transitions.parse().ok().filter(|transitions| *transitions >= 0)?;
        let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/') && !holder.is_empty();
        is_whole.then_some(Fence { namespace, name, holder, transitions })
    }

    /// Refuses a write whose term is over before any work is done for it, and one that would change nothing too.
    pub(crate) fn check(self, call: &Call<'_>) -> Result<(), Box<Status>> {
        let key = self.key();
        let lease = call.server.store.snapshot().get(key.resource(), key.namespace(), key.name());
        match is_term(lease.as_deref(), self.holder, self.transitions) {
            true => Ok(()),
            false => Err(Box::new(broken(call.served, call.object_name(), &key, lease.as_deref()))),
        }
    }

    /// The transaction, on condition that the term lasts when it is committed.
    pub(crate) fn around(self, transaction: Transaction) -> Transaction {
        let (holder, transitions) = (self.holder.to_owned(), self.transitions);
        transaction.provided(self.key(), move |lease| is_term(lease, &holder, transitions))
    }

    fn key(self) -> Key {
        Key::namespaced(GroupResource::new("coordination.k8s.io", "leases"), self.namespace, self.name)
    }
}

/// The refusal of a write whose term is over.
pub(crate) fn broken(served: &Served, name: &str, lease: &Key, actual: Option<&Object>) -> Status {
    let place = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name());
    let now = match actual.map(|lease| read(lease).spec) {
        None => "does not exist".to_owned(),
        Some(Term { holder_identity, .. }) if holder_identity.is_empty() => "is held by nobody".to_owned(),
        Some(Term { holder_identity, lease_transitions }) => {
            format!("is held by {} in term {lease_transitions}", quote(&holder_identity))
        }
    };
    let why = format!("the writer does not lead any more: the lease {place} {now}");
    Status::conflict(&served.resource, name, why)
}

fn is_term(lease: Option<&Object>, holder: &str, transitions: i32) -> bool {
    let Some(lease) = lease else { return false };
    let term = read(lease).spec;
    term.holder_identity == holder && term.lease_transitions == transitions
}

/// What a Lease says about who leads.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: Term,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Term {
    holder_identity: String,
    lease_transitions: i32,
}

/// A Lease that can't be read is held by nobody.
fn read(lease: &Object) -> Lease {
    serde_json::from_slice(lease.json()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
