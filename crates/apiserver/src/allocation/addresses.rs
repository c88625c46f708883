//! Cluster addresses: the ranges that ServiceCIDR objects describe, and free addresses in them.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use setpoint_api::ip::{self, Cidr};
use setpoint_api::{BadValue, FieldError, GroupResource, Path, Status};
use setpoint_schema::Edit;
use setpoint_schema::builtin::core::service;
use setpoint_store::{Query, Selection, Snapshot};

use super::{Pool, address_key, refuse};
use crate::objects;

/// The range that is there from the first start on.
pub(crate) const DEFAULT_RANGE: &str = "10.0.0.0/16";

/// The name of the ServiceCIDR of that range.
pub(crate) const RANGE_NAME: &str = "kubernetes";

/// Most addresses that are looked at for a free one: twice the default range.
const PROBES_MAX: u32 = 1 << 17;

/// Gives a new Service its addresses, or refuses those that it asks for.
pub(super) fn assign(pool: &Pool<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    if !service::needs_cluster_ip(object) {
        return Ok(());
    }
    let count = object["spec"]["ipFamilies"].as_array().map_or(0, Vec::len);
    (0..count).try_for_each(|index| assign_one(pool, object, index))
}

/// Gives a changed Service the addresses that it did not have.
pub(super) fn reassign(pool: &Pool<'_>, new: &mut Value, old: &Value) -> Result<(), Box<Status>> {
    let has_address = |service: &Value| service["spec"].text("type") != "ExternalName";
    if !has_address(old) {
        return assign(pool, new);
    }
    let families = |service: &Value| service["spec"]["ipFamilies"].as_array().map_or(0, Vec::len);
    let grows = has_address(new) && service::needs_cluster_ip(old) && families(old) == 1 && families(new) == 2;
    if grows { assign_one(pool, new, 1) } else { Ok(()) }
}

fn assign_one(pool: &Pool<'_>, object: &mut Value, index: usize) -> Result<(), Box<Status>> {
    let spec = object.ensure("spec");
    if !spec["clusterIPs"].is_array() {
        spec.set("clusterIPs", Vec::<Value>::new());
    }
    let listed = spec["clusterIPs"].as_array_mut().expect("a list");
    if listed.len() <= index {
        listed.resize(index + 1, Value::from(""));
    }
    let asked = listed[index].as_str().unwrap_or_default().to_owned();
    let address = match &*asked {
        "" => draw(pool, object)?,
        _ => check_asked(pool, object, &asked)?,
    };
    let spec = &mut object["spec"];
    spec["clusterIPs"][index] = address.clone().into();
    if index == 0 {
        spec.set("clusterIP", address);
    }
    Ok(())
}

/// An address that the user asks for must be in a range and free.
fn check_asked(pool: &Pool<'_>, object: &Value, asked: &str) -> Result<String, Box<Status>> {
    let Some(address) = ip::parse_sloppy(asked) else {
        return Err(Box::new(Status::internal_error(format!("failed to parse service IP \"{asked}\""))));
    };
    // A dry run asks the first range alone, and not whether the address is free.
    let why = if pool.dry_run && !is_in(DEFAULT_RANGE, address) {
        format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {DEFAULT_RANGE}")
    } else if pool.dry_run {
        return Ok(asked.to_owned());
    } else if !ranges(pool.snapshot).iter().any(|range| range.contains(address)) {
        "the provided network does not match the current range".to_owned()
    } else if pool.has(&address_key(address)) {
        "provided IP is already allocated".to_owned()
    } else {
        return Ok(asked.to_owned());
    };
    refuse(object, vec![about_addresses(object, &format!("failed to allocate IP {asked}: {why}"))])?;
    Ok(asked.to_owned())
}

/// A free address: from the upper part of a range first, so that the lower one is free for those who choose.
fn draw(pool: &Pool<'_>, object: &Value) -> Result<String, Box<Status>> {
    let ranges = ranges(pool.snapshot);
    let drawn = ranges.iter().find_map(|range| {
        let (static_part, dynamic_part) = range.parts();
        free_in(pool, dynamic_part).or_else(|| free_in(pool, static_part))
    });
    let name = object["metadata"].text("name");
    let Some(address) = drawn else {
        let why = format!("failed to allocate a serviceIP for Service \"{name}\": range is full");
        return Err(Box::new(Status::internal_error(why)));
    };
    if name.is_empty() {
        let why = format!(
            "failed to allocate IP: IPAddress.networking.k8s.io \"{address}\" is invalid: spec.parentRef.name: Required value"
        );
        refuse(object, vec![about_addresses(object, &why)])?;
    }
    Ok(address.to_string())
}

fn about_addresses(object: &Value, why: &str) -> FieldError {
    let path = Path::root("spec");
    FieldError::invalid(&path.child("clusterIPs"), BadValue::json(&object["spec"]["clusterIPs"]), why)
}

/// The first free address behind a random one, all around.
fn free_in(pool: &Pool<'_>, (first, last): (u32, u32)) -> Option<Ipv4Addr> {
    let count = last.checked_sub(first)?.saturating_add(1);
    let start = u32::try_from(pool.below(u64::from(count))).unwrap_or(0);
    (0..count.min(PROBES_MAX))
        .map(|step| u32::try_from((u64::from(start) + u64::from(step)) % u64::from(count)).unwrap_or(0))
        .map(|offset| Ipv4Addr::from(first + offset))
        .find(|address| !pool.has(&address_key(IpAddr::V4(*address))))
}

/// An IPv4 range without its network and broadcast addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let cidr = Cidr::parse_sloppy(text)?;
        let IpAddr::V4(network) = cidr.network() else { return None };
        let bits: u32 = text.rsplit('/').next()?.parse().ok()?;
        let size = 1u64 << (32 - bits.min(32));
        let network = u32::from(network);
        let last = u32::try_from(u64::from(network) + size - 1).ok()?;
        let range = Range { first: network.checked_add(1)?, last: last.checked_sub(1)? };
        (range.first <= range.last).then_some(range)
    }

    fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => (self.first..=self.last).contains(&u32::from(address)),
            IpAddr::V6(_) => false,
        }
    }

    /// The part that is drawn from last and the part that is drawn from first. An empty part has its end before its start.
    fn parts(&self) -> ((u32, u32), (u32, u32)) {
        let size = u64::from(self.last - self.first) + 3;
        let reserved = if size <= 16 { 0 } else { (size / 16).clamp(16, 256) };
        let middle = self.first + u32::try_from(reserved).unwrap_or(0);
        if middle > self.last || reserved == 0 {
            return ((1, 0), (self.first, self.last));
        }
        ((self.first, middle - 1), (middle, self.last))
    }
}

fn is_in(range: &str, address: IpAddr) -> bool {
    Range::parse(range).is_some_and(|range| range.contains(address))
}

/// The ranges of all ServiceCIDRs that are in use: ready (or not yet looked at) and not going away.
fn ranges(snapshot: &Snapshot) -> Vec<Range> {
    let resource = GroupResource::new("networking.k8s.io", "servicecidrs");
    let selection = Selection::everything();
    let query = Query { resource: &resource, namespace: None, selection: &selection, after: None, limit: None };
    let found = snapshot.list(&query);
    let usable = found.items.iter().map(|object| objects::value(object)).filter(is_usable);
    let texts = usable.flat_map(|cidr| {
        let listed = cidr["spec"]["cidrs"].as_array().cloned().unwrap_or_default();
        listed.into_iter().filter_map(|text| Range::parse(text.as_str()?))
    });
    texts.collect()
}

fn is_usable(cidr: &Value) -> bool {
    let conditions = cidr["status"]["conditions"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let ready = conditions.iter().find(|condition| condition.text("type") == "Ready");
    !cidr["metadata"].has("deletionTimestamp") && ready.is_none_or(|ready| ready.text("status") == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_end_of_a_range_is_kept_for_those_who_choose() {
        let range = Range::parse(DEFAULT_RANGE).unwrap();
        let ((low, middle), (next, high)) = range.parts();
        let shown = [low, middle, next, high].map(|bits| Ipv4Addr::from(bits).to_string());
        assert_eq!(shown, ["10.0.0.1", "10.0.1.0", "10.0.1.1", "10.0.255.254"]);
        let small = Range::parse("192.168.0.0/28").unwrap();
        assert_eq!(small.parts().1, (small.first, small.last));
    }

    #[test]
    fn network_and_broadcast_addresses_are_in_no_range() {
        let range = Range::parse("10.1.0.0/30").unwrap();
        let check = |text: &str, expected| assert_eq!(range.contains(text.parse().unwrap()), expected, "{text}");
        check("10.1.0.0", false);
        check("10.1.0.1", true);
        check("10.1.0.2", true);
        check("10.1.0.3", false);
        check("fd00::1", false);
        assert_eq!(Range::parse("10.1.0.0/32"), None);
        assert_eq!(Range::parse("fd00::/112"), None);
    }
}
