//! Every namespace has a service account `default`.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;
use crate::pod_control::is_namespace_terminating;

const DEFAULT: &str = "default";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("serviceaccount-controller")?;
    let caches = Caches { namespaces: wiring.informer(), accounts: wiring.informer() };
    let controller = desk
        .controller(&caches.namespaces, 1)
        .watches(&caches.accounts, |account: &ServiceAccount| {
            let is_default = account.metadata.name.as_deref() == Some(DEFAULT);
            account.metadata.namespace.as_deref().filter(|_| is_default).map(Key::cluster).into_iter().collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

async fn reconcile(context: Context, caches: Caches, key: Key) -> Result<Action, Error> {
    let Some(namespace) = context.read(&caches.namespaces, &key) else { return Ok(Action::done()) };
    let account = caches.accounts.lister().get(Key::namespaced(key.name(), DEFAULT).as_str());
    if account.is_none() && is_wanted(&namespace) {
        make(&context, key.name()).await?;
    }
    Ok(Action::done())
}

fn is_wanted(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

async fn make(context: &Context, namespace: &str) -> Result<(), Error> {
    let api: Api<ServiceAccount> = Api::namespaced(context.client().clone(), namespace);
    let metadata = ObjectMeta { name: Some(DEFAULT.to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    match api.create(&PostParams::default(), &account).await {
        Err(error) if retry::is_already_exists(&error) || is_namespace_terminating(&error) => Ok(()),
        // The namespace is gone.
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_namespace_that_stays_has_an_account() {
        for (deleted, phase, wanted) in [
            (None, Some("Active"), true),
            (None, None, true),
            (Some("2026-01-01T00:00:00Z"), Some("Active"), false),
            (None, Some("Terminating"), false),
        ] {
            let namespace = json!({"metadata": {"deletionTimestamp": deleted}, "status": {"phase": phase}});
            assert_eq!(is_wanted(&serde_json::from_value(namespace).unwrap()), wanted, "{deleted:?} {phase:?}");
        }
    }
}
