//! ClusterRoleBinding: who has a cluster role everywhere.

use std::borrow::Cow;

use serde_json::Value;

use super::NAMES;
use super::role::Reach;
use super::rolebinding::{default_binding, role_cell, subjects, validate_binding, validate_binding_update};
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::name_rule::NameRule;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Role", "string", role_cell).about(
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
         Authorizer must return an error.",
    ),
    Column::AGE,
    Column::new("Users", "string", |object, _| subjects(object, "User"))
        .wide()
        .about("Users in the clusterRoleBinding"),
    Column::new("Groups", "string", |object, _| subjects(object, "Group"))
        .wide()
        .about("Groups in the clusterRoleBinding"),
    Column::new("ServiceAccounts", "string", |object, _| subjects(object, "ServiceAccount"))
        .wide()
        .about("ServiceAccounts in the clusterRoleBinding"),
];

/// The decisions of ClusterRoleBinding.
#[derive(Debug)]
pub struct ClusterRoleBinding;

impl Behaviour for ClusterRoleBinding {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_binding(object, &["ClusterRole"], Reach::Cluster, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        validate_binding_update(new, old, errs);
    }

    fn name_rule(&self) -> NameRule {
        NAMES
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}
