//! Endpoints: the addresses behind a service, in the older form.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::{Value, json};
use setpoint_api::{Path, ip, name};

use super::service::validate_protocol;
use crate::behaviour::Behaviour;
use crate::builtin::cells;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// How many addresses a cell shows.
const SHOWN_MAX: usize = 3;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Endpoints", "string", |object, _| json!(shown(object)))
        .about_field("io.k8s.api.core.v1.Endpoints", "subsets"),
    Column::AGE,
];

/// The decisions of Endpoints.
#[derive(Debug)]
pub struct Endpoints;

impl Behaviour for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in object.items_mut("subsets") {
            subset.items_mut("ports").for_each(|port| port.default_to("protocol", "TCP"));
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        for subset in object.items("subsets") {
            validate_subset(&subset, errs);
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        // What was once taken stays valid.
        if !new.get("subsets").same(&old.get("subsets")) {
            self.validate(new, errs);
        }
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        if new.get("metadata").get("labels").json().text(MANAGED_BY) == CONTROLLER {
            return Vec::new();
        }
        let addresses = new
            .items("subsets")
            .flat_map(|subset| subset.items("addresses").chain(subset.items("notReadyAddresses")).collect::<Vec<_>>());
        addresses
            .map(|address| address.get("ip"))
            .flat_map(|at| ip::warnings_for_ip(&Path::root(&at.path()), at.as_str()))
            .collect()
    }

    fn deprecation(&self) -> Option<Cow<'_, str>> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// An address that packets can be sent to: not unspecified, not the machine itself, not the local link.
pub fn validate_address(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    let Some(address) = ip::parse_sloppy(text) else { return errs.invalid(at, text, "must be a valid IP address") };
    let address = address.to_canonical();
    if address.is_unspecified() {
        errs.invalid(at, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errs.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local(address) {
        errs.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast(address) {
        errs.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn validate_subset(subset: &Node<'_>, errs: &mut Errors) {
    if subset.count("addresses") == 0 && subset.count("notReadyAddresses") == 0 {
        errs.required(subset, "must specify `addresses` or `notReadyAddresses`");
    }
    for address in subset.items("addresses").chain(subset.items("notReadyAddresses")) {
        let at = address.get("ip");
        errs.extend(ip::validate_legacy_ip(&Path::root(&at.path()), at.as_str(), &[]));
        let host = address.get("hostname");
        if !host.is_empty() {
            errs.invalid_each(&host, host.as_str(), name::dns1123_label(host.as_str()));
        }
        let node = address.get("nodeName");
        if node.is_set() {
            errs.invalid_each(&node, node.as_str(), name::dns1123_subdomain(node.as_str()));
        }
        validate_address(&at, errs);
    }
    let several = subset.count("ports") > 1;
    subset.items("ports").for_each(|port| validate_port(&port, several, errs));
}

fn validate_port(port: &Node<'_>, several: bool, errs: &mut Errors) {
    let at = port.get("name");
    match at.as_str() {
        "" if several => errs.required(&at, ""),
        "" => {}
        text => errs.invalid_each(&at, text, name::dns1123_label(text)),
    }
    let number = port.int("port").unwrap_or(0);
    for complaint in name::is_valid_port_num(number) {
        errs.invalid(&port.get("port"), number, complaint);
    }
    validate_protocol(&port.get("protocol"), errs);
    if port.has("appProtocol") {
        let protocol = port.get("appProtocol");
        errs.invalid_each(&protocol, protocol.as_str(), name::qualified_name(protocol.as_str()));
    }
}

fn shown(object: &Value) -> String {
    let list = |value: &'_ Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let subsets = list(object, "subsets");
    if subsets.is_empty() {
        return cells::NONE.to_owned();
    }
    let mut all = Vec::new();
    for subset in &subsets {
        let addresses = list(subset, "addresses");
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses.iter().map(|address| address.text("ip").to_owned()));
        }
        for port in &ports {
            let number = port.number("port").unwrap_or(0);
            all.extend(addresses.iter().map(|address| host_port(address.text("ip"), number)));
        }
    }
    let more = all.len().saturating_sub(SHOWN_MAX);
    all.truncate(SHOWN_MAX);
    let list = all.join(",");
    if more > 0 { format!("{list} + {more} more...") } else { list }
}

fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update};
    use super::*;

    fn endpoints(subset: Value) -> Value {
        json!({"metadata": {"name": "a"}, "subsets": [subset]})
    }

    #[test]
    fn addresses_are_shown_with_ports() {
        let addresses: Vec<Value> = (1..=3).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
        let subset = json!({"addresses": addresses, "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]});
        let object = create("v1", "endpoints", endpoints(subset));
        assert_eq!(object["subsets"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(
            columns("v1", "endpoints", &object),
            json!(["a", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 3 more...", "<unknown>"])
        );
    }

    #[test]
    fn special_addresses_are_refused() {
        for (address, expected) in [
            ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ] {
            create_fails(
                "v1",
                "endpoints",
                endpoints(json!({"addresses": [{"ip": address}]})),
                &format!("subsets[0].addresses[0].ip: Invalid value: \"{address}\": {expected}"),
            );
        }
        create_fails(
            "v1",
            "endpoints",
            endpoints(json!({})),
            "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
        );
    }

    #[test]
    fn metadata_can_change_without_a_look_at_the_addresses() {
        let body = || endpoints(json!({"addresses": [{"ip": "10.0.0.1"}]}));
        let mut labelled = body();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(update("v1", "endpoints", body(), labelled)["metadata"]["labels"], json!({"a": "b"}));
    }
}
