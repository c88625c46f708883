//! What somebody is made of, each part a right of its own: name, identity, groups and the rest.

use setpoint_api::field::aggregate;
use setpoint_api::{FieldError, Path, Status, name, quote::quote};

use super::super::{Asked, MASTERS, What, node, refusal};
use super::Wish;
use super::mode::{Mode, account_of, node_of};
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

const AUTHENTICATION: &str = "authentication.k8s.io";

/// From so many groups or values on, the right to take any of them is looked for first.
const MANY: usize = 4;

/// Who is wanted, to be allowed in one mode.
pub(super) struct Parts<'a> {
    pub(super) mode: Mode,
    pub(super) wish: &'a Wish<'a>,
}

impl Parts<'_> {
    /// Somebody with all their groups, if the one who asks may be them.
    pub(super) fn check(&self) -> Result<User, Box<Status>> {
        let wanted = self.wish.wanted;
        self.check_name()?;
        if !wanted.uid.is_empty() {
            self.check_part(AUTHENTICATION, "uids", "", &wanted.uid)?;
        }
        self.check_groups()?;
        self.check_extra()?;
        Ok(User { groups: self.groups(), ..wanted.clone() })
    }

    fn check_name(&self) -> Result<(), Box<Status>> {
        let wanted = &*self.wish.wanted.name;
        let account = account_of(wanted);
        let (resource, namespace, name) = match (account, self.node()) {
            (Some((namespace, name)), _) => ("serviceaccounts", namespace, name),
            // A right to be one's own node is a right to be each of them, as it is to upstream, which remembers it for all nodes.
            (None, Some(_)) if self.mode == Mode::AssociatedNode => ("nodes", "", "*"),
            (None, Some(node)) => ("nodes", "", node),
            (None, None) => ("users", "", wanted),
        };
        let what = What::Resource { group: self.api_group(), resource, subresource: "", namespace, name };
        self.wish.check(&Asked::new(self.mode.verb(), what))
    }

    fn check_groups(&self) -> Result<(), Box<Status>> {
        let groups = &self.wish.wanted.groups;
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return self.refuse("groups", "", "impersonating the empty string group is not allowed");
            }
            if groups.iter().any(|group| group == MASTERS) {
                return self.refuse("groups", MASTERS, "impersonating the system:masters group is not allowed");
            }
            if groups.len() >= MANY && self.check_part(self.api_group(), "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check_part(self.api_group(), "groups", "", group))
    }

    fn check_extra(&self) -> Result<(), Box<Status>> {
        let extra = &self.wish.wanted.extra;
        if self.mode.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| what_is_wrong(key, values)) {
                return self.refuse("userextras", "", &why);
            }
            let is_large = extra.len() >= MANY || extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if is_large && self.check_part(AUTHENTICATION, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        let mut all = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        all.try_for_each(|(key, value)| self.check_part(AUTHENTICATION, "userextras", key, value))
    }

    /// The groups that somebody has, with those that are theirs by what they are.
    fn groups(&self) -> Vec<String> {
        let wanted = self.wish.wanted;
        let mut groups = match (account_of(&wanted.name), self.node()) {
            (Some((namespace, _)), _) if wanted.groups.is_empty() => {
                vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
            }
            (None, Some(_)) => vec![node::GROUP.to_owned()],
            _ => wanted.groups.clone(),
        };
        let has = |group: &str| groups.iter().any(|one| one == group);
        let more = match wanted.name == ANONYMOUS {
            true => Some(UNAUTHENTICATED).filter(|group| !has(group)),
            false => Some(AUTHENTICATED).filter(|group| !has(group) && !has(UNAUTHENTICATED)),
        };
        groups.extend(more.map(str::to_owned));
        groups
    }

    /// The node that is wanted. To the old verb, nodes are users like others.
    fn node(&self) -> Option<&str> {
        node_of(&self.wish.wanted.name).filter(|_| self.mode.is_constrained())
    }

    /// Where names and groups belong.
    fn api_group(&self) -> &'static str {
        if self.mode.is_constrained() { AUTHENTICATION } else { "" }
    }

    fn check_part(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Result<(), Box<Status>> {
        let what = What::Resource { group, resource, subresource, namespace: "", name };
        self.wish.check(&Asked::new(self.mode.verb(), what))
    }

    /// The answer to those who want what nobody gets.
    fn refuse(&self, resource: &str, name: &str, why: &str) -> Result<(), Box<Status>> {
        let what = What::Resource { group: AUTHENTICATION, resource, subresource: "", namespace: "", name };
        Err(Box::new(refusal(self.wish.requestor, &Asked::new(self.mode.verb(), what), why)))
    }
}

/// Why nobody may be given such a value, but by the old verb.
fn what_is_wrong(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let (root, wrong) = (Path::root("extra"), name::domain_prefixed_path(key));
    let at = root.child("key");
    let errors: Vec<_> = wrong.into_iter().map(|(part, complaint)| FieldError::invalid(&at, part, complaint)).collect();
    if let Some(errors) = aggregate(&errors) {
        return Some(format!("impersonating an invalid key in extra is not allowed: {errors}"));
    }
    if key.to_lowercase() != key {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    let is_empty = values.iter().any(String::is_empty);
    is_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}
