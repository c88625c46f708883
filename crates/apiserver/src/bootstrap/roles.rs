//! The roles that there are from the start, and who has them: those of Kubernetes and our own. Everything is read from tables of facts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use setpoint_schema::Edit;

use super::Wanted;
use crate::authorization::{GROUP, Rule, uncovered};

const ROLES: &str = include_str!("../../facts/roles.tsv");
const BINDINGS: &str = include_str!("../../facts/role-bindings.tsv");
const OWN_ROLES: &str = include_str!("../../facts/own-roles.tsv");
const OWN_BINDINGS: &str = include_str!("../../facts/own-role-bindings.tsv");

/// The roles of controllers begin so: those of Kubernetes and our own.
const CONTROLLER: &str = "system:controller:";
const OWN_CONTROLLER: &str = "setpoint:controller:";

/// Whether a later start may give a role or a binding what it lacks.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The labels by which a role takes in the rules of others begin so.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// One role of the table.
#[derive(Default)]
struct Role<'a> {
    /// The role that takes this one in.
    part_of: &'a str,
    /// The label of those that it takes in.
    takes_in: &'a str,
    rules: Vec<Value>,
}

/// All roles, then all bindings.
pub(super) fn objects() -> Vec<Wanted> {
    let mut roles = roles(ROLES);
    // Each takes in the one before it: the rules are there from the start, whoever keeps them up afterwards.
    for name in ["view", "edit", "admin"] {
        let taken = taken_in(&roles, name);
        roles.entry(("", name)).or_default().rules = taken;
    }
    objects_of(roles, BINDINGS)
}

/// The roles of what runs beside the API server, then their bindings.
pub(super) fn own_objects() -> Vec<Wanted> {
    let mut all = objects_of(roles(OWN_ROLES), OWN_BINDINGS);
    all.extend(lines(BINDINGS).filter_map(patching).flatten());
    all
}

/// Lets a controller patch what Kubernetes lets it update: ours do the same in the other way. The role and its binding in one.
fn patching(line: &'static str) -> Option<[Wanted; 2]> {
    let [namespace, name, _, role, _] = columns(line);
    let own = format!("{OWN_CONTROLLER}{}", name.strip_prefix(CONTROLLER)?);
    let rules: Vec<Value> = roles(ROLES).remove(&(namespace, role))?.rules.into_iter().filter_map(as_patch).collect();
    if rules.is_empty() || !namespace.is_empty() {
        return None;
    }
    let mut binding = binding(line);
    binding.object["metadata"] = metadata("", &own);
    binding.object["roleRef"]["name"] = json!(own);
    let role = json!({"metadata": metadata("", &own), "rules": rules});
    Some([Wanted::new(GROUP, "v1", "clusterroles", role), binding])
}

/// The rule that lets patch what this one lets update, unless it lets do both.
fn as_patch(mut rule: Value) -> Option<Value> {
    let has = |verb: &str| rule["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!(verb)));
    if !has("update") || has("patch") {
        return None;
    }
    rule["verbs"] = json!(["patch"]);
    Some(rule)
}

fn objects_of(roles: BTreeMap<(&'static str, &'static str), Role<'static>>, bindings: &'static str) -> Vec<Wanted> {
    let roles = roles.into_iter().map(|((namespace, name), role)| {
        let mut metadata = metadata(namespace, name);
        if !role.part_of.is_empty() {
            metadata["labels"][format!("{AGGREGATE}{}", role.part_of)] = json!("true");
        }
        let mut object = json!({"metadata": metadata, "rules": role.rules});
        if !role.takes_in.is_empty() {
            let label = format!("{AGGREGATE}{}", role.takes_in);
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        Wanted::new(GROUP, "v1", if namespace.is_empty() { "clusterroles" } else { "roles" }, object)
    });
    roles.chain(lines(bindings).map(binding)).collect()
}

/// Gives a stored role the rules that it lacks, or a binding its subjects; whether there were any. A role that takes in others is left
/// to who keeps it up.
pub(super) fn complete(stored: &mut Value, wanted: &Value) -> bool {
    if stored.has("aggregationRule") {
        return false;
    }
    let own = Rule::read_all(stored);
    let own: Vec<&Rule> = own.iter().collect();
    let is_covered = |rule: &Value| uncovered(&own, &[Rule::read(rule)]).is_empty();
    let list = |object: &Value, field: &str| object[field].as_array().cloned().unwrap_or_default();
    let rules: Vec<Value> = list(wanted, "rules").into_iter().filter(|rule| !is_covered(rule)).collect();
    let present = list(stored, "subjects");
    let subjects: Vec<Value> = list(wanted, "subjects").into_iter().filter(|it| !present.contains(it)).collect();
    let is_changed = !rules.is_empty() || !subjects.is_empty();
    for (field, missing) in [("rules", rules), ("subjects", subjects)] {
        if !missing.is_empty() {
            let all: Vec<Value> = list(stored, field).into_iter().chain(missing).collect();
            stored.set(field, all);
        }
    }
    is_changed
}

/// The rules of a role of the whole cluster that there is from the start.
pub(super) fn rules_of(name: &str) -> Vec<Value> {
    roles(ROLES).remove(&("", name)).map(|role| role.rules).unwrap_or_default()
}

fn roles(table: &'static str) -> BTreeMap<(&'static str, &'static str), Role<'static>> {
    let mut roles: BTreeMap<_, Role<'_>> = BTreeMap::new();
    for line in lines(table) {
        let [namespace, name, part_of, takes_in, groups, resources, names, paths, verbs] = columns(line);
        let role = roles.entry((namespace, name)).or_default();
        (role.part_of, role.takes_in) = (part_of, takes_in);
        if !verbs.is_empty() {
            role.rules.push(rule(groups, resources, names, paths, verbs));
        }
    }
    roles
}

fn rule(groups: &str, resources: &str, names: &str, paths: &str, verbs: &str) -> Value {
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let mut rule = json!({"verbs": list(verbs)});
    for (field, text) in [("resources", resources), ("resourceNames", names), ("nonResourceURLs", paths)] {
        if !text.is_empty() {
            rule[field] = json!(list(text));
        }
    }
    if !groups.is_empty() {
        let groups = groups.split(',').map(|group| if group == "core" { "" } else { group });
        rule["apiGroups"] = groups.collect();
    }
    rule
}

/// The rules of all roles that a role takes in, each once, in the order of their names.
fn taken_in(roles: &BTreeMap<(&str, &str), Role<'_>>, name: &str) -> Vec<Value> {
    let mut taken: Vec<Value> = Vec::new();
    let parts = roles.values().filter(|role| role.part_of == name);
    for rule in parts.flat_map(|role| &role.rules) {
        if !taken.contains(rule) {
            taken.push(rule.clone());
        }
    }
    taken
}

fn binding(line: &'static str) -> Wanted {
    let [namespace, name, kind, role, subjects] = columns(line);
    let subjects = subjects.split(',').filter(|subject| !subject.is_empty()).map(|subject| {
        let [kind, namespace, name] = fields(subject.splitn(3, ' '));
        match kind {
            "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": namespace}),
            _ => json!({"kind": kind, "name": name, "apiGroup": GROUP}),
        }
    });
    let subjects: Vec<Value> = subjects.collect();
    let reference = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    let object = json!({"metadata": metadata(namespace, name), "roleRef": reference, "subjects": subjects});
    let plural = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    Wanted::new(GROUP, "v1", plural, object)
}

fn metadata(namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {AUTO_UPDATE: "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

fn columns<const N: usize>(line: &str) -> [&str; N] {
    fields(line.split('\t'))
}

/// So many fields; those that the line doesn't have are empty.
fn fields<'a, const N: usize>(mut given: impl Iterator<Item = &'a str>) -> [&'a str; N] {
    std::array::from_fn(|_| given.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(plural: &str, name: &str) -> Value {
        let all = objects();
        let found = all.iter().find(|wanted| wanted.plural == plural && wanted.object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("there is no {plural} {name}")).object.clone()
    }

    #[test]
    fn our_controllers_may_patch_what_others_update() {
        let own = own_objects();
        let named = |plural: &str| {
            let name = "setpoint:controller:resourcequota-controller";
            own.iter().find(|it| it.plural == plural && it.object["metadata"]["name"] == name).unwrap().object.clone()
        };
        let rules = json!([{"verbs": ["patch"], "apiGroups": [""], "resources": ["resourcequotas/status"]}]);
        assert_eq!(named("clusterroles")["rules"], rules);
        let binding = named("clusterrolebindings");
        assert_eq!(binding["roleRef"]["name"], "setpoint:controller:resourcequota-controller");
        assert_eq!(binding["subjects"][0]["name"], "resourcequota-controller");
        assert!(own.iter().all(|it| it.object["metadata"]["name"].as_str().unwrap().starts_with("setpoint:")));
    }

    #[test]
    fn roles_are_those_of_the_table() {
        let admin = find("clusterroles", "cluster-admin");
        let everything = json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]);
        assert_eq!(admin["rules"], everything);
        let binding = find("clusterrolebindings", "cluster-admin");
        assert_eq!(binding["subjects"], json!([{"kind": "Group", "name": "system:masters", "apiGroup": GROUP}]));
        let account = find("clusterrolebindings", "system:controller:job-controller");
        let subject = json!({"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"});
        assert_eq!(account["subjects"], json!([subject]));
    }

    #[test]
    fn admin_can_what_edit_can_and_edit_what_view_can() {
        let [view, edit, admin] = ["view", "edit", "admin"].map(|name| find("clusterroles", name));
        let rules = |role: &Value| role["rules"].as_array().unwrap().clone();
        assert!(!rules(&view).is_empty());
        assert!(rules(&view).iter().all(|rule| rules(&edit).contains(rule)));
        assert!(rules(&edit).iter().all(|rule| rules(&admin).contains(rule)));
        assert_eq!(edit["metadata"]["labels"][format!("{AGGREGATE}admin")], "true");
        assert!(admin["aggregationRule"].is_object());
    }
}
