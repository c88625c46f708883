//! `x-kubernetes-validations`: rules in CEL that values must keep, compiled against the schema they stand in.
//!
//! What a rule may cost is not estimated.

use serde_json::Value;
use setpoint_api::BadValue;

use super::super::go_value::{self, Layout};
use super::field_path::{Brackets, resolve};
use super::schema::Surrounding;
use crate::cel::{self, Environment, Type};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

const LAYOUT: Layout = Layout::Struct(&[
    ("Rule", "rule", Layout::Text),
    ("Message", "message", Layout::Text),
    ("MessageExpression", "messageExpression", Layout::Text),
    ("Reason", "reason", Layout::Json),
    ("FieldPath", "fieldPath", Layout::Text),
    ("OptionalOldSelf", "optionalOldSelf", Layout::Json),
]);

/// The rules of one schema. They are compiled only if the schema itself is sound and its type is known.
pub(super) fn validate_rules(
    schema: &Node<'_>,
    here: &Surrounding,
    ty: Option<&Type>,
    sound: bool,
    errs: &mut Errors,
    rule_errs: &mut Errors,
) {
    let before = errs.len();
    for rule in schema.items("x-kubernetes-validations") {
        validate_texts(&rule, schema, errs);
    }
    let Some(ty) = ty.filter(|_| sound && errs.len() == before) else { return };
    for rule in schema.items("x-kubernetes-validations") {
        compile(&rule, here, ty, rule_errs);
    }
}

/// What expressions see of a whole object: its fields, and what every object has.
pub(super) fn root_type(schema: &Value) -> Type {
    type_of(schema, "object", true).unwrap_or(Type::Unknown)
}

/// The type of a property.
pub(super) fn field_type(ty: &Type, name: &str) -> Option<Type> {
    match ty {
        Type::Object(_, fields) => {
            let escaped = escape(name)?;
            fields.iter().find(|(field, _)| *field == escaped).map(|(_, ty)| ty.clone())
        }
        _ => None,
    }
}

fn validate_texts(rule: &Node<'_>, schema: &Node<'_>, errs: &mut Errors) {
    let (text, message) = (rule.get("rule"), rule.get("message"));
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let (trimmed, said) = (text.as_str().trim(), message.as_str().trim());
    if trimmed.is_empty() {
        errs.required(&text, "rule is not specified");
    } else if !message.is_empty() && said.is_empty() {
        errs.invalid_here(&message, "must be non-empty if specified");
    } else if breaks(said) {
        errs.invalid_here(&message, "must not contain line breaks");
    } else if breaks(trimmed) && said.is_empty() {
        errs.required(&message, "message must be specified if rule contains line breaks");
    }
    let explains = rule.get("messageExpression");
    if !explains.is_empty() && explains.as_str().trim().is_empty() {
        errs.required(&explains, "messageExpression must be non-empty if specified");
    }
    let reason = rule.get("reason");
    if reason.is_set() && !REASONS.contains(&reason.as_str()) {
        errs.not_supported(&reason, reason.as_str(), REASONS);
    }
    let path = rule.get("fieldPath");
    if path.is_empty() {
        return;
    }
    if path.as_str().trim().is_empty() {
        errs.invalid_here(&path, "must be non-empty if specified");
    }
    if breaks(path.as_str()) {
        errs.invalid_here(&path, "must not contain line breaks");
    }
    if resolve(path.as_str(), schema.json(), Brackets::Allowed).is_err() {
        errs.invalid_here(&path, "must be a valid path");
    }
}

fn compile(rule: &Node<'_>, here: &Surrounding, ty: &Type, errs: &mut Errors) {
    let (text, optional) = (rule.get("rule"), rule.get("optionalOldSelf"));
    let mut environment = Environment::default();
    environment.declare("self", ty.clone());
    let old = if optional.as_bool() == Some(true) { Type::Optional(Box::new(ty.clone())) } else { ty.clone() };
    environment.declare("oldSelf", old);
    let shown = || BadValue::Json(go_value::laid_out(rule.value(), &LAYOUT));
    match cel::compile(text.as_str(), &environment) {
        Err(detail) => return errs.invalid(&text, shown(), detail),
        Ok(Type::Bool | Type::Unknown) => {}
        Ok(_) => return errs.invalid(&text, shown(), "cel expression must evaluate to a bool"),
    }
    let explains = rule.get("messageExpression");
    if !explains.is_empty() {
        match cel::compile(explains.as_str(), &environment) {
            Err(detail) => errs.invalid(&explains, shown(), format!("messageExpression {detail}")),
            Ok(Type::String | Type::Unknown) => {}
            Ok(_) => errs.invalid(&explains, shown(), "messageExpression must evaluate to a string"),
        }
    }
    if cel::mentions(text.as_str(), "oldSelf") {
        if let Some(around) = &here.uncorrelated {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
            errs.invalid_here(&text, detail);
        }
    } else if optional.is_set() {
        errs.invalid_here(&optional, "may not be set if oldSelf is not used in rule");
    }
}

/// The type of values under a schema; None for values that rules can't see.
fn type_of(schema: &Value, name: &str, is_object: bool) -> Option<Type> {
    if schema.flag("x-kubernetes-int-or-string") {
        return Some(Type::Dyn);
    }
    match schema.text("type") {
        "array" => Some(Type::List(Box::new(type_of(&schema["items"], &format!("{name}.@idx"), false)?))),
        "object" => match schema.get("additionalProperties").filter(|inner| inner.is_object()) {
            Some(inner) => {
                let value = type_of(inner, &format!("{name}.@elem"), false)?;
                Some(Type::Map(Box::new(Type::String), Box::new(value)))
            }
            None => Some(object_type(schema, name, is_object || schema.flag("x-kubernetes-embedded-resource"))),
        },
        "string" => Some(match schema.text("format") {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::String,
        }),
        "boolean" => Some(Type::Bool),
        "number" => Some(Type::Double),
        "integer" => Some(Type::Int),
        _ => None,
    }
}

fn object_type(schema: &Value, name: &str, has_metadata: bool) -> Type {
    let mut fields = Vec::new();
    for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
        let inside = format!("{name}.{field}");
        if has_metadata && field == "metadata" {
            continue;
        }
        if let (Some(escaped), Some(ty)) = (escape(field), type_of(inner, &inside, false)) {
            fields.push((escaped, ty));
        }
    }
    if has_metadata {
        let names = ["name", "generateName"].map(|field| (field.to_owned(), Type::String)).to_vec();
        fields.push(("metadata".to_owned(), Type::Object(format!("{name}.metadata"), names)));
        for field in ["apiVersion", "kind"] {
            if !fields.iter().any(|(known, _)| known == field) {
                fields.push((field.to_owned(), Type::String));
            }
        }
    }
    Type::Object(name.to_owned(), fields)
}

/// The name of a field as expressions write it; None if they can't.
fn escape(name: &str) -> Option<String> {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.bytes().next()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    if !(first.is_ascii_alphabetic() || first == b'_') || !name.bytes().all(allowed) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    Some(escaped.replace('-', "__dash__").replace('/', "__slash__"))
}
