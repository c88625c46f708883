//! The rules for the `spec` of a definition, but for its schemas.
//!
//! Upstream checks an older form in which what all versions have in common stands once, beside `versions`; its messages
//! name the places of that form, so ours do.

use std::collections::HashSet;

use serde_json::Value;
use setpoint_api::{BadValue, name};

use super::conversion::validate_conversion;
use super::field_path::{Brackets, resolve};
use super::schema::{has_default, validate_schema};
use super::structural;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

const SELECTABLE_MAX: usize = 8;
const DEPRECATION_BYTES_MAX: usize = 256;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// What an update may keep because the old object has it already.
#[derive(Debug)]
pub(super) struct Setting {
    check_certificates: bool,
}

impl Setting {
    pub(super) fn new() -> Self {
        Self { check_certificates: false }
    }

    pub(super) fn of_update(old: &Node<'_>) -> Self {
        Self { check_certificates: is_established(old) }
    }
}

/// Whether the kind is served already.
pub(super) fn is_established(definition: &Node<'_>) -> bool {
    let mut conditions = definition.get("status").items("conditions");
    conditions.any(|condition| condition.str("type") == "Established" && condition.str("status") == "True")
}

/// The rules of any metadata, and that the name is what the plural name and the group make it.
pub(super) fn validate_metadata(object: &Node<'_>, errs: &mut Errors) {
    let mut found = Errors::new();
    metadata::validate_generic(object, false, NameRule::SUBDOMAIN, &mut found);
    let spec = object.get("spec");
    let wanted = format!("{}.{}", spec.get("names").str("plural"), spec.str("group"));
    let mut rest = found.into_vec().into_iter().peekable();
    for field in ["generateName", "name"] {
        let at = object.get("metadata").get(field);
        while let Some(error) = rest.next_if(|error| error.field == at.path()) {
            errs.push(error);
        }
        if !at.is_empty() && at.as_str() != wanted {
            errs.invalid(&at, at.as_str(), "must be spec.names.plural+\".\"+spec.group");
        }
    }
    errs.extend(rest);
}

/// The rules for the spec, in upstream's order.
pub(super) fn validate_spec(spec: &Node<'_>, setting: &Setting, errs: &mut Errors) {
    validate_group(&spec.get("group"), errs);
    let scope = spec.get("scope");
    match scope.as_str() {
        "" => errs.required(&scope, ""),
        "Cluster" | "Namespaced" => {}
        other => errs.not_supported(&scope, other, &["Cluster", "Namespaced"]),
    }
    let versions: Vec<Node<'_>> = spec.items("versions").collect();
    for version in versions.iter().filter(|version| !version.get("schema").has("openAPIV3Schema")) {
        errs.required(&version.get("schema").get("openAPIV3Schema"), "");
    }
    let preserve = spec.get("preserveUnknownFields");
    let preserved = preserve.as_bool() == Some(true);
    if preserved && versions.iter().any(|version| has_default(&version.get("schema").json()["openAPIV3Schema"])) {
        errs.invalid(&preserve, true, "must be false in order to use defaults in the schema");
    }
    let shared = Shared::of(&versions);
    for version in &versions {
        validate_version(version, &shared, errs);
    }
    validate_versions(&spec.get("versions"), &versions, &shared, errs);
    validate_required_names(&spec.get("names"), errs);
    if let Some(first) = versions.first() {
        validate_shared(first, &versions, &shared, errs);
    }
    let strategy = spec.get("conversion").get("strategy");
    if preserved && spec.has("conversion") && strategy.as_str() != "None" {
        errs.invalid(&strategy, strategy.as_str(), "must be None if spec.preserveUnknownFields is true");
    }
    validate_conversion(spec, setting.check_certificates, errs);
}

/// The names of a kind, as far as they are given.
pub(super) fn validate_names(names: &Node<'_>, errs: &mut Errors) {
    for field in ["plural", "singular"] {
        let at = names.get(field);
        if !at.is_empty() {
            validate_label(&at, at.as_str(), "", errs);
        }
    }
    for field in ["kind", "listKind"] {
        let at = names.get(field);
        if !at.is_empty() {
            let intro = "may have mixed case, but should otherwise match: ";
            validate_label(&at, &at.as_str().to_lowercase(), intro, errs);
        }
    }
    for short in names.items("shortNames") {
        validate_label(&short, short.as_str(), "", errs);
    }
    let list = names.get("listKind");
    if !names.str("kind").is_empty() && names.str("kind") == list.as_str() {
        errs.invalid_here(&list, "kind and listKind may not be the same");
    }
    for category in names.items("categories") {
        validate_label(&category, category.as_str(), "", errs);
    }
}

/// Which parts all versions have in common.
#[derive(Debug)]
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(versions: &[Node<'_>]) -> Self {
        let same = |field: &'static str| versions.windows(2).all(|pair| pair[0].get(field).same(&pair[1].get(field)));
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

fn validate_group(group: &Node<'_>, errs: &mut Errors) {
    let complaints = name::dns1123_subdomain(group.as_str());
    if group.is_empty() {
        errs.required(group, "");
    } else if !complaints.is_empty() {
        errs.invalid_here(group, complaints.join(","));
    } else if !group.as_str().contains('.') {
        errs.invalid_here(group, "should be a domain with at least one dot");
    }
}

fn validate_version(version: &Node<'_>, shared: &Shared, errs: &mut Errors) {
    validate_label(&version.get("name"), version.str("name"), "", errs);
    validate_deprecation(version, errs);
    let (schema, subresources) = (version.get("schema"), version.get("subresources"));
    if !shared.schema {
        validate_schema(&schema, subresources.has("status"), errs);
    }
    if !shared.subresources {
        validate_subresources(&subresources, errs);
    }
    if !shared.columns {
        version.items("additionalPrinterColumns").for_each(|column| validate_column(&column, errs));
    }
    let selectable = version.get("selectableFields");
    if shared.selectable || selectable.is_empty() {
        return;
    }
    if shared.schema || !schema.has("openAPIV3Schema") {
        errs.invalid(&selectable, "", "may only be set when `version.schema.openAPIV3Schema` is not included");
    } else {
        validate_selectable_in(&selectable, &schema.json()["openAPIV3Schema"], &schema.get("openAPIV3Schema"), errs);
    }
}

/// Fields are looked for in the structural form of a schema. Where it has none, that is told at `place`.
fn validate_selectable_in(selectable: &Node<'_>, schema: &Value, place: &Node<'_>, errs: &mut Errors) {
    if let Some(obstacle) = structural::obstacle(schema) {
        errs.invalid(place, "", obstacle);
    }
    validate_selectable(selectable, schema, errs);
}

fn validate_deprecation(version: &Node<'_>, errs: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    let text = warning.as_str();
    if !version.bool("deprecated") {
        return errs.invalid_here(&warning, "can only be set for deprecated versions");
    }
    if text.len() > DEPRECATION_BYTES_MAX {
        errs.invalid_here(&warning, format!("must be <= {DEPRECATION_BYTES_MAX} characters long"));
    }
    if text.is_empty() {
        errs.invalid_here(&warning, "must not be an empty string");
    }
    let odd = text.char_indices().find(|(_, letter)| !setpoint_api::quote::is_printable(*letter));
    if let Some((at, _)) = odd {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errs.invalid_here(&warning, detail);
    }
}

/// Names differ, and one version is stored.
fn validate_versions(at: &Node<'_>, versions: &[Node<'_>], shared: &Shared, errs: &mut Errors) {
    let mut names = HashSet::new();
    if !versions.iter().all(|version| names.insert(version.str("name"))) {
        errs.invalid(at, shown_versions(at, shared), "must contain unique version names");
    }
    if versions.iter().filter(|version| version.bool("storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errs.invalid(at, shown_versions(at, shared), detail);
    }
    if let Some(first) = versions.first().map(|version| version.get("name")).filter(|name| !name.is_empty()) {
        validate_label(&first.at("spec.version"), first.as_str(), "", errs);
    }
}

/// Versions without what they have in common.
fn shown_versions(at: &Node<'_>, shared: &Shared) -> BadValue {
    let mut versions = at.json().clone();
    let moved = [
        (shared.schema, "schema"),
        (shared.subresources, "subresources"),
        (shared.columns, "additionalPrinterColumns"),
        (shared.selectable, "selectableFields"),
    ];
    for version in versions.as_array_mut().into_iter().flatten() {
        for (_, field) in moved.iter().filter(|(is_shared, _)| *is_shared) {
            version.remove(field);
        }
    }
    BadValue::Json(internal_form::compact(Some(&versions), at.ty()))
}

fn validate_required_names(names: &Node<'_>, errs: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if names.str(field).is_empty() {
            errs.required(&names.get(field), "");
        }
    }
    validate_names(names, errs);
}

/// What all versions have in common, at the places where it stands once.
fn validate_shared(first: &Node<'_>, versions: &[Node<'_>], shared: &Shared, errs: &mut Errors) {
    let schema = first.get("schema").at("spec.validation");
    if shared.schema {
        let has_status = versions.iter().any(|version| version.get("subresources").has("status"));
        validate_schema(&schema, has_status, errs);
    }
    if shared.subresources {
        validate_subresources(&first.get("subresources").at("spec.subresources"), errs);
    }
    if shared.columns {
        let columns = first.get("additionalPrinterColumns").at("spec.additionalPrinterColumns");
        columns.into_items().for_each(|column| validate_column(&column, errs));
    }
    let selectable = first.get("selectableFields").at("spec.selectableFields");
    if shared.selectable && !selectable.is_empty() {
        if shared.schema && schema.is_set() {
            let place = schema.at("spec.schema.openAPIV3Schema");
            validate_selectable_in(&selectable, &schema.json()["openAPIV3Schema"], &place, errs);
        } else {
            errs.invalid(&selectable, "", "may only be set when validations.schema is included");
        }
    }
}

fn validate_column(column: &Node<'_>, errs: &mut Errors) {
    let (name, ty, format) = (column.get("name"), column.get("type"), column.get("format"));
    if name.is_empty() {
        errs.required(&name, "");
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if ty.is_empty() {
        errs.required(&ty, types);
    } else if !COLUMN_TYPES.contains(&ty.as_str()) {
        errs.invalid_here(&ty, types);
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.as_str()) {
        errs.invalid_here(&format, format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
    let path = column.get("jsonPath").at(format!("{}.JSONPath", column.path()));
    if path.is_empty() {
        errs.required(&path, "");
    } else {
        validate_simple_path(&path, errs);
    }
}

fn validate_subresources(subresources: &Node<'_>, errs: &mut Errors) {
    let scale = subresources.get("scale");
    if !scale.is_set() {
        return;
    }
    for (field, part) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = scale.get(field);
        if path.is_empty() {
            errs.required(&path, "");
        } else if validate_simple_path(&path, errs) && !path.as_str().starts_with(&format!("{part}.")) {
            errs.invalid_here(&path, format!("should be a json path under {part}"));
        }
    }
    let selector = scale.get("labelSelectorPath");
    let is_inside = |text: &str| text.starts_with(".spec.") || text.starts_with(".status.");
    if !selector.is_empty() && validate_simple_path(&selector, errs) && !is_inside(selector.as_str()) {
        errs.invalid_here(&selector, "should be a json path under either .spec or .status");
    }
}

/// Whether a path starts with a dot, which is told if it doesn't.
fn validate_simple_path(path: &Node<'_>, errs: &mut Errors) -> bool {
    let good = path.as_str().starts_with('.');
    if !good {
        errs.invalid_here(path, "must be a simple json path starting with .");
    }
    good
}

fn validate_selectable(fields: &Node<'_>, schema: &Value, errs: &mut Errors) {
    let mut seen = HashSet::new();
    for field in fields.clone().into_items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            errs.required(&path, "");
            continue;
        }
        let (usual, found) = match resolve(path.as_str(), schema, Brackets::Forbidden) {
            Ok(found) => found,
            Err(reason) => {
                errs.invalid_here(&path, format!("is an invalid path: {reason}"));
                continue;
            }
        };
        if usual == ".metadata" || usual.starts_with(".metadata.") {
            errs.invalid_here(&path, "must not point to fields in metadata");
        }
        if !matches!(found.text("type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errs.invalid_here(&path, detail);
        }
        if !seen.insert(usual) {
            errs.duplicate(&path, path.as_str());
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errs.too_many(fields, seen.len(), SELECTABLE_MAX);
    }
}

fn validate_label(at: &Node<'_>, text: &str, intro: &str, errs: &mut Errors) {
    let complaints = name::dns1035_label(text);
    if !complaints.is_empty() {
        errs.invalid_here(at, format!("{intro}{}", complaints.join(",")));
    }
}
