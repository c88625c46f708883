//! Secrets that hold the token of a service account go with their account.
//!
//! Tokens in Secrets are the old way: nobody makes them by itself any more, and they are made here for nobody. Those that are there
//! must not outlive the account that they speak for.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, Preconditions};
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;

/// The type of Secrets that hold a token.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// The index of Secrets with a token by the account that they speak for.
const BY_ACCOUNT: &str = "service account";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("serviceaccount-token-controller")?;
    let secrets: Informer<Token> = wiring.informer();
    secrets.add_index(BY_ACCOUNT, |secret| secret.account().map(|key| key.as_str().to_owned()).into_iter().collect());
    let accounts: Informer<ServiceAccount> = wiring.informer();
    let (of_account, caches) = (secrets.clone(), (secrets.clone(), accounts.clone()));
    let controller = desk
        .controller(&secrets, 5)
        .predicate(Predicate::new(|_, secret: &Token| secret.account().is_some()))
        .watches(&accounts, move |account: &ServiceAccount| {
            let (secrets, account) = (of_account.lister().snapshot(), account.key());
            secrets.by_index(BY_ACCOUNT, account.as_str()).map(|secret| secret.key()).collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), key));
    desk.run(controller)
}

async fn reconcile(
    context: Context,
    (secrets, accounts): (Informer<Token>, Informer<ServiceAccount>),
    key: Key,
) -> Result<Action, Error> {
    let Some(secret) = context.read(&secrets, &key) else { return Ok(Action::done()) };
    let Some(account) = secret.account() else { return Ok(Action::done()) };
    if accounts.lister().get(account.as_str()).is_some_and(|account| secret.is_of(&account)) {
        return Ok(Action::done());
    }
    // The cache may not have seen the account yet: the server knows.
    let namespace = account.namespace().unwrap_or_default();
    let api: Api<ServiceAccount> = Api::namespaced(context.client().clone(), namespace);
    if api.get_opt(account.name()).await?.is_some_and(|account| secret.is_of(&account)) {
        return Ok(Action::done());
    }
    let uid = Some(secret.metadata.uid.to_string());
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let api: Api<Secret> = Api::namespaced(context.client().clone(), namespace);
    match api.delete(key.name(), &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        other => Ok(other.map(|_| Action::done())?),
    }
}

/// A Secret without what it hides: only whose token it may hold.
#[derive(Debug, Deserialize)]
struct Token {
    metadata: Meta,
    #[serde(rename = "type", default)]
    kind: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/service-account.name")]
    account: Box<str>,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    account_uid: Box<str>,
}

impl Token {
    /// The account that it speaks for, if it holds a token.
    fn account(&self) -> Option<Key> {
        let name = &*self.metadata.annotations.account;
        (&*self.kind == TOKEN && !name.is_empty()).then(|| Key::namespaced(&self.metadata.namespace, name))
    }

    /// Whether it speaks for this very account. One that doesn't say which speaks for any of the name.
    fn is_of(&self, account: &ServiceAccount) -> bool {
        let uid = &*self.metadata.annotations.account_uid;
        uid.is_empty() || account.metadata.uid.as_deref() == Some(uid)
    }
}

impl Cached for Token {
    type Kind = Secret;

    fn key(&self) -> Key {
        Key::namespaced(&self.metadata.namespace, &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_speaks_for_the_account_that_it_names() {
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "robot", "namespace": "shop", "uid": "u"}})).unwrap();
        for (kind, name, uid, key, is_of) in [
            (TOKEN, "robot", "u", Some("shop/robot"), true),
            (TOKEN, "robot", "", Some("shop/robot"), true),
            (TOKEN, "robot", "earlier", Some("shop/robot"), false),
            (TOKEN, "", "u", None, true),
            ("Opaque", "robot", "u", None, true),
        ] {
            let annotations =
                json!({"kubernetes.io/service-account.name": name, "kubernetes.io/service-account.uid": uid});
            let secret =
                json!({"metadata": {"name": "t", "namespace": "shop", "annotations": annotations}, "type": kind});
            let token: Token = serde_json::from_value(secret).unwrap();
            let found = token.account().map(|key| key.to_string());
            assert_eq!((found.as_deref(), token.is_of(&account)), (key, is_of), "{kind} {name} {uid}");
        }
    }
}
