//! RoleBinding: who has a role in one namespace. The rules are shared with ClusterRoleBinding.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use super::super::go_value;
use super::role::Reach;
use super::{GROUP, NAMES};
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Role", "string", role_cell).about(
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef \
         cannot be resolved, the Authorizer must return an error.",
    ),
    Column::AGE,
    Column::new("Users", "string", |object, _| subjects(object, "User")).wide().about("Users in the roleBinding"),
    Column::new("Groups", "string", |object, _| subjects(object, "Group")).wide().about("Groups in the roleBinding"),
    Column::new("ServiceAccounts", "string", |object, _| subjects(object, "ServiceAccount"))
        .wide()
        .about("ServiceAccounts in the roleBinding"),
];

/// The decisions of RoleBinding.
#[derive(Debug)]
pub struct RoleBinding;

impl Behaviour for RoleBinding {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_binding(object, &["Role", "ClusterRole"], Reach::Namespace, errs);
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

pub(super) fn default_binding(object: &mut Value) {
    object.ensure("roleRef").default_to("apiGroup", GROUP);
    for subject in object.items_mut("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.default_to("apiGroup", GROUP);
        }
    }
}

pub(super) fn validate_binding(object: &Node<'_>, kinds: &[&str], reach: Reach, errs: &mut Errors) {
    let role = object.get("roleRef");
    if role.str("apiGroup") != GROUP {
        errs.not_supported(&role.get("apiGroup"), role.str("apiGroup"), &[GROUP]);
    }
    if !kinds.contains(&role.str("kind")) {
        errs.not_supported(&role.get("kind"), role.str("kind"), kinds);
    }
    let role_name = role.get("name");
    if role_name.is_empty() {
        errs.required(&role_name, "");
    } else {
        errs.invalid_each(&role_name, role_name.as_str(), name::path_segment_name(role_name.as_str()));
    }
    for subject in object.items("subjects") {
        validate_subject(&subject, reach, errs);
    }
}

/// The role of a binding is for ever: another one is another binding.
pub(super) fn validate_binding_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    metadata::validate_update(new, old, errs);
    let role = new.get("roleRef");
    if !role.same(&old.get("roleRef")) {
        let shown = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
        let shown = go_value::object(shown.map(|(go, field)| (go, json!(role.str(field)))));
        errs.invalid(&role, shown, "cannot change roleRef");
    }
}

fn validate_subject(subject: &Node<'_>, reach: Reach, errs: &mut Errors) {
    let (who, group) = (subject.get("name"), subject.get("apiGroup"));
    if who.is_empty() {
        errs.required(&who, "");
    }
    match subject.str("kind") {
        "ServiceAccount" => {
            if !who.is_empty() {
                errs.invalid_each(&who, who.as_str(), name::dns1123_subdomain(who.as_str()));
            }
            if !group.is_empty() {
                errs.not_supported(&group, group.as_str(), &[""]);
            }
            if reach == Reach::Cluster && subject.str("namespace").is_empty() {
                errs.required(&subject.get("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group.as_str() != GROUP {
                errs.not_supported(&group, group.as_str(), &[GROUP]);
            }
        }
        other => errs.not_supported(&subject.get("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

pub(super) fn role_cell(object: &Value, _now: i64) -> Value {
    json!(format!("{}/{}", object["roleRef"].text("kind"), object["roleRef"].text("name")))
}

/// The subjects of one kind in one text; service accounts with their namespaces.
pub(super) fn subjects(object: &Value, kind: &str) -> Value {
    let all = object.get("subjects").and_then(Value::as_array).map_or(&[] as &[Value], |list| list.as_slice());
    let names = all.iter().filter(|subject| subject.text("kind") == kind).map(|subject| match kind {
        "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
        _ => subject.text("name").to_owned(),
    });
    json!(names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    const V1: &str = "rbac.authorization.k8s.io/v1";

    fn binding(kind: &str, name: &str) -> Value {
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}})
    }

    #[test]
    fn groups_of_references_are_filled_in_and_subjects_shown_by_kind() {
        let mut body = binding("Role", "r");
        body["subjects"] = json!([
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
        ]);
        let object = create(V1, "rolebindings", body);
        assert_eq!(object["roleRef"]["apiGroup"], json!(GROUP));
        assert_eq!(object["subjects"][0]["apiGroup"], json!(GROUP));
        assert_eq!(object["subjects"][2].get("apiGroup"), None);
        assert_eq!(columns(V1, "rolebindings", &object), json!(["b", "Role/r", "<unknown>", "u, v", "", "n/s"]));
    }

    #[test]
    fn a_role_is_referred_to_by_kind_and_name() {
        create_fails(
            V1,
            "rolebindings",
            json!({"metadata": {"name": "b"}}),
            "[roleRef.kind: Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\", roleRef.name: Required value]",
        );
        create_fails(
            V1,
            "clusterrolebindings",
            binding("Role", "r"),
            "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
        );
    }

    #[test]
    fn a_service_account_of_the_cluster_needs_its_namespace() {
        let mut body = binding("ClusterRole", "r");
        body["subjects"] = json!([{"kind": "ServiceAccount", "name": "s"}]);
        create(V1, "rolebindings", body.clone());
        create_fails(V1, "clusterrolebindings", body, "subjects[0].namespace: Required value");
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        update_fails(
            V1,
            "rolebindings",
            binding("Role", "r"),
            binding("Role", "other"),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: \
             cannot change roleRef",
        );
    }
}
