//! Limit ranges: what containers of a namespace get if they don't say, and what they, pods and claims may ask for.

use serde_json::Value;
use setpoint_api::{Quantity, Status};
use setpoint_schema::Edit;

use super::amounts::Amounts;
use super::pod_resources::{Side, items, stated, total_stated};
use super::{LIMIT_RANGES, forbidden, in_namespace};
use crate::call::Call;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Up to here thousandths of an amount fit into 64 bits, and are compared.
const MILLI_VALUE_MAX: i64 = i64::MAX / 1000;

/// Gives containers the default requests and limits.
pub(super) fn admit(call: &Call<'_>, pod: &mut Value) {
    for range in in_namespace(call, &LIMIT_RANGES) {
        fill_in(&range, pod);
    }
}

fn fill_in(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Amounts::default(), Amounts::default());
    for limit in items(&range["spec"], "limits").filter(|limit| limit.text("type") == "Container") {
        Amounts::read(&limit["defaultRequest"]).iter().for_each(|(name, amount)| requests.set(name, amount.clone()));
        Amounts::read(&limit["default"]).iter().for_each(|(name, amount)| limits.set(name, amount.clone()));
    }
    let mut told = Vec::new();
    for (list, noun) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod.ensure("spec").items_mut(list) {
            for (field, word, defaults) in [("requests", "request", &requests), ("limits", "limit", &limits)] {
                let present = Amounts::read(&container["resources"][field]);
                let missing = defaults.filtered(|name, _| !present.has(name));
                if missing.is_empty() {
                    continue;
                }
                let names: Vec<&str> = missing.names().collect();
                told.push(format!("{} {word} for {noun} {}", names.join(", "), container.text("name")));
                let amounts = container.ensure("resources").ensure(field);
                missing.iter().for_each(|(name, amount)| amounts.set(name, amount.to_string()));
            }
        }
    }
    if !told.is_empty() {
        let text = format!("LimitRanger plugin set: {}", told.join("; "));
        pod.ensure("metadata").ensure("annotations").set(ANNOTATION, text);
    }
}

/// Refuses a pod or a claim that asks for less or more than a range of its namespace allows.
pub(super) fn check(call: &Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    for range in in_namespace(call, &LIMIT_RANGES) {
        let limits = items(&range["spec"], "limits");
        let complaints: Vec<String> = match &*call.kind().plural {
            "pods" => limits.flat_map(|limit| of_pod(limit, object)).collect(),
            _ => limits.flat_map(|limit| of_claim(limit, object)).collect(),
        };
        if let Some(why) = aggregate(complaints) {
            return Err(forbidden(call, object, why));
        }
    }
    Ok(())
}

/// Several complaints as one text, each once.
fn aggregate(complaints: Vec<String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(complaints.len());
    for complaint in complaints {
        if !distinct.contains(&complaint) {
            distinct.push(complaint);
        }
    }
    match distinct.len() {
        0 | 1 => distinct.pop(),
        _ => Some(format!("[{}]", distinct.join(", "))),
    }
}

fn of_pod(limit: &Value, pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    match limit.text("type") {
        "Container" => items(spec, "containers")
            .chain(items(spec, "initContainers"))
            .flat_map(|container| {
                let asked =
                    Asked { requests: stated(container, Side::Requests), limits: stated(container, Side::Limits) };
                asked.complaints(limit)
            })
            .collect(),
        "Pod" => {
            let asked = Asked { requests: total_stated(pod, Side::Requests), limits: total_stated(pod, Side::Limits) };
            asked.complaints(limit)
        }
        _ => Vec::new(),
    }
}

fn of_claim(limit: &Value, claim: &Value) -> Vec<String> {
    if limit.text("type") != "PersistentVolumeClaim" {
        return Vec::new();
    }
    // Limits of a claim are nobody's input.
    let asked = Asked { requests: stated(&claim["spec"], Side::Requests), limits: Amounts::default() };
    let (min, max) = (Amounts::read(&limit["min"]), Amounts::read(&limit["max"]));
    let too_little = min.iter().filter_map(|(name, amount)| asked.too_little("PersistentVolumeClaim", name, amount));
    let too_much =
        max.iter().filter_map(|(name, amount)| asked.too_much_requested("PersistentVolumeClaim", name, amount));
    too_little.chain(too_much).collect()
}

/// What a container, a pod or a claim asks for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn complaints(&self, limit: &Value) -> Vec<String> {
        let kind = limit.text("type");
        let bounds = |field: &str| Amounts::read(&limit[field]);
        let (min, max, ratio) = (bounds("min"), bounds("max"), bounds("maxLimitRequestRatio"));
        let too_little = min.iter().filter_map(|(name, amount)| self.too_little(kind, name, amount));
        let too_much = max.iter().filter_map(|(name, amount)| self.too_much(kind, name, amount));
        let too_uneven = ratio.iter().filter_map(|(name, amount)| self.too_uneven(kind, name, amount));
        too_little.chain(too_much).chain(too_uneven).collect()
    }

    /// Request, limit and bound at a precision that all of them have.
    fn compared(&self, name: &str, bound: &Quantity) -> (i64, i64, i64) {
        let zero = Quantity::ZERO;
        let request = self.requests.get(name).unwrap_or(&zero);
        let limit = self.limits.get(name).unwrap_or(&zero);
        let all = [request, limit, bound];
        let [request, limit, bound] = match all.iter().all(|amount| amount.value() <= MILLI_VALUE_MAX) {
            true => all.map(Quantity::milli_value),
            false => all.map(Quantity::value),
        };
        (request, limit, bound)
    }

    fn too_little(&self, kind: &str, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit, least) = self.compared(name, bound);
        let said = format!("minimum {name} usage per {kind} is {bound}");
        let Some(asked) = self.requests.get(name) else { return Some(format!("{said}.  No request is specified")) };
        if request < least {
            return Some(format!("{said}, but request is {asked}"));
        }
        self.limits.get(name).filter(|_| limit < least).map(|limit| format!("{said}, but limit is {limit}"))
    }

    fn too_much_requested(&self, kind: &str, name: &str, bound: &Quantity) -> Option<String> {
        let (request, _, most) = self.compared(name, bound);
        let said = format!("maximum {name} usage per {kind} is {bound}");
        let Some(asked) = self.requests.get(name) else { return Some(format!("{said}.  No request is specified")) };
        (request > most).then(|| format!("{said}, but request is {asked}"))
    }

    fn too_much(&self, kind: &str, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit, most) = self.compared(name, bound);
        let said = format!("maximum {name} usage per {kind} is {bound}");
        let Some(stated) = self.limits.get(name) else { return Some(format!("{said}.  No limit is specified")) };
        if limit > most {
            return Some(format!("{said}, but limit is {stated}"));
        }
        self.requests.get(name).filter(|_| request > most).map(|asked| format!("{said}, but request is {asked}"))
    }

    fn too_uneven(&self, kind: &str, name: &str, bound: &Quantity) -> Option<String> {
        let (request, limit, _) = self.compared(name, bound);
        let said = format!("{name} max limit to request ratio per {kind} is {bound}");
        if request == 0 {
            return Some(format!("{said}, but no request is specified or request is 0"));
        }
        if limit == 0 {
            return Some(format!("{said}, but no limit is specified or limit is 0"));
        }
        let ratio = limit as f64 / request as f64;
        let is_fine = match bound.value() <= MILLI_VALUE_MAX {
            true => ratio * 1000.0 <= bound.milli_value() as f64,
            false => ratio <= bound.value() as f64,
        };
        (!is_fine).then(|| format!("{said}, but provided ratio is {ratio:.6}"))
    }
}
