//! Who may do what: the roles and bindings that are stored, as of this moment.
//!
//! Nothing is allowed unless a binding gives it, but for the little that a vehicle may do by being one. Members of `system:masters`
//! may do everything: they hold a certificate that only who can read the server's folder can make. Start at [`Access::allows`].

mod asked;
pub(crate) mod escalation;
mod impersonation;
pub(crate) mod node;
mod policies;
mod rule;
pub(crate) mod vehicle;

use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use setpoint_api::{GroupResource, Status, fields};
use setpoint_store::{Mark, Snapshot, Store, WatchError};
use tokio::sync::watch;

pub(crate) use asked::{Asked, Narrowed, What};
pub(crate) use impersonation::{Acting, impersonated};
pub(crate) use policies::{Outcome, Policies};
pub(crate) use rule::{Rule, uncovered};

use crate::call::Call;
use crate::definitions::follow;
use crate::server::Inner;
use crate::user::User;

/// The group of those who may do everything.
pub(crate) const MASTERS: &str = "system:masters";

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Where roles and bindings are stored.
static STORED: LazyLock<[GroupResource; 4]> = LazyLock::new(|| {
    ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(|plural| GroupResource::new(GROUP, plural))
});

/// The policies of the moment: read from the store, and read again whenever one has changed.
pub(crate) struct Access {
    read: RwLock<Read>,
    /// Held while they are read anew: once is enough.
    reading: Mutex<()>,
    /// Moves whenever a policy may have changed.
    changes: watch::Sender<()>,
}

#[derive(Clone, Default)]
struct Read {
    marks: [Mark; 4],
    policies: Arc<Policies>,
}

impl Default for Access {
    fn default() -> Access {
        Access { read: RwLock::new(Read::default()), reading: Mutex::new(()), changes: watch::Sender::new(()) }
    }
}

impl Access {
    /// Whether a user may do something, and if not, the refusal.
    pub(crate) fn check(&self, store: &Store, user: &User, asked: &Asked<'_>) -> Result<(), Box<Status>> {
        if user.is_master() {
            return Ok(());
        }
        match self.judge(store, user, asked) {
            (true, _) => Ok(()),
            (false, reason) => Err(Box::new(refusal(user, asked, &reason))),
        }
    }

    /// What a user gets for an answer, with the reason.
    pub(crate) fn judge(&self, store: &Store, user: &User, asked: &Asked<'_>) -> (bool, String) {
        if user.is_master() || vehicle::allows(store, user, asked) {
            return (true, String::new());
        }
        let as_node = match node::of(user) {
            Some(node) => node::judge(&store.snapshot(), user, node, asked),
            None => Err(String::new()),
        };
        let Err(refused) = as_node else { return (true, String::new()) };
        let policies = self.current(store);
        let outcome: Outcome<'_> = policies.judge(user, asked);
        let reason = outcome.reason();
        if outcome.is_allowed() {
            return (true, reason);
        }
        let said = [refused, reason].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        (false, said.join("\n"))
    }

    /// The policies that fit what is stored now.
    pub(crate) fn current(&self, store: &Store) -> Arc<Policies> {
        let snapshot = store.snapshot();
        match self.known(&marks(&snapshot)) {
            Some(policies) => policies,
            None => self.read_anew(store),
        }
    }

    fn known(&self, marks: &[Mark; 4]) -> Option<Arc<Policies>> {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        (read.marks == *marks).then(|| Arc::clone(&read.policies))
    }

    fn read_anew(&self, store: &Store) -> Arc<Policies> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken anew: an older state never replaces a newer one.
        let snapshot = store.snapshot();
        let marks = marks(&snapshot);
        if let Some(policies) = self.known(&marks) {
            return policies;
        }
        let policies = Arc::new(Policies::read(&snapshot, &STORED));
        let read = Read { marks, policies: Arc::clone(&policies) };
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = read;
        policies
    }
}

/// Tells those who wait for it that policies have changed, until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    let follow = || STORED.each_ref().map(|resource| follow(&server.store, resource));
    let tell = async {
        while let [Ok(mut a), Ok(mut b), Ok(mut c), Ok(mut d)] = follow() {
            server.access.changes.send_replace(());
            let result = tokio::select! {
                result = a.next() => result,
                result = b.next() => result,
                result = c.next() => result,
                result = d.next() => result,
            };
            if matches!(result, Err(WatchError::Closed)) {
                return;
            }
        }
    };
    server.until_stopped(tell).await;
}

/// Waits until the one who watches may not do so any more. Never, for those who may do everything.
pub(crate) fn revoked(call: &Call<'_>) -> Option<impl Future<Output = ()> + Send + use<>> {
    if call.internal || call.user.is_master() {
        return None;
    }
    let (access, store, user) = (Arc::clone(&call.server.access), call.server.store.clone(), call.user.clone());
    let owned = |text: &str| text.to_owned();
    let (group, resource) = (owned(&call.kind().group), owned(&call.kind().plural));
    let subresource = owned(call.subresource.unwrap_or_default());
    let selected = fields::Selector::parse(call.query.get("fieldSelector")).ok();
    let exactly = |field: &str| selected.as_ref().and_then(|selector| selector.exact_match(field)).map(owned);
    let name = call.name.map(owned).or_else(|| exactly("metadata.name")).unwrap_or_default();
    let (namespace, on_node) = (owned(call.namespace.unwrap_or_default()), exactly("spec.nodeName"));
    let mut changes = access.changes.subscribe();
    Some(async move {
        let what = What::Resource {
            group: &group,
            resource: &resource,
            subresource: &subresource,
            namespace: &namespace,
            name: &name,
        };
        let asked = Asked { verb: "watch", what, on_node: on_node.as_deref() };
        while changes.changed().await.is_ok() {
            if !access.judge(&store, &user, &asked).0 {
                return;
            }
        }
        std::future::pending().await
    })
}

/// That who changes an object may make it: there is none yet.
pub(crate) fn check_create(call: &Call<'_>) -> Result<(), Box<Status>> {
    if call.internal {
        return Ok(());
    }
    let what = What::Resource {
        group: &call.kind().group,
        resource: &call.kind().plural,
        subresource: "",
        namespace: call.namespace.unwrap_or_default(),
        name: call.object_name(),
    };
    call.server.access.check(&call.server.store, call.user, &Asked::new("create", what))
}

fn marks(snapshot: &Snapshot) -> [Mark; 4] {
    STORED.each_ref().map(|resource| snapshot.mark(resource))
}

/// The answer to someone who may not.
pub(crate) fn refusal(user: &User, asked: &Asked<'_>, reason: &str) -> Status {
    let mut message = asked.refused_to(&user.name);
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    match asked.what {
        What::Resource { group, resource, name, .. } => {
            Status::forbidden(&GroupResource::new(group, resource), name, message)
        }
        What::Path(_) => Status::forbidden(&GroupResource::new("", ""), "", message),
    }
}

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
