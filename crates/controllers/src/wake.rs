//! Which owners an object wakes: the one that controls it, or those that might adopt it.

use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};

use crate::claim::Claimable;

/// The keys that an object wakes: its controller, if that is of the followed kind; all owners in its namespace that select
/// it, if nobody controls it.
pub fn owner_or_adopters<O: Cached, C: Claimable>(
    owners: &Informer<O>,
    selector_of: impl Fn(&O) -> Selector + Send + Sync + 'static,
) -> impl Fn(&C) -> Vec<Key> + Send + Sync + 'static {
    let owners = owners.clone();
    move |object| {
        let key = object.key();
        let Some(namespace) = key.namespace() else { return Vec::new() };
        if let Some(controller) = object.controller() {
            let target = owners.target();
            let is_followed =
                controller.kind == target.kind && group(controller.api_version) == group(&target.api_version);
            return is_followed.then(|| Key::namespaced(namespace, controller.name)).into_iter().collect();
        }
        let snapshot = owners.lister().snapshot();
        let adopters = snapshot.namespace(namespace).filter(|owner| object.is_selected(&selector_of(owner)));
        adopters.map(|owner| owner.key()).collect()
    }
}

fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}
