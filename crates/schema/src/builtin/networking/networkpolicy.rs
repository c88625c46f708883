//! NetworkPolicy: who may talk to pods, and to whom they may talk.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::ip::{self, Cidr};
use setpoint_api::labels::ValueRules;
use setpoint_api::{Path, name};

use super::super::{cells, label_selector};
use crate::behaviour::{Behaviour, Generation};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const TYPES: [&str; 2] = ["Ingress", "Egress"];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Pod-Selector", "string", |object, _| cells::selector(object.find(&["spec", "podSelector"])))
        .about_field("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector"),
    Column::AGE,
];

/// The decisions of NetworkPolicy.
#[derive(Debug)]
pub struct NetworkPolicy;

impl Behaviour for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        for (_, rules, _) in DIRECTIONS {
            for port in spec.items_mut(rules).flat_map(|rule| rule.items_mut("ports")) {
                port.fill("protocol", "TCP");
            }
        }
        let is_empty = |spec: &Value, field: &str| spec.get(field).and_then(Value::as_array).is_none_or(Vec::is_empty);
        if is_empty(spec, "policyTypes") {
            let types = if is_empty(spec, "egress") { &TYPES[..1] } else { &TYPES };
            spec.set("policyTypes", json!(types));
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), &Leniency::default(), errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), &Leniency::of(&old.get("spec")), errs);
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        let blocks: Vec<Node<'_>> = blocks(&new.get("spec")).collect();
        let cidrs = blocks.iter().flat_map(|block| std::iter::once(block.get("cidr")).chain(block.items("except")));
        cidrs.flat_map(|cidr| ip::warnings_for_cidr(&Path::root(&cidr.path()), cidr.as_str())).collect()
    }

    fn tells_empty_from_absent(&self) -> bool {
        true
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Names of the two kinds of rules: as a type, as a field, and the field of a rule that lists the peers.
const DIRECTIONS: [(&str, &str, &str); 2] = [("Ingress", "ingress", "from"), ("Egress", "egress", "to")];

/// What is overlooked because the stored object has it already.
#[derive(Debug, Default)]
struct Leniency<'a> {
    label_values: bool,
    cidrs: Vec<&'a str>,
}

impl<'a> Leniency<'a> {
    fn of(old: &Node<'a>) -> Self {
        let mut errs = Errors::new();
        label_selector::validate(&old.get("podSelector"), ValueRules::Strict, &mut errs);
        let cidrs = blocks(old).flat_map(|block| std::iter::once(block.str("cidr")).chain(block.strings("except")));
        Self { label_values: !errs.is_empty(), cidrs: cidrs.collect() }
    }

    fn values(&self) -> ValueRules {
        if self.label_values { ValueRules::Lenient } else { ValueRules::Strict }
    }
}

fn blocks<'a>(spec: &Node<'a>) -> impl Iterator<Item = Node<'a>> {
    let spec = spec.clone();
    DIRECTIONS.into_iter().flat_map(move |(_, rules, peers)| {
        spec.items(rules).flat_map(move |rule| rule.items(peers)).map(|peer| peer.get("ipBlock")).filter(Node::is_set)
    })
}

fn validate_spec(spec: &Node<'_>, leniency: &Leniency<'_>, errs: &mut Errors) {
    label_selector::validate(&spec.get("podSelector"), leniency.values(), errs);
    for (_, rules, peers) in DIRECTIONS {
        for rule in spec.items(rules) {
            rule.items("ports").for_each(|port| validate_port(&port, errs));
            rule.items(peers).for_each(|peer| validate_peer(&peer, leniency, errs));
        }
    }
    if spec.count("policyTypes") > TYPES.len() {
        return errs.invalid_here(&spec.get("policyTypes"), "may not specify more than two policyTypes");
    }
    for kind in spec.items("policyTypes").filter(|kind| !TYPES.contains(&kind.as_str())) {
        errs.not_supported(&kind, kind.as_str(), &TYPES);
    }
}

fn validate_port(port: &Node<'_>, errs: &mut Errors) {
    let (protocol, at, end) = (port.get("protocol"), port.get("port"), port.get("endPort"));
    if protocol.is_set() && !PROTOCOLS.contains(&protocol.as_str()) {
        errs.not_supported(&protocol, protocol.as_str(), &PROTOCOLS);
    }
    match (at.as_int(), end.as_int()) {
        (Some(first), last) => {
            number_in_range(&at, first, errs);
            if let Some(last) = last {
                if last < first {
                    errs.invalid(&end, first, "must be greater than or equal to `port`");
                }
                number_in_range(&end, last, errs);
            }
        }
        (None, last) if at.is_set() => {
            if let Some(last) = last {
                errs.invalid(&end, last, "may not be specified when `port` is non-numeric");
            }
            errs.invalid_each(&at, at.as_str(), name::port_name(at.as_str()));
        }
        (None, Some(last)) => errs.invalid(&end, last, "may not be specified when `port` is not specified"),
        (None, None) => {}
    }
}

fn number_in_range(at: &Node<'_>, number: i64, errs: &mut Errors) {
    for complaint in name::is_valid_port_num(number) {
        errs.invalid(at, number, complaint);
    }
}

fn validate_peer(peer: &Node<'_>, leniency: &Leniency<'_>, errs: &mut Errors) {
    for selector in ["podSelector", "namespaceSelector"] {
        label_selector::validate(&peer.get(selector), leniency.values(), errs);
    }
    let block = peer.get("ipBlock");
    if block.is_set() {
        validate_block(&block, leniency, errs);
    }
    let selects = peer.has("podSelector") || peer.has("namespaceSelector");
    match (selects, block.is_set()) {
        (false, false) => errs.required(peer, "must specify a peer"),
        (true, true) => errs.forbidden(peer, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn validate_block(block: &Node<'_>, leniency: &Leniency<'_>, errs: &mut Errors) {
    let (at, text) = (block.get("cidr"), block.str("cidr"));
    if text.is_empty() {
        return errs.required(&at, "");
    }
    errs.extend(ip::validate_legacy_cidr(&Path::root(&at.path()), text, &leniency.cidrs));
    let Some(whole) = Cidr::parse_sloppy(text) else { return };
    for except in block.items("except") {
        let text = except.as_str();
        errs.extend(ip::validate_legacy_cidr(&Path::root(&except.path()), text, &leniency.cidrs));
        let Some(part) = Cidr::parse_sloppy(text) else { continue };
        if !whole.contains(part.network()) || whole.prefix >= part.prefix {
            errs.invalid(&except, text, "must be a strict subset of `cidr`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, warnings};
    use super::*;

    const API: &str = "networking.k8s.io/v1";

    fn policy(spec: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    fn from(peer: Value) -> Value {
        policy(json!({"podSelector": {}, "ingress": [{"from": [peer]}]}))
    }

    #[test]
    fn types_follow_the_rules_that_are_there() {
        let object = create(API, "networkpolicies", policy(json!({"podSelector": {}})));
        assert_eq!(object["spec"]["policyTypes"], json!(["Ingress"]));
        let object =
            create(API, "networkpolicies", policy(json!({"podSelector": {}, "egress": [{"ports": [{"port": 1}]}]})));
        assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        create_fails(
            API,
            "networkpolicies",
            policy(json!({"podSelector": {}, "egress": [{"ports": [{"protocol": ""}]}]})),
            "spec.egress[0].ports[0].protocol: Unsupported value: \"\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
        );
    }

    #[test]
    fn a_peer_is_a_block_or_selected() {
        create_fails(
            API,
            "networkpolicies",
            from(json!({})),
            "spec.ingress[0].from[0]: Required value: must specify a peer",
        );
        create_fails(
            API,
            "networkpolicies",
            from(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
            "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
        );
    }

    #[test]
    fn exceptions_lie_inside_the_block() {
        for except in ["11.0.0.0/16", "10.0.0.0/8"] {
            create_fails(
                API,
                "networkpolicies",
                from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": [except]}})),
                &format!(
                    "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"{except}\": \
                     must be a strict subset of `cidr`"
                ),
            );
        }
    }

    #[test]
    fn a_range_of_ports_needs_numbers() {
        for (port, expected) in [
            (json!({"port": 10, "endPort": 9}), "Invalid value: 10: must be greater than or equal to `port`"),
            (json!({"port": "a", "endPort": 9}), "Invalid value: 9: may not be specified when `port` is non-numeric"),
            (json!({"endPort": 9}), "Invalid value: 9: may not be specified when `port` is not specified"),
        ] {
            let body = policy(json!({"podSelector": {}, "ingress": [{"ports": [port]}]}));
            create_fails(API, "networkpolicies", body, &format!("spec.ingress[0].ports[0].endPort: {expected}"));
        }
    }

    #[test]
    fn a_block_in_an_odd_form_is_warned_about() {
        let found = warnings(API, "networkpolicies", from(json!({"ipBlock": {"cidr": "2001:DB8::/32"}})));
        assert_eq!(
            found,
            [
                "spec.ingress[0].from[0].ipBlock.cidr: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical \
              format (\"2001:db8::/32\")"
            ]
        );
    }
}
