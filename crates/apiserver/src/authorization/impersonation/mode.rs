//! The modes in which somebody may act as somebody else, each with its own verbs.

use setpoint_api::{Status, name};

use super::super::Asked;
use super::parts::Parts;
use super::{Acting, Wish};
use crate::user::User;

/// Tells, among the rest about a service account, on which node the pod is that holds its token.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Whom one acts as, from the narrowest to anybody at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The node on which one's own pod runs.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Users that are neither.
    UserInfo,
    /// Anybody, and with them all that they may do.
    Legacy,
}

impl Mode {
    /// All of them, in the order in which they are tried.
    pub(super) const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    /// The right to be somebody.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "impersonate",
        }
    }

    pub(super) fn is_constrained(self) -> bool {
        self != Mode::Legacy
    }

    /// Somebody else, or the refusal. None if the mode isn't for them.
    pub(super) fn check(self, wish: &Wish<'_>) -> Option<Result<Acting, Box<Status>>> {
        self.is_for(wish).then(|| {
            if self.is_constrained() {
                self.check_deed(wish)?;
            }
            let user = Parts { mode: self, wish }.check()?;
            Ok(Acting { user, constraint: self.is_constrained().then(|| self.verb()) })
        })
    }

    /// Whether somebody may do this while they act as others.
    fn check_deed(self, wish: &Wish<'_>) -> Result<(), Box<Status>> {
        let mode = self.verb().trim_start_matches("impersonate:");
        let verb = format!("impersonate-on:{mode}:{}", wish.asked.verb);
        wish.check(&Asked { verb: &verb, ..wish.asked })
    }

    fn is_for(self, wish: &Wish<'_>) -> bool {
        let wanted = wish.wanted;
        let node = node_of(&wanted.name);
        let is_account = account_of(&wanted.name).is_some();
        match self {
            Mode::AssociatedNode => {
                is_only_named(wanted)
                    && account_of(&wish.requestor.name).is_some()
                    && node.is_some_and(|node| Some(node) == own_node(wish.requestor))
            }
            Mode::ArbitraryNode => is_only_named(wanted) && node.is_some(),
            Mode::ServiceAccount => is_only_named(wanted) && is_account,
            Mode::UserInfo => node.is_none() && !is_account,
            Mode::Legacy => true,
        }
    }
}

/// Whether all the rest about somebody is left to the server.
fn is_only_named(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// The node on which the pod of a service account runs.
fn own_node(user: &User) -> Option<&str> {
    match user.extra.get(NODE_NAME).map(Vec::as_slice) {
        Some([node]) => Some(node),
        _ => None,
    }
}

/// The node that goes by this name as a user.
pub(super) fn node_of(user: &str) -> Option<&str> {
    let node = user.strip_prefix(super::super::node::PREFIX)?;
    name::dns1123_subdomain(node).is_empty().then_some(node)
}

/// The namespace and name of a service account, from its name as a user.
pub(super) fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, account) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_right = name::dns1123_label(namespace).is_empty() && name::dns1123_subdomain(account).is_empty();
    is_right.then_some((namespace, account))
}
