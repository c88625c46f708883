//! Ports of a service.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_api::name;

use crate::builtin::{cells, go_value};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// Protocols that a port may speak.
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// A port speaks TCP, to the same port of the pod.
pub(super) fn default_port(port: &mut Value) {
    port.default_to("protocol", "TCP");
    if port.get("targetPort").is_none_or(|target| target.is_null() || *target == 0 || *target == "") {
        let number = port.number("port").unwrap_or(0);
        port.set("targetPort", number);
    }
}

/// Each port by itself.
pub(super) fn validate(spec: &Node<'_>, errs: &mut Errors) {
    let several = spec.count("ports") > 1;
    let mut names = BTreeSet::new();
    for port in spec.items("ports") {
        validate_name(&port.get("name"), several, &mut names, errs);
        let number = port.int("port").unwrap_or(0);
        for complaint in name::is_valid_port_num(number) {
            errs.invalid(&port.get("port"), number, complaint);
        }
        validate_protocol(&port.get("protocol"), errs);
        validate_target(&port.get("targetPort"), errs);
        if port.has("appProtocol") {
            let protocol = port.get("appProtocol");
            errs.invalid_each(&protocol, protocol.as_str(), name::qualified_name(protocol.as_str()));
        }
    }
}

/// No two ports are the same, on the service or on the nodes.
pub(super) fn validate_distinct(spec: &Node<'_>, errs: &mut Errors) {
    let mut seen = BTreeSet::new();
    for port in spec.items("ports").filter(|port| port.int("nodePort").unwrap_or(0) != 0) {
        if !seen.insert((port.str("protocol"), port.int("nodePort"))) {
            errs.duplicate(&port.get("nodePort"), port.get("nodePort").json());
        }
    }
    seen.clear();
    for port in spec.items("ports") {
        if !seen.insert((port.str("protocol"), port.int("port"))) {
            let key = go_value::object([
                ("Name", json!("")),
                ("Protocol", json!(port.str("protocol"))),
                ("AppProtocol", Value::Null),
                ("Port", json!(port.int("port").unwrap_or(0))),
                ("TargetPort", json!(0)),
                ("NodePort", json!(0)),
            ]);
            errs.duplicate(&port, key);
        }
    }
}

/// A protocol is there, and known.
pub(in super::super) fn validate_protocol(at: &Node<'_>, errs: &mut Errors) {
    match at.as_str() {
        "" => errs.required(at, ""),
        protocol if !PROTOCOLS.contains(&protocol) => errs.not_supported(at, protocol, &PROTOCOLS),
        _ => {}
    }
}

/// The cell of a table: `80:30080/TCP`.
pub(super) fn shown(object: &Value) -> String {
    let ports = object["spec"]["ports"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let shown = ports.iter().map(|port| {
        let number = port.number("port").unwrap_or(0);
        let node = port.number("nodePort").filter(|node| *node > 0).map_or(String::new(), |node| format!(":{node}"));
        format!("{number}{node}/{}", port.text("protocol"))
    });
    match shown.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => cells::NONE.to_owned(),
        ports => ports,
    }
}

fn validate_name<'a>(at: &Node<'a>, required: bool, names: &mut BTreeSet<&'a str>, errs: &mut Errors) {
    let name = at.as_str();
    if name.is_empty() {
        if required {
            errs.required(at, "");
        }
        return;
    }
    errs.invalid_each(at, name, name::dns1123_label(name));
    if !names.insert(name) {
        errs.duplicate(at, name);
    }
}

fn validate_target(at: &Node<'_>, errs: &mut Errors) {
    match at.json() {
        Value::String(text) => errs.invalid_each(at, text, name::port_name(text)),
        number => {
            let number = number.as_i64().unwrap_or(0);
            for complaint in name::is_valid_port_num(number) {
                errs.invalid(at, number, complaint);
            }
        }
    }
}
