//! Amounts of resources by name: which names there are, what amounts they take.

use serde_json::Value;
use setpoint_api::{Quantity, name};

use crate::errors::Errors;
use crate::node::Node;

const HUGE_PAGES: &str = "hugepages-";
const REQUESTS_HUGE_PAGES: &str = "requests.hugepages-";

/// Resources that a container may ask for by a bare name.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Kinds that a quota counts.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Sums over pods and claims that a quota limits.
const SUMMED: [&str; 7] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.storage",
];

/// Rounds every amount up to thousandths, as all lists in stored objects are.
pub fn round_up(list: Option<&mut Value>) {
    for amount in list.and_then(Value::as_object_mut).into_iter().flat_map(|list| list.values_mut()) {
        let Some(quantity) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
        let rounded = Quantity::from_milli(quantity.milli_value(), quantity.format());
        if rounded > quantity && quantity.milli_value() != i64::MAX {
            *amount = rounded.to_string().into();
        }
    }
}

/// A resource name that stands on its own is one that the system knows.
pub fn validate_name(at: &Node<'_>, resource: &str, errs: &mut Errors) {
    let complaints = name::qualified_name(resource);
    if !complaints.is_empty() {
        errs.invalid_each(at, resource, complaints);
    } else if !resource.contains('/') && !is_standard(resource) {
        errs.invalid(at, resource, "must be a standard resource type or fully qualified");
    }
}

/// A resource that a container can ask for.
pub fn validate_container_name(at: &Node<'_>, resource: &str, errs: &mut Errors) {
    validate_name(at, resource, errs);
    if !resource.contains('/') {
        if !OF_CONTAINERS.contains(&resource) && !is_huge_page(resource) {
            errs.invalid(at, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errs.invalid(at, resource, "doesn't follow extended resource name standard");
    }
}

/// A resource that a quota can limit.
pub fn validate_quota_name(at: &Node<'_>, resource: &str, errs: &mut Errors) {
    validate_name(at, resource, errs);
    if !resource.contains('/') && !is_quota_standard(resource) {
        errs.invalid(at, resource, "must be a standard resource for quota");
    }
}

/// Never negative, and whole where things are counted.
pub fn validate_amount(at: &Node<'_>, resource: &str, errs: &mut Errors) {
    let Some(amount) = at.as_quantity() else { return };
    validate_non_negative(at, errs);
    if is_integer(resource) && amount.milli_value() % 1000 != 0 {
        errs.invalid_here(at, "must be an integer");
    }
}

/// Zero or more.
pub fn validate_non_negative(at: &Node<'_>, errs: &mut Errors) {
    if at.as_quantity().is_some_and(|amount| amount.is_negative()) {
        errs.invalid_here(at, "must be greater than or equal to 0");
    }
}

/// More than zero.
pub fn validate_positive(at: &Node<'_>, errs: &mut Errors) {
    if at.as_quantity().is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
        errs.invalid_here(at, "must be greater than zero");
    }
}

/// Limits of containers, under the path of `at`: names, amounts, whole huge pages.
pub fn validate_limits(at: &Node<'_>, errs: &mut Errors) {
    let (mut paged, mut computing) = (false, false);
    for (resource, amount) in at.at_child("limits").into_entries() {
        validate_container_name(&amount, resource, errs);
        validate_amount(&amount, resource, errs);
        computing |= matches!(resource, "cpu" | "memory");
        if let Some(size) = resource.strip_prefix(HUGE_PAGES) {
            paged = true;
            if !is_multiple(amount.as_quantity(), size) {
                let detail = format!("{} is not positive integer multiple of {resource}", amount.as_str());
                errs.invalid_here(&amount, detail);
            }
        }
    }
    if paged && !computing {
        errs.forbidden(at, "HugePages require cpu or memory");
    }
}

/// Whether more may be promised than there is.
pub fn allows_overcommit(resource: &str) -> bool {
    is_native(resource) && !is_huge_page(resource)
}

/// A resource of somebody else than Kubernetes, that can also be put into a quota.
pub fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && name::qualified_name(&format!("requests.{resource}")).is_empty()
}

/// Whether a quota knows the resource by this bare name.
pub fn is_quota_standard(resource: &str) -> bool {
    OF_CONTAINERS.contains(&resource)
        || SUMMED.contains(&resource)
        || COUNTED.contains(&resource)
        || is_quota_huge_page(resource)
}

/// Whether the resource counts huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES)
}

fn is_quota_huge_page(resource: &str) -> bool {
    is_huge_page(resource) || resource.starts_with(REQUESTS_HUGE_PAGES)
}

fn is_standard(resource: &str) -> bool {
    resource == "storage" || is_quota_standard(resource)
}

fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

fn is_integer(resource: &str) -> bool {
    COUNTED.contains(&resource) || is_extended(resource)
}

fn is_multiple(amount: Option<Quantity>, size: &str) -> bool {
    let (Some(amount), Ok(size)) = (amount, Quantity::parse(size)) else { return false };
    !size.is_negative() && !size.is_zero() && size.milli_value() % 1000 == 0 && amount.value() % size.value() == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_thousandths() {
        let mut list = json!({"a": "1.0001", "b": "100m", "c": "1Gi", "d": "1u"});
        round_up(Some(&mut list));
        assert_eq!(list, json!({"a": "1001m", "b": "100m", "c": "1Gi", "d": "1m"}));
    }

    #[test]
    fn names_belong_to_kubernetes_or_to_somebody_else() {
        assert!(is_extended("example.com/gpu"));
        assert!(!is_extended("kubernetes.io/gpu"));
        assert!(!is_extended("requests.example.com/gpu"));
        assert!(allows_overcommit("cpu"));
        assert!(!allows_overcommit("hugepages-2Mi"));
        assert!(is_quota_standard("requests.hugepages-2Mi"));
        assert!(!is_quota_standard("storage"));
    }
}
