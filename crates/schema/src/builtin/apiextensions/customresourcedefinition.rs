//! CustomResourceDefinition: a kind that users bring.

use serde_json::{Value, json};

use super::definition::{Setting, is_established, validate_metadata, validate_names, validate_spec};
use super::format::unrecognized;
use crate::behaviour::{Behaviour, Context, Generation, keep, keep_all_but};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const APPROVAL: &str = "api-approved.kubernetes.io";

/// The decisions of CustomResourceDefinition.
#[derive(Debug)]
pub struct CustomResourceDefinition;

impl Behaviour for CustomResourceDefinition {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        let names = spec.ensure("names");
        let kind = names.text("kind").to_owned();
        if !kind.is_empty() {
            names.default_to("singular", kind.to_lowercase());
            names.default_to("listKind", format!("{kind}List"));
        }
        spec.default_absent("conversion", json!({"strategy": "None"}));
        if let Some(service) = spec.find_mut(&["conversion", "webhook", "clientConfig", "service"]) {
            service.default_absent("port", 443);
        }
        if stored_versions(object).is_empty() {
            store_version(object);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        store_version(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        store_version(new);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but(new, old, &["status", "metadata", "kind", "apiVersion"]);
    }

    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        validate_metadata(object, errs);
        validate_spec(&object.get("spec"), &Setting::new(), errs);
        validate_rest(object, None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        let (spec, before) = (new.get("spec"), old.get("spec"));
        validate_spec(&spec, &Setting::of_update(old), errs);
        if is_established(old) {
            errs.immutable(&spec.get("scope"), &before.get("scope"));
            errs.immutable(&spec.get("names").get("kind"), &before.get("names").get("kind"));
        }
        errs.immutable(&spec.get("group"), &before.get("group"));
        errs.immutable(&spec.get("names").get("plural"), &before.get("names").get("plural"));
        validate_rest(new, Some(old), errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        validate_names(&new.get("status").get("acceptedNames"), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        if old.is_some_and(|old| old.get("spec").json() == new.get("spec").json()) {
            return Vec::new();
        }
        let before = old.map(|old| unrecognized(&old.get("spec"))).unwrap_or_default();
        let found = unrecognized(&new.get("spec")).into_iter().filter(|format| !before.contains(format));
        found.map(|format| format!("unrecognized format {}", setpoint_api::quote::quote(&format))).collect()
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec"],
            _ => &["status"],
        }
    }
}

fn stored_versions(object: &Value) -> Vec<&str> {
    let stored = object.find(&["status", "storedVersions"]).and_then(Value::as_array);
    stored.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The version that is stored from now on is remembered.
fn store_version(object: &mut Value) {
    let versions = object.find(&["spec", "versions"]).and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|version| version.flag("storage"));
    let Some(name) = storage.map(|version| version.text("name").to_owned()) else { return };
    if stored_versions(object).contains(&name.as_str()) {
        return;
    }
    let status = object.ensure("status");
    match status.child("storedVersions").and_then(Value::as_array_mut) {
        Some(stored) => stored.push(name.into()),
        None => status.set("storedVersions", json!([name])),
    }
}

/// What comes after the spec: the status, and approval where the group is Kubernetes' own.
fn validate_rest(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    validate_names(&object.get("status").get("acceptedNames"), errs);
    validate_stored_versions(object, errs);
    validate_approval(object, old, errs);
    let preserve = object.get("spec").get("preserveUnknownFields");
    let before = old.is_some_and(|old| old.get("spec").bool("preserveUnknownFields"));
    if !before && preserve.as_bool() == Some(true) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errs.invalid_here(&preserve, detail);
    }
}

fn validate_stored_versions(object: &Node<'_>, errs: &mut Errors) {
    let stored = object.get("status").get("storedVersions");
    if stored.is_empty() {
        return errs.invalid_here(&stored, "must have at least one stored version");
    }
    let versions: Vec<Node<'_>> = object.get("spec").items("versions").collect();
    let known: Vec<&str> = stored.clone().into_items().map(|version| version.as_str()).collect();
    // Each stored version answers for one version of the spec: the second of a name finds it taken.
    let is_first = |at: usize| versions[..at].iter().all(|before| before.str("name") != versions[at].str("name"));
    let answered = |at: usize| known.contains(&versions[at].str("name")) && is_first(at);
    for (_, version) in versions.iter().enumerate().filter(|(at, version)| version.bool("storage") && !answered(*at)) {
        errs.invalid_here(&stored, format!("must have the storage version {}", version.str("name")));
    }
    for version in stored.clone().into_items() {
        let name = version.as_str();
        if !versions.iter().any(|known| known.str("name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errs.invalid_here(&version, detail);
        }
    }
}

/// Kinds in groups of Kubernetes need its approval.
fn validate_approval(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let group = object.get("spec").str("group");
    let protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !protected("k8s.io") && !protected("kubernetes.io") {
        return;
    }
    let annotations = object.get("metadata").get("annotations");
    let at = annotations.entry(APPROVAL);
    let state = Approval::of(at.as_str());
    if old.is_some_and(|old| Approval::of(old.get("metadata").get("annotations").entry(APPROVAL).as_str()) == state) {
        return;
    }
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Given => {}
        Approval::Missing => {
            errs.required(&at, format!("protected groups must have approval annotation \"{APPROVAL}\", {see}"));
        }
        Approval::Invalid => {
            let detail = format!(
                "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \
                 \"unapproved\", {see}"
            );
            errs.invalid_here(&at, detail);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Approval {
    Given,
    Missing,
    Invalid,
}

impl Approval {
    fn of(text: &str) -> Self {
        let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !rest.is_empty()
        });
        match text {
            "" => Self::Missing,
            _ if text.starts_with("unapproved") || is_url => Self::Given,
            _ => Self::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, update_fails, warnings};
    use super::*;

    const V1: &str = "apiextensions.k8s.io/v1";
    const PLURAL: &str = "customresourcedefinitions";

    fn definition(schema: Value) -> Value {
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "widgets", "kind": "Widget"},
            },
        })
    }

    fn with_field(field: Value) -> Value {
        definition(json!({"type": "object", "properties": {"f": field}}))
    }

    #[test]
    fn names_are_filled_in_and_the_storage_version_is_remembered() {
        let object = create(V1, PLURAL, definition(json!({"type": "object"})));
        assert_eq!(object["spec"]["names"]["singular"], "widget");
        assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn a_definition_has_versions() {
        let mut object = definition(json!({"type": "object"}));
        object["spec"]["versions"] = json!([]);
        let expected = "[spec.versions: Invalid value: []: must have exactly one version marked as storage version, \
                        status.storedVersions: Invalid value: null: must have at least one stored version]";
        create_fails(V1, PLURAL, object, expected);
    }

    #[test]
    fn a_schema_is_structural() {
        for (field, expected) in [
            (json!({}), "type: Required value: must not be empty for specified object fields"),
            (json!({"type": "array"}), "items: Required value: must be specified"),
            (
                json!({"type": "string", "allOf": [{"type": "string"}]}),
                "allOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "string", "pattern": "("}),
                "pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: \
                 missing closing ): `(`",
            ),
            (
                json!({"type": "integer", "default": "x"}),
                "default: Invalid value: \"string\":  in body must be of type \
                 integer: \"string\"",
            ),
        ] {
            let expected = format!("spec.validation.openAPIV3Schema.properties[f].{expected}");
            create_fails(V1, PLURAL, with_field(field), &expected);
        }
    }

    #[test]
    fn a_rule_is_compiled_against_its_schema() {
        let rule = |text: &str| with_field(json!({"type": "string", "x-kubernetes-validations": [{"rule": text}]}));
        create(V1, PLURAL, rule("self.startsWith('a') && self == oldSelf"));
        create_fails(
            V1,
            PLURAL,
            rule("self"),
            "spec.validation.openAPIV3Schema.properties[f].x-kubernetes-validations[0].rule: Invalid value: \
             {\"Rule\":\"self\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\
             \"OptionalOldSelf\":null}: cel expression must evaluate to a bool",
        );
    }

    #[test]
    fn the_name_is_made_of_plural_and_group() {
        let mut body = definition(json!({"type": "object"}));
        body["metadata"]["name"] = json!("x.example.com");
        create_fails(
            V1,
            PLURAL,
            body,
            "metadata.name: Invalid value: \"x.example.com\": must be spec.names.plural+\".\"+spec.group",
        );
    }

    #[test]
    fn the_group_stays() {
        let mut new = definition(json!({"type": "object"}));
        new["spec"]["group"] = json!("other.example.com");
        update_fails(
            V1,
            PLURAL,
            definition(json!({"type": "object"})),
            new,
            "spec.group: Invalid value: \"other.example.com\": field is immutable",
        );
    }

    #[test]
    fn a_format_that_nobody_checks_is_warned_about() {
        let body = with_field(json!({"type": "string", "format": "colour"}));
        assert_eq!(warnings(V1, PLURAL, body), ["unrecognized format \"colour\""]);
    }
}
