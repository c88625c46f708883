//! The quality of service of a pod, which follows from what it asks for.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint_api::Quantity;

use crate::edit::Edit;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn quality_of_service(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut limited = true;
    if let Some(whole) = spec.find(&["resources"]) {
        add(&mut requests, whole, "requests");
        let any = whole.find(&["limits"]).and_then(Value::as_object).is_some_and(|limits| !limits.is_empty());
        let found = add(&mut limits, whole, "limits");
        limited = !any || found == COMPUTE.len();
    } else {
        let list = |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
        for container in list("containers").chain(list("initContainers")) {
            let resources = &container["resources"];
            add(&mut requests, resources, "requests");
            limited &= add(&mut limits, resources, "limits") == COMPUTE.len();
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let met = requests.iter().all(|(name, request)| limits.get(name) == Some(request));
    if limited && met && requests.len() == limits.len() { "Guaranteed" } else { "Burstable" }
}

type Amounts = BTreeMap<&'static str, Quantity>;

/// Adds what is more than nothing, and tells how many of the two were.
fn add(total: &mut Amounts, resources: &Value, side: &str) -> usize {
    let mut found = 0;
    for name in COMPUTE {
        let amount = resources.find(&[side, name]).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok());
        if let Some(amount) = amount.filter(|amount| *amount > Quantity::ZERO) {
            found += 1;
            total.entry(name).and_modify(|sum| sum.add(&amount)).or_insert(amount);
        }
    }
    found
}
