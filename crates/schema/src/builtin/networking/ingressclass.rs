//! IngressClass: who serves Ingresses, and with what settings.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use super::super::{cells, domain_path};
use super::ingress_backend::validate_reference;
use crate::behaviour::{Behaviour, Generation};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const CONTROLLER_BYTES_MAX: usize = 250;
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
const SCOPES: [&str; 2] = ["Cluster", "Namespace"];

const COLUMNS: &[Column<'static>] = &[
    Column::new("Name", "string", |object, _| shown_name(object))
        .format("name")
        .about_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "name"),
    Column::new("Controller", "string", |object, _| field(object, &["spec", "controller"]))
        .about("Controller that is responsible for handling this class"),
    Column::new("Parameters", "string", |object, _| parameters(object))
        .about("A reference to a resource with additional parameters"),
    Column::AGE,
];

/// The decisions of IngressClass.
#[derive(Debug)]
pub struct IngressClass;

impl Behaviour for IngressClass {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = object.find_mut(&["spec", "parameters"])
            && !parameters.has("scope")
        {
            parameters.set("scope", "Cluster");
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_controller(&spec.get("controller"), errs);
        if spec.has("parameters") {
            validate_parameters(&spec.get("parameters"), errs);
        }
    }

    fn validate_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        errs.immutable(&new.get("spec").get("controller"), &old.get("spec").get("controller"));
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_controller(at: &Node<'_>, errs: &mut Errors) {
    if at.as_str().len() > CONTROLLER_BYTES_MAX {
        errs.too_long(at, CONTROLLER_BYTES_MAX);
    }
    domain_path::validate(at, errs);
}

fn validate_parameters(parameters: &Node<'_>, errs: &mut Errors) {
    validate_reference(parameters, errs);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.as_str() {
        _ if !scope.is_set() => errs.required(&scope, ""),
        "Namespace" if !namespace.is_set() => errs.required(&namespace, "`parameters.scope` is set to 'Namespace'"),
        "Namespace" => errs.invalid_each(&namespace, namespace.as_str(), name::dns1123_label(namespace.as_str())),
        "Cluster" if namespace.is_set() => errs.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        other => errs.not_supported(&scope, other, &SCOPES),
    }
}

fn shown_name(object: &Value) -> Value {
    let name = object["metadata"].text("name");
    let default = object.find(&["metadata", "annotations", DEFAULT_ANNOTATION]).is_some_and(|value| value == "true");
    json!(if default { format!("{name} (default)") } else { name.to_owned() })
}

fn parameters(object: &Value) -> Value {
    let Some(parameters) = object.find(&["spec", "parameters"]) else { return json!(cells::NONE) };
    let group = if parameters.has("apiGroup") { format!(".{}", parameters.text("apiGroup")) } else { String::new() };
    json!(format!("{}{group}/{}", parameters.text("kind"), parameters.text("name")))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    const API: &str = "networking.k8s.io/v1";

    fn class(spec: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": spec})
    }

    #[test]
    fn parameters_are_of_the_cluster_unless_said() {
        let spec = json!({"controller": "a.b/c", "parameters": {"apiGroup": "g", "kind": "K", "name": "p"}});
        let object = create(API, "ingressclasses", class(spec));
        assert_eq!(object["spec"]["parameters"]["scope"], "Cluster");
        assert_eq!(columns(API, "ingressclasses", &object), json!(["c", "a.b/c", "K.g/p", "<unknown>"]));
    }

    #[test]
    fn a_controller_has_a_domain_and_a_path() {
        for (controller, expected) in [
            ("", "spec.controller: Required value"),
            ("x", "spec.controller: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
            (
                "a/b c",
                "spec.controller: Invalid value: \"b c\": Invalid path (regex used for validation is \
                 '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
            ),
        ] {
            create_fails(API, "ingressclasses", class(json!({"controller": controller})), expected);
        }
    }

    #[test]
    fn the_scope_decides_about_the_namespace() {
        for (parameters, expected) in [
            (
                json!({"kind": "K", "name": "p", "scope": "Namespace"}),
                "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
            ),
            (
                json!({"kind": "K", "name": "p", "namespace": "n"}),
                "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
            ),
            (
                json!({"kind": "K", "name": "p", "scope": "Here"}),
                "spec.parameters.scope: Unsupported value: \"Here\": supported values: \"Cluster\", \"Namespace\"",
            ),
        ] {
            create_fails(
                API,
                "ingressclasses",
                class(json!({"controller": "a/b", "parameters": parameters})),
                expected,
            );
        }
    }

    #[test]
    fn the_controller_stays() {
        update_fails(
            API,
            "ingressclasses",
            class(json!({"controller": "a/b"})),
            class(json!({"controller": "a/c"})),
            "spec.controller: Invalid value: \"a/c\": field is immutable",
        );
    }
}
