//! What an object takes of a quota, kind by kind.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint_api::Quantity;
use setpoint_api::quantity::Format;
use setpoint_schema::Edit;

use super::scopes;
use crate::admission::amounts::Amounts;
use crate::admission::pod_resources::{Side, items, stated, total_held};
use crate::call::Call;

const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const CLAIM_COUNT: &str = "count/resourceclaims.resource.k8s.io";

/// A claim for all devices counts as one for the most that an allocation can have.
const DEVICES_MAX: i64 = 32;

/// Amounts of which every container of a pod has to say what it takes.
const STATED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Kinds that are counted in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Pod,
    Service,
    Claim,
    DeviceClaim,
    Object,
}

/// A write that quotas have to judge.
pub(super) struct Charged<'o> {
    sort: Sort,
    pub(super) new: &'o Value,
    old: Option<&'o Value>,
    usage: Amounts,
    /// What is taken in addition to what the object took before.
    more: Amounts,
    /// The names under which objects of the kind are counted.
    counts: Vec<String>,
}

impl<'o> Charged<'o> {
    /// None if the write can't change what quotas count.
    pub(super) fn of(call: &Call<'_>, new: &'o Value, old: Option<&'o Value>) -> Option<Charged<'o>> {
        let (group, plural) = (&*call.kind().group, &*call.kind().plural);
        let sort = match (group, plural) {
            ("" | "events.k8s.io", "events") => return None,
            ("", "pods") => Sort::Pod,
            ("", "services") => Sort::Service,
            ("", "persistentvolumeclaims") => Sort::Claim,
            ("resource.k8s.io", "resourceclaims") => Sort::DeviceClaim,
            _ => Sort::Object,
        };
        if !is_judged(sort, call.subresource, new, old) {
            return None;
        }
        let mut counts =
            vec![if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }];
        if group.is_empty() && matches!(plural, "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets")
        {
            counts.push(plural.to_owned());
        }
        let now = call.server.clock.seconds();
        let usage = usage(sort, new, &counts, now);
        let mut more = usage.clone();
        if let Some(old) = old {
            let before = self::usage(sort, old, &counts, now);
            more = Amounts::default();
            for (name, amount) in usage.iter() {
                let mut difference = amount.clone();
                difference.sub(before.get(name).unwrap_or(&Quantity::ZERO));
                more.set(name, if difference.is_negative() { Quantity::ZERO } else { difference });
            }
        }
        Some(Charged { sort, new, old, usage, more, counts })
    }

    /// Whether a name in a quota is about objects of this kind.
    pub(super) fn counts(&self, name: &str) -> bool {
        match self.sort {
            Sort::Pod => {
                matches!(name, "count/pods" | "pods" | "cpu" | "memory" | "ephemeral-storage")
                    || matches!(name, "requests.cpu" | "requests.memory" | "requests.ephemeral-storage")
                    || matches!(name, "limits.cpu" | "limits.memory" | "limits.ephemeral-storage")
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || is_extended(name)
            }
            Sort::Service => {
                matches!(name, "count/services" | "services" | "services.nodeports" | "services.loadbalancers")
            }
            Sort::Claim => {
                let own = |name: &str| matches!(name, "persistentvolumeclaims" | "requests.storage");
                let of_class = || name.split_once(OF_STORAGE_CLASS).is_some_and(|(_, rest)| own(rest));
                name == "count/persistentvolumeclaims" || own(name) || of_class()
            }
            Sort::DeviceClaim => name == CLAIM_COUNT || name.ends_with(OF_DEVICE_CLASS),
            Sort::Object => self.counts.iter().any(|count| count == name),
        }
    }

    /// Whether the scopes of a quota mean the object.
    pub(super) fn is_meant_by(&self, quota: &Value) -> bool {
        self.matches(quota, self.new)
    }

    fn matches(&self, quota: &Value, object: &Value) -> bool {
        let is_in = match self.sort {
            Sort::Pod => scopes::of_pod,
            Sort::Claim => scopes::of_claim,
            Sort::Service | Sort::DeviceClaim | Sort::Object => scopes::of_nothing,
        };
        scopes::all_match(quota, object, is_in)
    }

    /// What the write takes of a quota: all of it if the object was none of those that the quota means.
    pub(super) fn taken(&self, quota: &Value) -> &Amounts {
        match self.old {
            Some(old) if self.matches(quota, old) => &self.more,
            _ => &self.usage,
        }
    }

    /// Amounts below nothing, by name.
    pub(super) fn negative(&self) -> Option<String> {
        let negative = self.usage.filtered(|_, amount| amount.is_negative());
        (!negative.is_empty()).then(|| negative.names().collect::<Vec<_>>().join(","))
    }

    /// What containers must say and don't.
    pub(super) fn missing(&self, restricted: &[&str]) -> Option<String> {
        let spec = &self.new["spec"];
        let whole = |side: &str| spec["resources"][side].as_object().is_some_and(|all| !all.is_empty());
        if self.sort != Sort::Pod || whole("requests") || whole("limits") {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in items(spec, "containers").chain(items(spec, "initContainers")) {
            let usage = compute(&stated(container, Side::Requests), &stated(container, Side::Limits));
            for name in restricted.iter().filter(|name| STATED.contains(name) && !usage.has(name)) {
                missing.entry(name).or_default().insert(container.text("name"));
            }
        }
        let said = missing.iter().map(|(name, containers)| {
            let containers: Vec<&str> = containers.iter().copied().collect();
            format!("{name} for: {}", containers.join(","))
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| format!("must specify {}", said.join("; ")))
    }
}

/// Whether a write of a kind can change what quotas count.
fn is_judged(sort: Sort, subresource: Option<&str>, new: &Value, old: Option<&Value>) -> bool {
    match (sort, subresource, old) {
        (Sort::Pod, Some("resize"), Some(_)) => true,
        (Sort::Pod, None, Some(old)) => scopes::is_terminating(new) != scopes::is_terminating(old),
        (Sort::Claim, Some("status"), Some(old)) => {
            let allocated = |claim: &Value| claim["status"]["allocatedResources"]["storage"].clone();
            allocated(new) != allocated(old) || scopes::attributes_classes(new) != scopes::attributes_classes(old)
        }
        (Sort::Service | Sort::Claim | Sort::DeviceClaim, None, Some(_)) => true,
        (_, None, None) => true,
        _ => false,
    }
}

fn usage(sort: Sort, object: &Value, counts: &[String], now: i64) -> Amounts {
    let mut usage = Amounts::default();
    counts.iter().for_each(|name| usage.count(name, 1));
    match sort {
        Sort::Pod if is_over(object, now) => {}
        Sort::Pod => usage.extend(&compute(&total_held(object, Side::Requests), &total_held(object, Side::Limits))),
        Sort::Service => of_service(object, &mut usage),
        Sort::Claim => of_claim(object, &mut usage),
        Sort::DeviceClaim => of_device_claim(object, &mut usage),
        Sort::Object => {}
    }
    usage
}

/// Ended, or should have long ago: it doesn't stand in the way of its successor.
fn is_over(pod: &Value, now: i64) -> bool {
    if matches!(pod["status"].text("phase"), "Succeeded" | "Failed") {
        return true;
    }
    let metadata = &pod["metadata"];
    let deletion =
        setpoint_api::time::Timestamp::parse(metadata.text("deletionTimestamp")).ok().map(|time| time.seconds);
    match (deletion, metadata.number("deletionGracePeriodSeconds")) {
        (Some(deletion), Some(grace)) => now > deletion + grace,
        _ => false,
    }
}

/// What requests and limits are called in quotas.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let usual = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let mut usage = Amounts::default();
    usage.count("pods", 1);
    for (name, amount) in requests.iter() {
        let huge = name.starts_with("hugepages-");
        if usual(name) || huge {
            usage.set(name, amount.clone());
        }
        let requested = format!("requests.{name}");
        if usual(name) || huge || is_extended(&requested) {
            usage.set(requested, amount.clone());
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| usual(name)) {
        usage.set(format!("limits.{name}"), amount.clone());
    }
    usage
}

/// Resources that others bring have a domain in their names.
fn is_extended(name: &str) -> bool {
    let Some(name) = name.strip_prefix("requests.") else { return false };
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native || name.starts_with("deviceclass.resource.kubernetes.io/")
}

fn of_service(service: &Value, usage: &mut Amounts) {
    let spec = &service["spec"];
    let ports = || items(spec, "ports");
    usage.count("services", 1);
    let (balancers, node_ports) = match spec.text("type") {
        "NodePort" => (0, ports().count()),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
            (1, ports().filter(|port| port.number("nodePort").unwrap_or(0) != 0).count())
        }
        "LoadBalancer" => (1, ports().count()),
        _ => (0, 0),
    };
    usage.count("services.loadbalancers", balancers);
    usage.count("services.nodeports", node_ports);
}

fn of_claim(claim: &Value, usage: &mut Amounts) {
    let class = match claim.find(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        Some(name) => name.as_str().unwrap_or_default(),
        None => claim["spec"].text("storageClassName"),
    };
    usage.count("persistentvolumeclaims", 1);
    if !class.is_empty() {
        usage.count(&format!("{class}{OF_STORAGE_CLASS}persistentvolumeclaims"), 1);
    }
    let asked = stated(&claim["spec"], Side::Requests);
    let Some(asked) = asked.get("storage") else { return };
    let allocated = Amounts::read(&claim["status"]["allocatedResources"]);
    let larger = allocated.get("storage").filter(|allocated| *allocated > asked).unwrap_or(asked);
    // Bytes are whole.
    let storage = match larger.as_i64() {
        Some(_) => larger.clone(),
        None => Quantity::new(larger.value(), larger.format()),
    };
    if !class.is_empty() {
        usage.set(format!("{class}{OF_STORAGE_CLASS}requests.storage"), storage.clone());
    }
    usage.set("requests.storage", storage);
}

fn of_device_claim(claim: &Value, usage: &mut Amounts) {
    let devices = |request: &Value| match request.text("allocationMode") {
        "ExactCount" => request.number("count").unwrap_or(0),
        "All" => DEVICES_MAX,
        _ => 0,
    };
    for request in items(&claim["spec"]["devices"], "requests") {
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        let exactly = request.get("exactly").filter(|exactly| exactly.is_object());
        for wanted in items(request, "firstAvailable").chain(exactly) {
            let mine = most.entry(wanted.text("deviceClassName")).or_default();
            *mine = devices(wanted).max(*mine);
        }
        for (class, many) in most {
            usage.add(&format!("{class}{OF_DEVICE_CLASS}"), &Quantity::new(many, Format::DecimalSi));
        }
    }
}
