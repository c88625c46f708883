//! Roles and bindings, found by whom they are for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection, Snapshot};

use super::{Asked, Rule, What};
use crate::objects;
use crate::user::User;

/// All that is granted, as of one moment.
#[derive(Default)]
pub(crate) struct Policies {
    grants: Vec<Grant>,
    users: HashMap<Box<str>, Places>,
    groups: HashMap<Box<str>, Places>,
}

/// The grants of someone: those that hold everywhere, and those of one namespace.
#[derive(Default)]
struct Places {
    everywhere: Vec<Found>,
    within: HashMap<Box<str>, Vec<Found>>,
}

/// A grant, and which of its subjects it was found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    grant: usize,
    subject: usize,
}

/// What one binding gives.
struct Grant {
    /// `RoleBinding "b/default"`.
    binding: String,
    /// `Role "r"`.
    role: String,
    subjects: Vec<String>,
    /// The role's rules; or why there are none.
    rules: Result<Arc<[Rule]>, String>,
}

/// What policies say to a request.
pub(crate) struct Outcome<'a> {
    allowed_by: Option<(&'a Grant, usize)>,
    errors: Vec<&'a str>,
}

impl Outcome<'_> {
    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed_by.is_some()
    }

    /// Why, in the words of Kubernetes; empty if there is nothing to say.
    pub(crate) fn reason(&self) -> String {
        if let Some((grant, subject)) = self.allowed_by {
            return format!("RBAC: allowed by {} of {} to {}", grant.binding, grant.role, grant.subjects[subject]);
        }
        match &*self.errors {
            [] => String::new(),
            [error] => format!("RBAC: {error}"),
            errors => format!("RBAC: [{}]", errors.join(", ")),
        }
    }
}

impl Policies {
    /// Reads what is stored: cluster roles, their bindings, roles, their bindings.
    pub(super) fn read(snapshot: &Snapshot, stored: &[GroupResource; 4]) -> Policies {
        let [cluster_roles, cluster_bindings, roles, bindings] = stored;
        let roles = Roles { cluster: read_roles(snapshot, cluster_roles), local: read_roles(snapshot, roles) };
        let mut policies = Policies::default();
        for binding in list(snapshot, cluster_bindings).chain(list(snapshot, bindings)) {
            policies.add(&binding, &roles);
        }
        policies
    }

    fn add(&mut self, binding: &Value, roles: &Roles) {
        let metadata = &binding["metadata"];
        let (name, namespace) = (metadata.text("name"), metadata.text("namespace"));
        let reference = &binding["roleRef"];
        let (kind, role) = (reference.text("kind"), reference.text("name"));
        let at = self.grants.len();
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let mut shown = Vec::new();
        for (index, subject) in subjects.enumerate() {
            let (who, words) = read_subject(subject, namespace);
            shown.push(words);
            let places = match who {
                Who::User(user) => self.users.entry(user.into()).or_default(),
                Who::Group(group) => self.groups.entry(group.into()).or_default(),
                Who::Nobody => continue,
            };
            let found = Found { grant: at, subject: index };
            match namespace {
                "" => places.everywhere.push(found),
                namespace => places.within.entry(namespace.into()).or_default().push(found),
            }
        }
        let kind_of_binding = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        let slash = if namespace.is_empty() { "" } else { "/" };
        self.grants.push(Grant {
            binding: format!("{kind_of_binding} \"{name}{slash}{namespace}\""),
            role: format!("{kind} \"{role}\""),
            subjects: shown,
            rules: roles.find(kind, namespace, role),
        });
    }

    /// What is said to a request.
    pub(crate) fn judge(&self, user: &User, asked: &Asked<'_>) -> Outcome<'_> {
        let namespace = match asked.what {
            What::Resource { namespace, .. } => namespace,
            What::Path(_) => "",
        };
        let mut errors = Vec::new();
        for found in self.grants_of(user, namespace) {
            let grant = &self.grants[found.grant];
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Outcome { allowed_by: Some((grant, found.subject)), errors };
                }
                Ok(_) => {}
                Err(why) if errors.contains(&&**why) => {}
                Err(why) => errors.push(&**why),
            }
        }
        Outcome { allowed_by: None, errors }
    }

    /// All rules that a user has in a namespace.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> Vec<&Rule> {
        let found = self.grants_of(user, namespace);
        let rules = found.into_iter().filter_map(|found| self.grants[found.grant].rules.as_ref().ok());
        rules.flat_map(|rules| rules.iter()).collect()
    }

    /// In the order of bindings, those of the cluster first; each binding once.
    fn grants_of(&self, user: &User, namespace: &str) -> Vec<Found> {
        let own = self.users.get(&*user.name).into_iter();
        let all = own.chain(user.groups.iter().filter_map(|group| self.groups.get(&**group)));
        let mut found: Vec<Found> = all
            .flat_map(|places| {
                let within = places.within.get(namespace).into_iter().flatten();
                places.everywhere.iter().chain(within).copied()
            })
            .collect();
        found.sort_unstable();
        found.dedup_by_key(|found| found.grant);
        found
    }
}

/// All roles, by name, those of namespaces by namespace and name.
struct Roles {
    cluster: BTreeMap<(String, String), Arc<[Rule]>>,
    local: BTreeMap<(String, String), Arc<[Rule]>>,
}

impl Roles {
    fn find(&self, kind: &str, namespace: &str, name: &str) -> Result<Arc<[Rule]>, String> {
        let (found, what) = match kind {
            "ClusterRole" => (self.cluster.get(&(String::new(), name.to_owned())), "clusterrole"),
            _ => (self.local.get(&(namespace.to_owned(), name.to_owned())), "role"),
        };
        found.cloned().ok_or_else(|| format!("{what}.rbac.authorization.k8s.io \"{name}\" not found"))
    }
}

fn read_roles(snapshot: &Snapshot, resource: &GroupResource) -> BTreeMap<(String, String), Arc<[Rule]>> {
    let read = |role: Value| {
        let metadata = &role["metadata"];
        let key = (metadata.text("namespace").to_owned(), metadata.text("name").to_owned());
        (key, Rule::read_all(&role).into())
    };
    list(snapshot, resource).map(read).collect()
}

fn list(snapshot: &Snapshot, resource: &GroupResource) -> impl Iterator<Item = Value> {
    let selection = Selection::everything();
    let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
    snapshot.list(&query).items.into_iter().map(|object| objects::value(&object))
}

enum Who {
    User(String),
    Group(String),
    Nobody,
}

/// Whom a subject stands for, and how it is shown.
fn read_subject(subject: &Value, namespace: &str) -> (Who, String) {
    let (kind, name) = (subject.text("kind"), subject.text("name"));
    match kind {
        "ServiceAccount" => {
            let own = subject.text("namespace");
            let namespace = if own.is_empty() { namespace } else { own };
            let who = match namespace {
                "" => Who::Nobody,
                namespace => Who::User(format!("system:serviceaccount:{namespace}:{name}")),
            };
            (who, format!("ServiceAccount \"{name}/{namespace}\""))
        }
        "Group" => (Who::Group(name.to_owned()), format!("Group \"{name}\"")),
        "User" => (Who::User(name.to_owned()), format!("User \"{name}\"")),
        _ => (Who::Nobody, format!("{kind} \"{name}\"")),
    }
}
