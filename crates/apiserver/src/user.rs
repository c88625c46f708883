//! Who a request is from.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The one that a request is from, as far as its credentials prove it.
///
/// It travels in a request's extensions as `Arc<User>`, so that one connection's requests share it; read it with
/// [`User::of`]. A request without one is from nobody known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `kubernetes-admin` or `system:serviceaccount:default:builder`.
    pub name: String,
    /// The groups that the credentials name. `system:authenticated` need not be among them.
    pub groups: Vec<String>,
    /// Tells users of the same name at different times apart; empty where the credentials have none.
    pub uid: String,
    /// What else authorization and audit may look at.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// All groups that the user is in: those that the credentials name, and everyone whose credentials were accepted.
    pub(crate) fn all_groups(&self) -> Vec<String> {
        const AUTHENTICATED: &str = "system:authenticated";
        let mut groups = self.groups.clone();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        groups
    }

    /// The user in a request's extensions.
    pub fn of(extensions: &http::Extensions) -> Option<&User> {
        extensions.get::<Arc<User>>().map(|user| &**user)
    }
}

/// Says in a request's extensions that a client certificate came with its connection and was not trusted.
///
/// It differs from none at all: kube-apiserver answers such a request with 401 and never treats it as anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCertificate;
