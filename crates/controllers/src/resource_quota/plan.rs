//! Which amounts a quota limits, and who counts them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, ScopedResourceSelectorRequirement as Scope};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::usage::{OF_DEVICE_CLASS, Usage};

/// Who counts an amount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    Pods,
    Services,
    Claims,
    /// Devices that are claimed.
    Devices,
    /// Objects of a kind, by plural and group.
    Objects(String, String),
}

/// Who counts the amount of this name; nobody knows what others mean.
pub fn counter(name: &str) -> Option<Counter> {
    let objects = |plural: &str, group: &str| Some(Counter::Objects(plural.to_owned(), group.to_owned()));
    match name {
        "pods" | "count/pods" | "cpu" | "memory" | "ephemeral-storage" => Some(Counter::Pods),
        "services" | "services.loadbalancers" | "services.nodeports" => Some(Counter::Services),
        "persistentvolumeclaims" | "requests.storage" => Some(Counter::Claims),
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => objects(name, ""),
        _ if name.contains(".storageclass.storage.k8s.io/") => Some(Counter::Claims),
        _ if name.ends_with(OF_DEVICE_CLASS) => Some(Counter::Devices),
        _ if name.starts_with("requests.") || name.starts_with("limits.") || name.starts_with("hugepages-") => {
            Some(Counter::Pods)
        }
        _ => {
            let (plural, group) = name.strip_prefix("count/").map(|rest| rest.split_once('.').unwrap_or((rest, "")))?;
            objects(plural, group)
        }
    }
}

/// The scopes of a quota, in one form.
pub fn scopes(quota: &ResourceQuota) -> Vec<Scope> {
    let spec = quota.spec.clone().unwrap_or_default();
    let plain = spec.scopes.unwrap_or_default().into_iter();
    let plain = plain.map(|name| Scope { scope_name: name, operator: "Exists".to_owned(), values: None });
    let selected = spec.scope_selector.and_then(|selector| selector.match_expressions).unwrap_or_default();
    plain.chain(selected).collect()
}

/// What the status should say, if it doesn't.
pub fn status(
    quota: &ResourceQuota,
    used: &Usage,
    counted: impl Fn(&str) -> bool,
) -> Option<(BTreeMap<String, Text>, BTreeMap<String, Text>)> {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let names = hard.keys().filter(|name| counted(name));
    let amounts: BTreeMap<String, Text> = names
        .map(|name| (name.clone(), Text(used.0.get(name).map_or_else(|| "0".to_owned(), ToString::to_string))))
        .collect();
    let status = quota.status.clone().unwrap_or_default();
    let same = |one: &BTreeMap<String, Text>, other: Option<&BTreeMap<String, Text>>| {
        Usage::read(Some(one)) == Usage::read(other)
    };
    let is_so = same(&hard, status.hard.as_ref()) && same(&amounts, status.used.as_ref());
    (!is_so).then_some((hard, amounts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint_api::quantity::Quantity;

    use super::*;

    #[test]
    fn each_amount_has_who_counts_it() {
        let objects = |plural: &str, group: &str| Some(Counter::Objects(plural.to_owned(), group.to_owned()));
        for (name, expected) in [
            ("pods", Some(Counter::Pods)),
            ("count/pods", Some(Counter::Pods)),
            ("limits.memory", Some(Counter::Pods)),
            ("requests.example.com/gpu", Some(Counter::Pods)),
            ("requests.storage", Some(Counter::Claims)),
            ("fast.storageclass.storage.k8s.io/requests.storage", Some(Counter::Claims)),
            ("gpu.deviceclass.resource.k8s.io/devices", Some(Counter::Devices)),
            ("services.nodeports", Some(Counter::Services)),
            ("configmaps", objects("configmaps", "")),
            ("count/services", objects("services", "")),
            ("count/deployments.apps", objects("deployments", "apps")),
            ("count/widgets.example.com", objects("widgets", "example.com")),
            ("nonsense", None),
        ] {
            assert_eq!(counter(name), expected, "{name}");
        }
    }

    #[test]
    fn a_status_is_written_when_amounts_differ_not_when_they_are_said_otherwise() {
        let quota = |status: serde_json::Value| -> ResourceQuota {
            serde_json::from_value(json!({"spec": {"hard": {"cpu": "1", "nonsense": "1"}}, "status": status})).unwrap()
        };
        let used = Usage([("cpu".to_owned(), Quantity::parse("500m").unwrap())].into());
        let counted = |name: &str| name != "nonsense";
        let hard = json!({"cpu": "1000m", "nonsense": "1"});
        assert!(status(&quota(json!({"hard": hard, "used": {"cpu": "0.5"}})), &used, counted).is_none());
        let (_, amounts) = status(&quota(json!({"hard": hard, "used": {"cpu": "1"}})), &used, counted).unwrap();
        assert_eq!(json!(amounts), json!({"cpu": "500m"}));
    }
}
