//! Values as messages show them where upstream prints one of its internal Go types, whose fields have other names and
//! another order than in JSON.

use serde_json::Value;
use setpoint_api::BadValue;
use setpoint_api::labels::LabelSelector;

/// A structure with these fields, in this order.
pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> BadValue {
    BadValue::Json(structure(fields.into_iter().map(|(name, value)| (name, scalar(Some(&value))))))
}

/// The text of a structure with these fields, in this order, whose values are texts of JSON already.
pub fn structure<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let shown = fields.into_iter().map(|(name, text)| format!("\"{name}\":{text}"));
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

/// A scalar, or a list of scalars; an absent one is null.
pub fn scalar(value: Option<&Value>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| BadValue::json(value).to_string())
}

/// A label selector: its type has the names of JSON, but not the order of the alphabet.
pub fn label_selector(value: Option<&Value>) -> String {
    match value.map(|value| serde_json::from_value::<LabelSelector>(value.clone())) {
        Some(Ok(selector)) => BadValue::encode(&selector).to_string(),
        _ => "null".to_owned(),
    }
}

/// How a Go type is laid out: what an absent value prints as, and the names and the order of fields.
#[derive(Debug)]
pub enum Layout {
    /// A string: `""` if absent.
    Text,
    /// A number: `0` if absent.
    Number,
    /// A boolean: `false` if absent.
    Flag,
    /// Anything that is `null` if absent and prints as JSON otherwise: pointers to scalars, lists and maps of scalars.
    Json,
    /// A structure that is `null` if absent.
    Pointer(&'static Layout),
    /// A list of structures; `null` if absent.
    List(&'static Layout),
    /// A structure: each field by its name in Go and in JSON.
    Struct(&'static [(&'static str, &'static str, Layout)]),
}

/// The value as Go prints one of this layout.
pub fn laid_out(value: Option<&Value>, layout: &Layout) -> String {
    let value = value.filter(|value| !value.is_null());
    match (layout, value) {
        (Layout::Text, None) => "\"\"".to_owned(),
        (Layout::Number, None) => "0".to_owned(),
        (Layout::Flag, None) => "false".to_owned(),
        (Layout::Struct(fields), value) => structure(
            fields.iter().map(|(go, json, layout)| (*go, laid_out(value.and_then(|value| value.get(json)), layout))),
        ),
        (Layout::Json | Layout::Pointer(_) | Layout::List(_), None) => "null".to_owned(),
        (Layout::Pointer(inner), value) => laid_out(value, inner),
        (Layout::List(item), Some(Value::Array(items))) => {
            let items: Vec<_> = items.iter().map(|value| laid_out(Some(value), item)).collect();
            format!("[{}]", items.join(","))
        }
        (_, Some(value)) => BadValue::json(value).to_string(),
    }
}
