//! Ingress: HTTP routes from outside to services.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_api::{BadValue, Path, ip, name};

use super::super::cells;
use super::ingress_backend::validate_backend;
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The annotation that named the class before there was a field for it.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Hosts beyond these are counted, not shown.
const HOSTS_SHOWN_MAX: usize = 3;

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const BAD_PATH_PARTS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const BAD_PATH_ENDS: [&str; 2] = ["/..", "/."];
const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Class", "string", |object, _| cells::text_or_none(object, &["spec", "ingressClassName"]))
        .about("The name of the IngressClass resource that should be used for additional configuration"),
    Column::new("Hosts", "string", |object, _| hosts(object))
        .about("Hosts that incoming requests are matched against before the ingress rule"),
    Column::new("Address", "string", |object, _| addresses(object))
        .about("Address is a list containing ingress points for the load-balancer"),
    Column::new("Ports", "string", |object, _| {
        json!(if object.find(&["spec", "tls"]).is_some() { "80, 443" } else { "80" })
    })
    .about("Ports of TLS configurations that open"),
    Column::AGE,
];

/// The decisions of Ingress.
#[derive(Debug)]
pub struct Ingress;

impl Behaviour for Ingress {
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), Leniency::default(), errs);
        let annotation = object.get("metadata").get("annotations").entry(CLASS_ANNOTATION);
        let class = object.get("spec").get("ingressClassName");
        if annotation.is_set() && class.is_set() && annotation.as_str() != class.as_str() {
            let at = annotation.at(format!("annotations.{CLASS_ANNOTATION}"));
            errs.invalid(&at, annotation.as_str(), "must match `ingressClassName` when both are specified");
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        validate_spec(&new.get("spec"), Leniency::of(&old.get("spec")), errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let old = old.get("status").get("loadBalancer");
        let known: Vec<&str> = old.items("ingress").map(|item| item.str("ip")).collect();
        for item in new.get("status").get("loadBalancer").items("ingress") {
            let (address, host) = (item.str("ip"), item.str("hostname"));
            if !address.is_empty() {
                errs.extend(ip::validate_legacy_ip(&Path::root(&item.get("ip").path()), address, &known));
            }
            if !host.is_empty() {
                errs.invalid_each(&item.get("hostname"), host, name::dns1123_subdomain(host));
                if ip::parse_sloppy(host).is_some() {
                    errs.invalid(&item.get("hostname"), host, NOT_AN_IP);
                }
            }
        }
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        match old {
            None => class_warning(new),
            Some(old) if !new.get("status").same(&old.get("status")) => address_warnings(new),
            Some(_) => Vec::new(),
        }
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// What is overlooked because the stored object has it already.
#[derive(Debug, Clone, Copy, Default)]
struct Leniency {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Leniency {
    fn of(old: &Node<'_>) -> Self {
        let bad_rule = |rule: &Node<'_>| {
            let mut errs = Errors::new();
            validate_http(rule, &mut errs);
            rule.str("host").contains('*') && !errs.is_empty()
        };
        Self {
            secret_names: old.items("tls").any(|tls| !secret_name_complaints(tls.str("secretName")).is_empty()),
            wildcard_rules: old.items("rules").any(|rule| bad_rule(&rule)),
        }
    }
}

fn validate_spec(spec: &Node<'_>, leniency: Leniency, errs: &mut Errors) {
    let backend = spec.get("defaultBackend");
    if spec.count("rules") == 0 && !backend.is_set() {
        let shown = if spec.has("rules") { "[]" } else { "null" };
        errs.invalid(spec, BadValue::Json(shown.into()), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_set() {
        validate_backend(&backend, errs);
    }
    for rule in spec.items("rules") {
        validate_rule(&rule, leniency, errs);
    }
    for tls in spec.items("tls") {
        validate_tls(&tls, leniency, errs);
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        errs.invalid_each(&class, class.as_str(), name::dns1123_subdomain(class.as_str()));
    }
}

fn validate_rule(rule: &Node<'_>, leniency: Leniency, errs: &mut Errors) {
    let (at, host) = (rule.get("host"), rule.str("host"));
    if ip::parse_sloppy(host).is_some() {
        errs.invalid(&at, host, NOT_AN_IP);
    }
    if !host.is_empty() {
        errs.invalid_each(&at, host, host_complaints(host));
    }
    if !host.contains('*') || !leniency.wildcard_rules {
        validate_http(rule, errs);
    }
}

fn validate_http(rule: &Node<'_>, errs: &mut Errors) {
    let http = rule.get("http");
    if !http.is_set() {
        return;
    }
    if http.count("paths") == 0 {
        errs.required(&http.get("paths"), "");
    }
    for path in http.items("paths") {
        validate_path(&path, errs);
    }
}

fn validate_path(path: &Node<'_>, errs: &mut Errors) {
    if !path.has("pathType") {
        return errs.required(&path.get("pathType"), "pathType must be specified");
    }
    let (at, text) = (path.get("path"), path.str("path"));
    match path.str("pathType") {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errs.invalid(&at, text, "must be an absolute path");
            }
            for part in BAD_PATH_PARTS.iter().filter(|part| text.contains(*part)) {
                errs.invalid(&at, text, format!("must not contain '{part}'"));
            }
            for end in BAD_PATH_ENDS.iter().filter(|end| text.ends_with(*end)) {
                errs.invalid(&at, text, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errs.invalid(&at, text, "must be an absolute path");
            }
        }
        other => errs.not_supported(&path.get("pathType"), other, &PATH_TYPES),
    }
    validate_backend(&path.get("backend"), errs);
}

fn validate_tls(tls: &Node<'_>, leniency: Leniency, errs: &mut Errors) {
    for host in tls.items("hosts") {
        errs.invalid_each(&host, host.as_str(), host_complaints(host.as_str()));
    }
    if !leniency.secret_names {
        let secret = tls.str("secretName");
        errs.invalid_each(&tls.get("secretName"), secret, secret_name_complaints(secret));
    }
}

fn host_complaints(host: &str) -> Vec<String> {
    if host.contains('*') { name::wildcard_dns1123_subdomain(host) } else { name::dns1123_subdomain(host) }
}

fn secret_name_complaints(secret: &str) -> Vec<String> {
    if secret.is_empty() { Vec::new() } else { name::dns1123_subdomain(secret) }
}

fn class_warning(object: &Node<'_>) -> Vec<String> {
    let annotated = object.get("metadata").get("annotations").entry(CLASS_ANNOTATION).is_set();
    if !annotated || object.get("spec").has("ingressClassName") {
        return Vec::new();
    }
    vec![format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead")]
}

fn address_warnings(object: &Node<'_>) -> Vec<String> {
    let items = object.get("status").get("loadBalancer").items("ingress");
    items.flat_map(|item| ip::warnings_for_ip(&Path::root(&item.path()), item.str("ip"))).collect()
}

/// The first hosts, and how many rules there are beyond them.
fn hosts(object: &Value) -> Value {
    let rules = object.find(&["spec", "rules"]).and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == HOSTS_SHOWN_MAX;
        if !more && !rule.text("host").is_empty() {
            shown.push(rule.text("host"));
        }
    }
    let text = shown.join(",");
    json!(match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => text,
        (false, true) => format!("{text} + {} more...", rules.len() - HOSTS_SHOWN_MAX),
    })
}

fn addresses(object: &Value) -> Value {
    let items = object.find(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array);
    let texts: BTreeSet<&str> = items
        .into_iter()
        .flatten()
        .map(|item| if item.text("ip").is_empty() { item.text("hostname") } else { item.text("ip") })
        .filter(|text| !text.is_empty())
        .collect();
    json!(texts.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{
        columns, create, create_fails, status_update_fails, try_create, update, warnings,
    };
    use super::*;

    const API: &str = "networking.k8s.io/v1";

    fn ingress(spec: Value) -> Value {
        json!({"metadata": {"name": "i"}, "spec": spec})
    }

    fn with_path(path: Value) -> Value {
        ingress(json!({"rules": [{"http": {"paths": [path]}}]}))
    }

    fn service() -> Value {
        json!({"service": {"name": "s", "port": {"number": 80}}})
    }

    #[test]
    fn something_must_be_routed() {
        create_fails(
            API,
            "ingresses",
            ingress(json!({})),
            "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        );
    }

    #[test]
    fn paths_are_plain_and_absolute() {
        for (path, kind, complaint) in [
            ("x", "Exact", "must be an absolute path"),
            ("/a//b", "Prefix", "must not contain '//'"),
            ("/a/..", "Prefix", "cannot end with '/..'"),
            ("x", "ImplementationSpecific", "must be an absolute path"),
        ] {
            create_fails(
                API,
                "ingresses",
                with_path(json!({"path": path, "pathType": kind, "backend": service()})),
                &format!("spec.rules[0].http.paths[0].path: Invalid value: \"{path}\": {complaint}"),
            );
        }
        create(
            API,
            "ingresses",
            with_path(json!({"path": "/a//b", "pathType": "ImplementationSpecific", "backend": service()})),
        );
    }

    #[test]
    fn a_backend_is_a_service_or_a_resource() {
        for (backend, expected) in [
            (json!({}), "spec.defaultBackend: Invalid value: \"\": resource or service backend is required"),
            (json!({"service": {"name": "s"}}), "spec.defaultBackend: Required value: port name or number is required"),
            (
                json!({"service": {"name": "s", "port": {"name": "http", "number": 80}}}),
                "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number",
            ),
            (json!({"resource": {"kind": "K", "name": ""}}), "spec.defaultBackend.resource.name: Required value"),
        ] {
            create_fails(API, "ingresses", ingress(json!({"defaultBackend": backend})), expected);
        }
    }

    #[test]
    fn a_bad_rule_of_a_wildcard_host_stays_if_it_was_there() {
        let (errors, good) = (
            try_create(API, "ingresses", with_path(json!({"path": "/"}))).1,
            ingress(json!({"defaultBackend": service()})),
        );
        assert_eq!(
            errors.as_deref(),
            Some("spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified")
        );
        assert_eq!(update(API, "ingresses", good.clone(), good)["metadata"]["generation"], 1);
    }

    #[test]
    fn the_annotation_for_the_class_is_deprecated() {
        let body = json!({
            "metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "c"}},
            "spec": {"defaultBackend": service()},
        });
        let warning =
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        assert_eq!(warnings(API, "ingresses", body), [warning]);
    }

    #[test]
    fn a_row_shows_three_hosts() {
        let rules: Vec<Value> = ["a", "b", "c", "d"].iter().map(|host| json!({"host": host})).collect();
        let object = create(API, "ingresses", ingress(json!({"rules": rules, "tls": [{"hosts": ["a"]}]})));
        assert_eq!(
            columns(API, "ingresses", &object),
            json!(["i", "<none>", "a,b,c + 1 more...", "", "80, 443", "<unknown>"])
        );
    }

    #[test]
    fn an_address_of_the_load_balancer_is_one() {
        let old = ingress(json!({"defaultBackend": service()}));
        let mut new = old.clone();
        new["status"] = json!({"loadBalancer": {"ingress": [{"ip": "x"}]}});
        status_update_fails(
            API,
            "ingresses",
            old,
            new,
            "status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid IP address, \
             (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
    }
}
