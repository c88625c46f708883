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

/// What tells, among the rest about a user, with which certificate or token they came.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The name of those who say nothing about themselves.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

impl User {
    /// Someone who says nothing about themselves.
    pub(crate) fn anonymous() -> User {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    /// The user with the group of those whose credentials were accepted, or of those who have none.
    pub(crate) fn settled(mut self) -> User {
        if !self.is_settled() {
            let group = if self.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
            self.groups.push(group.to_owned());
        }
        self
    }

    /// Whether the groups say if the credentials were accepted.
    pub(crate) fn is_settled(&self) -> bool {
        self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
    }

    /// Whether this is one of those who may do everything.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == crate::authorization::MASTERS)
    }

    /// The user in a request's extensions.
    pub fn of(extensions: &http::Extensions) -> Option<&User> {
        extensions.get::<Arc<User>>().map(|user| &**user)
    }
}

/// Says in a request's extensions that a part of this process sends it, not somebody on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InProcess;

/// Says in a request's extensions that a client certificate came with its connection and was not trusted.
///
/// It differs from none at all: kube-apiserver answers such a request with 401 and never treats it as anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCertificate;
