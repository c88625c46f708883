//! Cluster roles that are made of others have the rules of those.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::{Wiring, selector};

const NAME: &str = "clusterrole-aggregation-controller";

/// Adds the controller. Who is made of whom is known only by asking all, and there are few: they have one key together.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk(NAME)?;
    let roles: Informer<ClusterRole> = wiring.informer();
    let cache = roles.clone();
    let controller = desk
        .controller(&roles, 1)
        .predicate(Predicate::new(|_, _: &ClusterRole| false))
        .watches(&roles, |_: &ClusterRole| vec![all()])
        .build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    desk.run(controller)
}

/// The key of all roles that are made of others; no role has two parts in its key.
fn all() -> Key {
    Key::namespaced("roles", "aggregated")
}

async fn reconcile(context: Context, roles: Informer<ClusterRole>, key: Key) -> Result<Action, Error> {
    if key != all() {
        return Ok(Action::done());
    }
    let snapshot = roles.lister().snapshot();
    let roles: Vec<&ClusterRole> = snapshot.iter().map(|role| &**role).collect();
    for role in roles.iter().filter(|role| role.aggregation_rule.is_some()) {
        if let Some(rules) = plan(role, &roles)? {
            apply(&context, role, rules).await?;
        }
    }
    Ok(Action::done())
}

async fn apply(context: &Context, role: &ClusterRole, rules: Vec<PolicyRule>) -> Result<(), Error> {
    let name = role.metadata.name.as_deref().unwrap_or_default();
    // For this version only: a role that was changed meanwhile may take in nothing any more.
    let metadata = json!({"name": name, "uid": role.metadata.uid, "resourceVersion": role.metadata.resource_version});
    let patch = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
        "rules": rules});
    let api: Api<ClusterRole> = Api::all(context.client().clone());
    match api.patch(name, &PatchParams::apply(NAME).force(), &Patch::Apply(patch)).await {
        // Gone, or another of the same name.
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The rules that a role should have, if they are others than those it has.
fn plan(role: &ClusterRole, roles: &[&ClusterRole]) -> Result<Option<Vec<PolicyRule>>, Error> {
    let Some(aggregation) = &role.aggregation_rule else { return Ok(None) };
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let selector = selector::read(Some(selector)).map_err(|error| Error::terminal(error.to_string()))?;
        let empty = std::collections::BTreeMap::new();
        let selected = roles.iter().filter(|other| {
            other.metadata.name != role.metadata.name
                && selector.matches(other.metadata.labels.as_ref().unwrap_or(&empty))
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            let rule = plain(rule);
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    let has: Vec<PolicyRule> = role.rules.iter().flatten().map(plain).collect();
    Ok((has != rules).then_some(rules))
}

/// A rule in which nothing and an empty list are the same.
fn plain(rule: &PolicyRule) -> PolicyRule {
    let list = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: list(&rule.api_groups),
        non_resource_urls: list(&rule.non_resource_urls),
        resource_names: list(&rule.resource_names),
        resources: list(&rule.resources),
        verbs: rule.verbs.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn role(name: &str, label: Option<&str>, verbs: &[&str]) -> ClusterRole {
        let labels = label.map_or(json!({}), |label| json!({"to": label}));
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb], "resources": ["pods"]})).collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "rules": rules})).unwrap()
    }

    /// The verbs of the rules that a role gets, one each; none if it has them.
    fn planned(selectors: Value, has: &[&str], others: &[ClusterRole]) -> Option<Vec<String>> {
        let mut sum = role("sum", Some("view"), has);
        sum.aggregation_rule = serde_json::from_value(json!({"clusterRoleSelectors": selectors})).unwrap();
        let roles: Vec<&ClusterRole> = others.iter().chain([&sum]).collect();
        let rules = plan(&sum, &roles).unwrap();
        rules.map(|rules| rules.iter().map(|rule| rule.verbs.concat()).collect())
    }

    #[test]
    fn a_role_has_the_rules_of_those_that_it_selects_each_once() {
        let view = json!([{"matchLabels": {"to": "view"}}]);
        let both = json!([{"matchLabels": {"to": "view"}}, {"matchLabels": {"to": "edit"}}]);
        let others = [
            role("a", Some("view"), &["get", "list"]),
            role("b", Some("edit"), &["list", "update"]),
            role("c", None, &["delete"]),
        ];
        for (selectors, has, expected) in [
            (&view, &[][..], Some(vec!["get", "list"])),
            (&view, &["get", "list"], None),
            // What somebody wrote by hand goes, and it doesn't take in itself.
            (&view, &["get", "list", "watch"], Some(vec!["get", "list"])),
            (&both, &[], Some(vec!["get", "list", "update"])),
            (&json!([{"matchLabels": {"to": "nobody"}}]), &["get"], Some(vec![])),
            (&json!([]), &[], None),
        ] {
            let expected = expected.map(|verbs| verbs.into_iter().map(str::to_owned).collect());
            assert_eq!(planned(selectors.clone(), has, &others), expected, "{selectors} {has:?}");
        }
    }
}
