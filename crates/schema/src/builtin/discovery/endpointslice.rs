//! EndpointSlice: some of the addresses behind a service.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{Path, ip, name};

use crate::behaviour::{Behaviour, Context};
use crate::builtin::core::endpoints::validate_address;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::equality;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// Addresses of one endpoint.
const ADDRESSES_MAX: usize = 100;
/// Endpoints of one slice.
const ENDPOINTS_MAX: usize = 1000;
/// Ports of one slice.
const PORTS_MAX: usize = 20_000;
/// Zones and nodes that an endpoint is meant for.
const HINTS_MAX: usize = 8;
/// How many items a cell shows.
const SHOWN_MAX: usize = 3;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// These check what they write.
const CONTROLLERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

const SLICE: &str = "io.k8s.api.discovery.v1.EndpointSlice";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("AddressType", "string", |object, _| field(object, &["addressType"])).about_field(SLICE, "addressType"),
    Column::new("Ports", "string", |object, _| json!(shown(ports(object)))).about_field(SLICE, "ports"),
    Column::new("Endpoints", "string", |object, _| json!(shown(addresses(object)))).about_field(SLICE, "endpoints"),
    Column::AGE,
];

/// The decisions of EndpointSlice.
#[derive(Debug)]
pub struct EndpointSlice;

impl Behaviour for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in object.items_mut("ports") {
            port.fill("name", "");
            port.fill("protocol", "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.ensure("metadata").set("generation", 1);
        object.items_mut("endpoints").for_each(|endpoint| drop(endpoint.remove("deprecatedTopology")));
    }

    /// Labels count too, so the generation can't be left to the fields alone.
    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        let before = old["metadata"].number("generation").unwrap_or(0);
        if changed(new, old) {
            new.ensure("metadata").set("generation", before + 1);
        }
        if new.get("endpoints") != old.get("endpoints") {
            new.items_mut("endpoints").for_each(|endpoint| drop(endpoint.remove("deprecatedTopology")));
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_but_endpoints(object, errs);
        validate_endpoints(object, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        validate_but_endpoints(new, errs);
        // What was once taken stays valid.
        if !new.get("endpoints").same(&old.get("endpoints")) {
            validate_endpoints(new, errs);
        }
        errs.immutable(&new.get("addressType"), &old.get("addressType"));
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none() && new.str("addressType") == "FQDN" {
            found.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        if CONTROLLERS.contains(&new.get("metadata").get("labels").json().text(MANAGED_BY)) {
            return found;
        }
        for at in new.items("endpoints").flat_map(|endpoint| endpoint.items("addresses")) {
            found.extend(ip::warnings_for_ip(&Path::root(&at.path()), at.as_str()));
        }
        found
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn changed(new: &Value, old: &Value) -> bool {
    let root = crate::facts::kind_type("discovery.k8s.io/v1", "EndpointSlice");
    let differ = |name: &str| !equality::semantic(&new[name], &old[name], root.and_then(|root| root.child(name)));
    let labels = |object: &Value| object["metadata"].get("labels").cloned();
    ["addressType", "endpoints", "ports"].into_iter().any(differ) || labels(new) != labels(old)
}

fn validate_but_endpoints(object: &Node<'_>, errs: &mut Errors) {
    let kind = object.get("addressType");
    match kind.as_str() {
        "" => errs.required(&kind, ""),
        text if !ADDRESS_TYPES.contains(&text) => errs.not_supported(&kind, text, &ADDRESS_TYPES),
        _ => {}
    }
    if object.count("ports") > PORTS_MAX {
        return errs.too_many(&object.get("ports"), object.count("ports"), PORTS_MAX);
    }
    let mut names = std::collections::HashSet::new();
    for port in object.items("ports") {
        let at = port.get("name");
        if !at.is_empty() {
            errs.invalid_each(&at, at.as_str(), name::dns1123_label(at.as_str()));
        }
        if !names.insert(at.as_str()) {
            errs.duplicate(&at, at.as_str());
        }
        let protocol = port.get("protocol");
        if !PROTOCOLS.contains(&protocol.as_str()) {
            errs.not_supported(&protocol, protocol.as_str(), &PROTOCOLS);
        }
        let app = port.get("appProtocol");
        if app.is_set() {
            errs.invalid_each(&app, app.as_str(), name::qualified_name(app.as_str()));
        }
    }
}

fn validate_endpoints(object: &Node<'_>, errs: &mut Errors) {
    let count = object.count("endpoints");
    if count > ENDPOINTS_MAX {
        return errs.too_many(&object.get("endpoints"), count, ENDPOINTS_MAX);
    }
    for endpoint in object.items("endpoints") {
        validate_addresses(&endpoint, object.str("addressType"), errs);
        let node = endpoint.get("nodeName");
        if node.is_set() {
            errs.invalid_each(&node, node.as_str(), name::dns1123_subdomain(node.as_str()));
        }
        let host = endpoint.get("hostname");
        if host.is_set() {
            errs.invalid_each(&host, host.as_str(), name::dns1123_label(host.as_str()));
        }
        validate_hints(&endpoint.get("hints"), errs);
    }
}

fn validate_addresses(endpoint: &Node<'_>, kind: &str, errs: &mut Errors) {
    let list = endpoint.get("addresses");
    match endpoint.count("addresses") {
        0 => errs.required(&list, "must contain at least 1 address"),
        count if count > ADDRESSES_MAX => errs.too_many(&list, count, ADDRESSES_MAX),
        _ => {}
    }
    for at in list.clone().into_items() {
        let (path, text) = (at.path(), at.as_str());
        let path = Path::root(&path);
        let wrong = match kind {
            "IPv4" => ip::validate_legacy_ip(&path, text, &[]),
            "IPv6" => ip::validate_ip(&path, text),
            "FQDN" => {
                validate_fqdn(&at, errs);
                continue;
            }
            _ => continue,
        };
        if wrong.is_empty() {
            let fits = ip::parse_sloppy(text).is_some_and(|address| address.is_ipv4() == (kind == "IPv4"));
            if !fits {
                errs.invalid(&list, text, format!("must be an {kind} address"));
            }
            validate_address(&at, errs);
        }
        errs.extend(wrong);
    }
}

/// A domain name of at least two labels; one dot at the end is fine.
fn validate_fqdn(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    let host = text.strip_suffix('.').unwrap_or(text);
    let complaints = name::dns1123_subdomain(host);
    if !complaints.is_empty() {
        return errs.invalid(at, host, complaints.join(","));
    }
    if !host.contains('.') {
        return errs.invalid(at, host, "should be a domain with at least two segments separated by dots");
    }
    let wrong = host.split('.').map(|label| (label, name::dns1123_label(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, complaints)) = wrong {
        errs.invalid(at, label, complaints.join(","));
    }
}

fn validate_hints(hints: &Node<'_>, errs: &mut Errors) {
    if validate_names(&hints.get("forZones"), name::label_value, errs) {
        validate_names(&hints.get("forNodes"), name::dns1123_subdomain, errs);
    }
}

/// Whether there are few enough to look at.
fn validate_names(list: &Node<'_>, rule: fn(&str) -> Vec<String>, errs: &mut Errors) -> bool {
    let hints: Vec<_> = list.clone().into_items().collect();
    if hints.len() > HINTS_MAX {
        errs.too_many(list, hints.len(), HINTS_MAX);
        return false;
    }
    let mut names = Vec::new();
    for at in hints.iter().map(|hint| hint.get("name")) {
        if names.contains(&at.as_str()) {
            errs.duplicate(&at, at.as_str());
        }
        names.push(at.as_str());
        errs.invalid_each(&at, at.as_str(), rule(at.as_str()));
    }
    true
}

fn ports(object: &Value) -> Vec<String> {
    let ports = object.get("ports").and_then(Value::as_array).into_iter().flatten();
    ports
        .map(|port| match port.number("port") {
            Some(number) => number.to_string(),
            None if port.has("name") => port.text("name").to_owned(),
            None => "*".to_owned(),
        })
        .collect()
}

fn addresses(object: &Value) -> Vec<String> {
    let endpoints = object.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let addresses =
        endpoints.flat_map(|endpoint| endpoint.get("addresses").and_then(Value::as_array).into_iter().flatten());
    addresses.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The first few, and how many more there are.
fn shown(mut items: Vec<String>) -> String {
    let more = items.len().saturating_sub(SHOWN_MAX);
    items.truncate(SHOWN_MAX);
    match items.join(",") {
        list if more > 0 => format!("{list} + {more} more..."),
        list if list.is_empty() => "<unset>".to_owned(),
        list => list,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update, update_fails, warnings};
    use super::*;

    const V1: &str = "discovery.k8s.io/v1";

    fn slice(kind: &str, addresses: Value) -> Value {
        json!({"metadata": {"name": "a"}, "addressType": kind, "endpoints": [{"addresses": addresses}]})
    }

    #[test]
    fn ports_are_named_and_speak_tcp() {
        let mut body = slice("IPv4", json!(["10.0.0.1"]));
        body["ports"] = json!([{"port": 80}]);
        let object = create(V1, "endpointslices", body);
        assert_eq!(object["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
        assert_eq!(columns(V1, "endpointslices", &object), json!(["a", "IPv4", "80", "10.0.0.1", "<unknown>"]));
    }

    #[test]
    fn addresses_fit_their_type() {
        for (kind, addresses, expected) in [
            ("IPv4", json!(["fd00::1"]), "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address"),
            ("IPv4", json!([]), "endpoints[0].addresses: Required value: must contain at least 1 address"),
            (
                "FQDN",
                json!(["a"]),
                "endpoints[0].addresses[0]: Invalid value: \"a\": should be a domain with at least two segments separated \
                 by dots",
            ),
            (
                "Odd",
                json!(["a"]),
                "addressType: Unsupported value: \"Odd\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
            ),
        ] {
            create_fails(V1, "endpointslices", slice(kind, addresses), expected);
        }
    }

    #[test]
    fn a_change_of_endpoints_or_labels_moves_the_generation() {
        let body = || slice("IPv4", json!(["10.0.0.1"]));
        let mut labelled = body();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(update(V1, "endpointslices", body(), body())["metadata"]["generation"], 1);
        assert_eq!(update(V1, "endpointslices", body(), labelled)["metadata"]["generation"], 2);
    }

    #[test]
    fn the_type_stays_and_names_are_deprecated() {
        let old = json!({"metadata": {"name": "a"}, "addressType": "IPv4"});
        let new = json!({"metadata": {"name": "a"}, "addressType": "IPv6"});
        update_fails(V1, "endpointslices", old, new, "addressType: Invalid value: \"IPv6\": field is immutable");
        let found = warnings(V1, "endpointslices", slice("FQDN", json!(["a.b"])));
        assert_eq!(found, ["spec.addressType: FQDN endpoints are deprecated"]);
    }
}
