//! The rules that tie `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` together.

use std::collections::BTreeSet;

use setpoint_api::{Path, ip};

use super::HEADLESS;
use crate::errors::Errors;
use crate::node::Node;

pub(super) const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
pub(super) const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

const MAY_NOT_CHANGE: &str = "may not change once set";

/// The family of an address; None if it isn't one.
pub(super) fn family_of(address: &str) -> Option<&'static str> {
    ip::parse_sloppy(address).map(|address| if address.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] })
}

/// Whether the one address is `None`.
pub(super) fn is_headless(spec: &Node<'_>) -> bool {
    spec.count("clusterIPs") == 1 && spec.strings("clusterIPs").next() == Some(HEADLESS)
}

/// The rules for one service. Addresses that `old` has stay valid.
pub(super) fn validate(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    if spec.str("type") == "ExternalName" {
        return;
    }
    let at = spec.get("clusterIPs");
    let addresses: Vec<&str> = spec.strings("clusterIPs").collect();
    validate_first(spec, &at, &addresses, errs);
    validate_families(spec, errs);
    let before = errs.len();
    let kept: Vec<&str> = old.into_iter().flat_map(|old| old.strings("clusterIPs")).collect();
    validate_addresses(&at, &kept, errs);
    let bad_addresses = errs.len() > before;
    if addresses.len() > 2 {
        errs.invalid_here(&at, "may only hold up to 2 values");
    }
    if !bad_addresses {
        validate_stack(spec, &at, &addresses, errs);
    }
}

/// What may become of addresses and families: the first stays, the second comes and goes with the policy.
pub(super) fn validate_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    if new.str("type") == "ExternalName" || old.str("type") == "ExternalName" {
        return;
    }
    let (now, before) = (is_headless(new), is_headless(old));
    if !(now && before) {
        validate_address_change(new, old, errs);
    }
    if !now && !before {
        validate_family_change(new, old, errs);
    }
}

fn validate_first(spec: &Node<'_>, at: &Node<'_>, addresses: &[&str], errs: &mut Errors) {
    match (spec.str("clusterIP"), addresses.first()) {
        ("", None) => {}
        ("", Some(_)) => errs.invalid_here(at, "must be empty when `clusterIP` is not specified"),
        (_, None) => errs.required(at, ""),
        (first, Some(address)) if first != *address => errs.invalid_here(at, "first value must match `clusterIP`"),
        _ => {}
    }
}

fn validate_families(spec: &Node<'_>, errs: &mut Errors) {
    let mut seen = BTreeSet::new();
    for family in spec.items("ipFamilies") {
        if !FAMILIES.contains(&family.as_str()) {
            errs.not_supported(&family, family.as_str(), &FAMILIES);
        }
        if !seen.insert(family.as_str()) {
            errs.duplicate(&family, family.as_str());
        }
    }
    let policy = spec.get("ipFamilyPolicy");
    if policy.is_set() && !POLICIES.contains(&policy.as_str()) {
        errs.not_supported(&policy, policy.as_str(), &POLICIES);
    }
}

fn validate_addresses(at: &Node<'_>, kept: &[&str], errs: &mut Errors) {
    let several = at.clone().into_items().len() > 1;
    for (index, address) in at.clone().into_items().enumerate() {
        if index == 0 && address.as_str() == HEADLESS {
            if several {
                errs.invalid_here(at, "'None' must be the first and only value");
            }
            continue;
        }
        errs.extend(ip::validate_legacy_ip(&Path::root(&address.path()), address.as_str(), kept));
    }
}

fn validate_stack(spec: &Node<'_>, at: &Node<'_>, addresses: &[&str], errs: &mut Errors) {
    if addresses.len() > 1 {
        let families: BTreeSet<_> = addresses.iter().map(|address| family_of(address)).collect();
        if families.len() < 2 {
            errs.invalid_here(at, "may specify no more than one IP for each IP family");
        }
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in at.clone().into_items().zip(spec.strings("ipFamilies")).enumerate() {
        let actual = family_of(address.as_str());
        if FAMILIES.contains(&family) && actual.is_some_and(|actual| actual != family) {
            errs.invalid_here(&address, format!("expected an {family} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

fn validate_address_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let at = new.get("clusterIPs");
    let (now, before): (Vec<&str>, Vec<&str>) =
        (new.strings("clusterIPs").collect(), old.strings("clusterIPs").collect());
    if now.len() == before.len() {
        for (index, _) in now.iter().zip(&before).enumerate().filter(|(_, (a, b))| a != b) {
            errs.invalid(&at.at_index(index), list(&now), MAY_NOT_CHANGE);
        }
        return;
    }
    if now.is_empty() {
        errs.invalid(&at.at_index(0), list(&now), "primary clusterIP can not be unset");
    }
    if now.first().zip(before.first()).is_some_and(|(a, b)| a != b) {
        errs.invalid(&at.at_index(0), list(&now), MAY_NOT_CHANGE);
    }
    if now.len() < before.len() && now.len() == 1 && new.str("ipFamilyPolicy") != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errs.invalid_here(&new.get("ipFamilyPolicy"), detail);
    }
}

fn validate_family_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let first = new.get("ipFamilies").at_index(0);
    let addresses: Vec<&str> = new.strings("clusterIPs").collect();
    let (now, before): (Vec<&str>, Vec<&str>) =
        (new.strings("ipFamilies").collect(), old.strings("ipFamilies").collect());
    if now.len() == before.len() {
        for _ in now.iter().zip(&before).filter(|(a, b)| a != b) {
            errs.invalid(&first, list(&now), MAY_NOT_CHANGE);
        }
        return;
    }
    if now.len() < before.len() && addresses.is_empty() {
        errs.invalid(&first, list(&now), "primary ipFamily can not be unset");
    }
    if now.first().zip(before.first()).is_some_and(|(a, b)| a != b) {
        errs.invalid(&first, list(&addresses), MAY_NOT_CHANGE);
    }
    if now.len() < before.len() && now.len() == 1 && new.str("ipFamilyPolicy") != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errs.invalid_here(&new.get("ipFamilyPolicy"), detail);
    }
}

fn list(texts: &[&str]) -> setpoint_api::BadValue {
    setpoint_api::BadValue::encode(&texts)
}
