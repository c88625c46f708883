//! Objects in the form in which upstream's messages show them.
//!
//! Upstream validates a twin of each type whose fields have no JSON names: its messages show Go's names, in the order
//! of declaration, with nothing left out. `internal_form.tsv` tells them for each type, separated by commas:
//! `Name` is printed under that name and read from the field `name`; `*Name` is null if absent; `Name=x` is read from `x`;
//! `Name=^x` from `x` of the object around it; `@x` is printed by its JSON name, `@x~` only if there; `+x` stands for all
//! fields of `x`.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::Value;
use setpoint_api::BadValue;

use crate::node::Node;
use crate::types::{Shape, TypeRef};

/// The value at this place as messages show it: structures in upstream's form, all else as it is.
pub fn shown(at: &Node<'_>) -> BadValue {
    match at.value() {
        Some(value @ (Value::Object(_) | Value::Array(_))) => BadValue::Json(compact(Some(value), at.ty())),
        Some(value) => value.into(),
        None => BadValue::Json("null".into()),
    }
}

/// On one line.
pub fn compact(value: Option<&Value>, ty: Option<TypeRef<'_>>) -> String {
    let mut text = String::new();
    form(value, ty, &Value::Null, true).print(&mut text);
    text
}

/// On many lines, each level indented by one more blank.
pub fn pretty(value: Option<&Value>, ty: Option<TypeRef<'_>>) -> String {
    let mut text = String::new();
    form(value, ty, &Value::Null, true).print_pretty(&mut text, 1);
    text
}

/// On many lines, as the type of this name: for a part of a type that Go embeds and JSON doesn't tell apart.
pub fn pretty_as(value: &Value, ty: TypeRef<'_>, name: &str) -> String {
    let columns = COLUMNS.get(name).copied().unwrap_or_default();
    let mut text = String::new();
    Form::Object(fields(columns, value, ty, &Value::Null)).print_pretty(&mut text, 1);
    text
}

static COLUMNS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("internal_form.tsv").lines();
    lines.filter_map(|line| line.split_once('\t')).collect()
});

/// A value with its fields in order.
enum Form {
    Scalar(String),
    List(Vec<Form>),
    Object(Vec<(String, Form)>),
}

impl Form {
    fn null() -> Self {
        Self::Scalar("null".to_owned())
    }

    fn print(&self, text: &mut String) {
        match self {
            Self::Scalar(scalar) => text.push_str(scalar),
            Self::List(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    text.push_str(if index > 0 { "," } else { "" });
                    item.print(text);
                }
                text.push(']');
            }
            Self::Object(fields) => {
                text.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    let _ = write!(text, "{}{name}:", if index > 0 { "," } else { "" });
                    value.print(text);
                }
                text.push('}');
            }
        }
    }

    fn print_pretty(&self, text: &mut String, depth: usize) {
        let indent = |text: &mut String, depth: usize| text.extend(["\n", &" ".repeat(depth)]);
        match self {
            Self::List(items) if !items.is_empty() => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    text.push_str(if index > 0 { "," } else { "" });
                    indent(text, depth);
                    item.print_pretty(text, depth + 1);
                }
                indent(text, depth - 1);
                text.push(']');
            }
            Self::Object(fields) if !fields.is_empty() => {
                text.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    text.push_str(if index > 0 { "," } else { "" });
                    indent(text, depth);
                    let _ = write!(text, "{name}: ");
                    value.print_pretty(text, depth + 1);
                }
                indent(text, depth - 1);
                text.push('}');
            }
            other => other.print(text),
        }
    }
}

/// The form of a value; an absent one is null if it may be, else the zero value of its type.
fn form(value: Option<&Value>, ty: Option<TypeRef<'_>>, around: &Value, nilable: bool) -> Form {
    let value = value.filter(|value| !value.is_null());
    let Some(ty) = ty else { return plain(value) };
    match (ty.shape(), value) {
        (_, None) if nilable => Form::null(),
        (Shape::Struct(_), _) => match COLUMNS.get(ty.get().name) {
            Some(columns) => Form::Object(fields(columns, value.unwrap_or(&Value::Null), ty, around)),
            None => plain(value),
        },
        (Shape::List(_), Some(Value::Array(items))) => {
            Form::List(items.iter().map(|item| form(Some(item), ty.item(), around, false)).collect())
        }
        (Shape::Map(_), Some(Value::Object(entries))) => {
            let child = ty.child("");
            let entry =
                |(key, value): (&String, &Value)| (json(&key.as_str().into()), form(Some(value), child, around, false));
            Form::Object(entries.iter().map(entry).collect())
        }
        (_, Some(value)) => plain(Some(value)),
        (shape, None) => Form::Scalar(zero(shape).to_owned()),
    }
}

fn fields(columns: &str, object: &Value, ty: TypeRef<'_>, around: &Value) -> Vec<(String, Form)> {
    let mut fields = Vec::new();
    for column in columns.split(',') {
        if let Some(embedded) = column.strip_prefix('+') {
            if let Some(Form::Object(inner)) = embedded_form(embedded, object, ty) {
                fields.extend(inner);
            }
            continue;
        }
        let (column, nilable) = column.strip_prefix('*').map_or((column, false), |rest| (rest, true));
        if let Some(tagged) = column.strip_prefix('@') {
            let (name, optional) = tagged.strip_suffix('~').map_or((tagged, false), |rest| (rest, true));
            let value = object.get(name).filter(|value| !value.is_null());
            if value.is_some_and(|value| !is_left_out(value, ty.child(name))) || !optional {
                fields.push((json(&name.into()), form(value, ty.child(name), object, nilable)));
            }
            continue;
        }
        let (printed, read) =
            column.split_once('=').map_or_else(|| (column, lower_first(column)), |(p, r)| (p, r.to_owned()));
        let (value, child) = match read.strip_prefix('^') {
            Some(outer) => (around.get(outer), None),
            None => (object.get(&read), ty.child(&read)),
        };
        let value = value.filter(|value| !value.is_null());
        let form = match (value, child) {
            (None, None) if nilable => Form::null(),
            (None, None) => Form::Scalar("false".to_owned()), // only flags are read from the object around
            _ => form(value, child, object, nilable),
        };
        fields.push((json(&printed.into()), form));
    }
    fields
}

/// Whether Go leaves a field out that may be: a list or a map in which there is nothing.
fn is_left_out(value: &Value, ty: Option<TypeRef<'_>>) -> bool {
    let is_map = ty.is_some_and(|ty| matches!(ty.shape(), Shape::Map(_)));
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => is_map && entries.is_empty(),
        _ => false,
    }
}

fn embedded_form(name: &str, object: &Value, ty: TypeRef<'_>) -> Option<Form> {
    let value = object.get(name)?;
    Some(form(Some(value), ty.child(name), object, false))
}

fn plain(value: Option<&Value>) -> Form {
    match value {
        None => Form::null(),
        Some(Value::Array(items)) => Form::List(items.iter().map(|item| plain(Some(item))).collect()),
        Some(Value::Object(entries)) => {
            Form::Object(entries.iter().map(|(key, value)| (json(&key.as_str().into()), plain(Some(value)))).collect())
        }
        Some(scalar) => Form::Scalar(json(scalar)),
    }
}

fn zero(shape: &Shape) -> &'static str {
    match shape {
        Shape::String => "\"\"",
        Shape::Quantity => "\"0\"",
        Shape::Bool => "false",
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => "0",
        _ => "null",
    }
}

fn json(value: &Value) -> String {
    BadValue::json(value).to_string()
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts;

    fn check(ty: &str, value: Value, expected: &str) {
        assert_eq!(compact(Some(&value), facts::type_named(ty)), expected);
    }

    #[test]
    fn nothing_is_left_out() {
        check(
            "io.k8s.api.core.v1.PodResourceClaim",
            json!({"name": "r"}),
            r#"{"Name":"r","ResourceClaimName":null,"ResourceClaimTemplateName":null}"#,
        );
    }

    #[test]
    fn fields_of_metadata_keep_their_names_and_may_be_left_out() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        let text = compact(Some(&template), facts::type_named("io.k8s.api.core.v1.PodTemplateSpec"));
        assert!(
            text.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[]"#),
            "{text}"
        );
    }

    #[test]
    fn what_go_leaves_out_when_empty_is_left_out() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": []});
        check("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", selector, r#"{"matchLabels":{"a":"b"}}"#);
    }

    #[test]
    fn the_network_of_the_host_belongs_to_the_security_context() {
        let spec = json!({"hostNetwork": true, "securityContext": {}});
        let text = compact(Some(&spec), facts::type_named("io.k8s.api.core.v1.PodSpec"));
        assert!(text.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"HostIPC":false"#), "{text}");
    }

    #[test]
    fn a_level_is_indented_by_one_blank() {
        let claim = json!({"requests": {"cpu": "1"}});
        let text = pretty(Some(&claim), facts::type_named("io.k8s.api.core.v1.ResourceRequirements"));
        assert_eq!(text, "{\n \"Limits\": null,\n \"Requests\": {\n  \"cpu\": \"1\"\n },\n \"Claims\": null\n}");
    }
}
