//! Resources that containers and pods ask for: their names, their amounts, their sums.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint_api::{FieldError, Path, Quantity, name};

use super::options::Options;
use crate::builtin::core::resource_list::{self, allows_overcommit, is_huge_page};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const HUGE_PAGES: &str = "hugepages-";
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Whether the resources are a container's or the whole pod's: other names are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// One container.
    Container,
    /// The pod as a whole.
    Pod,
}

/// The rules for `ResourceRequirements`.
pub fn validate_resources(at: &Node<'_>, level: Level, claims: &BTreeSet<&str>, options: &Options, errs: &mut Errors) {
    let (limits, requests) = (at.get("limits"), at.get("requests"));
    validate_limits(&limits, level, options, errs);
    for (resource, amount) in requests.clone().into_entries() {
        validate_amount(&amount, resource, level, errs);
        let Some(request) = amount.as_quantity() else { continue };
        match limits.entry(resource).as_quantity() {
            Some(limit) if request != limit && !allows_overcommit(resource) => {
                errs.invalid(&requests, request.to_string(), format!("must be equal to {resource} limit of {limit}"));
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {resource} limit of {limit}");
                errs.invalid(&requests, request.to_string(), detail);
            }
            None if !allows_overcommit(resource) => {
                errs.required(&limits, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        validate_huge_pages(&amount, resource, &request, options, errs);
    }
    let names = || limits.clone().into_entries().chain(requests.clone().into_entries()).map(|(name, _)| name);
    if names().any(is_huge_page) && !names().any(|name| COMPUTE.contains(&name)) {
        errs.forbidden(at, "HugePages require cpu or memory");
    }
    validate_claims(&at.get("claims"), claims, errs);
}

/// The rules for amounts alone: limits, or the overhead of a pod.
pub fn validate_limits(limits: &Node<'_>, level: Level, options: &Options, errs: &mut Errors) {
    for (resource, amount) in limits.clone().into_entries() {
        validate_amount(&amount, resource, level, errs);
        if let Some(limit) = amount.as_quantity() {
            validate_huge_pages(&amount, resource, &limit, options, errs);
        }
    }
}

/// The rules for the overhead of a pod, which are those for limits.
pub fn validate_overhead(overhead: &Node<'_>, options: &Options, errs: &mut Errors) {
    validate_limits(&overhead.at_child("limits"), Level::Container, options, errs);
    let names = || overhead.clone().into_entries().map(|(name, _)| name);
    if names().any(is_huge_page) && !names().any(|name| COMPUTE.contains(&name)) {
        errs.forbidden(overhead, "HugePages require cpu or memory");
    }
}

/// That a pod as a whole asks for no less than its containers together, and each is limited by its limits.
pub fn validate_pod_sums(spec: &Node<'_>, errs: &mut Errors) {
    let resources = spec.get("resources");
    for (name, sum) in aggregate(spec.json(), "requests") {
        let requests = resources.get("requests");
        let at = requests.entry(&name);
        if let Some(request) = at.as_quantity().filter(|request| sum > *request) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errs.invalid(&at, request.to_string(), detail);
        }
    }
    for (name, sum) in aggregate(spec.json(), "limits").into_iter().filter(|(name, _)| is_huge_page(name)) {
        let limits = resources.get("limits");
        let at = limits.entry(&name);
        if let Some(limit) = at.as_quantity().filter(|limit| sum > *limit) {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            errs.invalid(&at, limit.to_string(), detail);
        }
    }
    for (index, container) in spec.items("containers").enumerate() {
        for (name, amount) in container.get("resources").entries("limits") {
            let (Some(own), Some(whole)) = (amount.as_quantity(), resources.get("limits").entry(name).as_quantity())
            else {
                continue;
            };
            if own > whole {
                let at = resources.at_child("containers").at_index(index).at_key(name).at_child("limits");
                errs.invalid(&at, own.to_string(), format!("must be less than or equal to pod limits of {whole}"));
            }
        }
    }
}

/// What containers need together: init containers run one after the other before the rest, sidecars beside it.
pub fn aggregate(spec: &Value, side: &str) -> BTreeMap<String, Quantity> {
    let list = |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut total = BTreeMap::new();
    for container in list("containers") {
        add(&mut total, &amounts(container, side));
    }
    let (mut sidecars, mut highest) = (BTreeMap::new(), BTreeMap::new());
    for container in list("initContainers") {
        let own = amounts(container, side);
        let mut needed = sidecars.clone();
        add(&mut needed, &own);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, &own);
            sidecars.clone_from(&needed);
        }
        raise(&mut highest, needed);
    }
    raise(&mut total, highest);
    total
}

/// Whether a pod as a whole can ask for it.
pub fn is_pod_level(resource: &str) -> bool {
    COMPUTE.contains(&resource) || is_huge_page(resource)
}

/// Whether huge pages in an amount don't come out even.
pub fn is_indivisible(resource: &str, amount: &Quantity) -> bool {
    let Some(Ok(page)) = resource.strip_prefix(HUGE_PAGES).map(Quantity::parse) else { return true };
    page <= Quantity::ZERO || page.milli_value() % 1000 != 0 || amount.value() % page.value() != 0
}

fn validate_amount(at: &Node<'_>, resource: &str, level: Level, errs: &mut Errors) {
    match level {
        Level::Container => resource_list::validate_container_name(at, resource, errs),
        Level::Pod => {
            let before = errs.len();
            resource_list::validate_name(at, resource, errs);
            if errs.len() == before && !is_pod_level(resource) {
                errs.not_supported(at, resource, &["cpu", HUGE_PAGES, "memory"]);
            }
        }
    }
    resource_list::validate_amount(at, resource, errs);
}

fn validate_huge_pages(at: &Node<'_>, resource: &str, amount: &Quantity, options: &Options, errs: &mut Errors) {
    if is_huge_page(resource) && !options.indivisible_huge_pages && is_indivisible(resource, amount) {
        let detail = format!("{amount} is not positive integer multiple of {resource}");
        errs.invalid(at, amount.to_string(), detail);
    }
}

fn validate_claims(claims: &Node<'_>, known: &BTreeSet<&str>, errs: &mut Errors) {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for claim in claims.clone().into_items() {
        let (name, request) = (claim.str("name"), claim.str("request"));
        if name.is_empty() {
            errs.required(&claim, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            errs.duplicate(&claim, name);
        } else {
            if !request.is_empty() {
                errs.invalid_each(&claim.get("request"), request, name::dns1123_label(request));
            }
            if seen.contains(&(name, request)) {
                errs.duplicate(&claim, format!("{name}/{request}"));
            } else if request.is_empty() {
                seen.iter().filter(|(other, _)| *other == name).for_each(|_| errs.duplicate(&claim, name));
            }
            seen.insert((name, request));
        }
        if !known.contains(name) {
            let names = match known.len() {
                0 => " which is empty".to_owned(),
                _ => format!(": {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            let mut error = FieldError::not_found(&Path::nil(), name).at(claim.path());
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{names}");
            errs.push(error);
        }
    }
}

fn amounts(container: &Value, side: &str) -> BTreeMap<String, Quantity> {
    let fields = container.find(&["resources", side]).and_then(Value::as_object);
    let parse = |(name, amount): (&String, &Value)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?));
    fields.into_iter().flatten().filter_map(parse).collect()
}

fn add(total: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>) {
    for (name, amount) in more {
        total.entry(name.clone()).and_modify(|sum| sum.add(amount)).or_insert_with(|| amount.clone());
    }
}

fn raise(highest: &mut BTreeMap<String, Quantity>, other: BTreeMap<String, Quantity>) {
    for (name, amount) in other {
        match highest.get_mut(&name) {
            Some(known) if *known >= amount => {}
            Some(known) => *known = amount,
            None => drop(highest.insert(name, amount)),
        }
    }
}
