//! The form in which Go prints a value after reading it: the form that is stored and answered.

use serde_json::{Map, Value};

use crate::types::{Field, Shape, TypeRef};

/// Lists that mean something else when they are empty than when they are absent, by the type and field that has them: they are refused, so
/// they are never stored.
const REFUSED_IF_EMPTY: [(&str, &str); 2] =
    [("v1.CustomResourceDefinitionSpec", "versions"), ("v2.HPAScalingRules", "policies")];

/// Brings a value into the form in which Go prints it: nulls and empty optional fields out, fields that are always
/// printed in. Types must fit already.
pub fn normalize(value: &mut Value, ty: TypeRef<'_>) {
    if ty.is_custom() {
        return normalize_custom(value, ty);
    }
    match (ty.shape(), value) {
        (Shape::Struct(_), Value::Object(fields)) => normalize_struct(fields, ty),
        (Shape::Map(map), Value::Object(fields)) => {
            let value_type = ty.to(map.value);
            fields.values_mut().for_each(|value| normalize_element(value, value_type));
        }
        (Shape::List(list), Value::Array(items)) if list.item_pointer => {
            items.iter_mut().for_each(|item| normalize(item, ty.to(list.item)));
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize_element(item, ty.to(list.item)));
        }
        (Shape::SchemaOrBool(id) | Shape::SchemaOrStrings(id), value @ Value::Object(_)) => {
            normalize(value, ty.to(*id))
        }
        (Shape::SchemaOrList(id), value @ Value::Object(_)) => normalize(value, ty.to(*id)),
        (Shape::SchemaOrList(id), Value::Array(items)) => items.iter_mut().for_each(|item| normalize(item, ty.to(*id))),
        _ => {}
    }
}

/// The same for the next version of an object. Fields that are as in the last one, which is in this form, are passed over.
pub(crate) fn normalize_next(value: &mut Value, last: &Value, ty: TypeRef<'_>) {
    match (ty.shape(), value, last) {
        (Shape::Struct(_), Value::Object(fields), Value::Object(last)) if !ty.is_custom() => {
            normalize_fields(fields, ty, |name, value| last.get(name) == Some(value));
        }
        (_, value, _) => normalize(value, ty),
    }
}

/// Of a custom object only the metadata has a form in Go.
fn normalize_custom(object: &mut Value, ty: TypeRef<'_>) {
    let metadata = ty.child("metadata").filter(|metadata| !metadata.is_custom());
    if let (Some(ty), Some(value)) = (metadata, object.get_mut("metadata")) {
        normalize(value, ty);
    }
}

fn normalize_element(value: &mut Value, ty: TypeRef<'_>) {
    if value.is_null() {
        *value = zero(ty);
    }
    normalize(value, ty);
}

fn normalize_struct(fields: &mut Map<String, Value>, ty: TypeRef<'_>) {
    normalize_fields(fields, ty, |_, _| false);
}

fn normalize_fields(fields: &mut Map<String, Value>, ty: TypeRef<'_>, is_normal: impl Fn(&str, &Value) -> bool) {
    fields.retain(|name, value| {
        if is_normal(name, value) {
            return true;
        }
        let Some(field) = ty.field(name) else { return true };
        if value.is_null() {
            return false;
        }
        let field_type = ty.to(field.ty);
        normalize(value, field_type);
        if field.pointer || !is_empty(value, field_type) {
            return true;
        }
        if value.is_array() && REFUSED_IF_EMPTY.contains(&(ty.get().go, name)) {
            return true;
        }
        if !field.omit_empty && is_collection(field_type) {
            *value = Value::Null;
        }
        !field.omit_empty
    });
    for field in ty.fields().iter().filter(|field| is_always_printed(field, ty)) {
        if !fields.contains_key(&*field.name) {
            fields.insert(field.name.to_string(), absent(field, ty.to(field.ty)));
        }
    }
}

/// Whether Go prints a field that isn't set.
fn is_always_printed(field: &Field, ty: TypeRef<'_>) -> bool {
    !field.omit_zero && (!field.omit_empty || (!field.pointer && is_struct_in_go(ty.to(field.ty))))
}

/// What Go prints for a field that isn't set, if it prints any.
fn absent(field: &Field, ty: TypeRef<'_>) -> Value {
    if field.pointer {
        return Value::Null;
    }
    let mut value = zero(ty);
    normalize(&mut value, ty);
    value
}

/// A built-in list or map. With nothing in it it is stored as if it had never been made; custom kinds keep theirs.
fn is_collection(ty: TypeRef<'_>) -> bool {
    matches!(ty.shape(), Shape::List(_) | Shape::Map(_)) && !ty.get().go.is_empty()
}

/// Go never counts a struct as empty, whatever is in it.
fn is_struct_in_go(ty: TypeRef<'_>) -> bool {
    match ty.shape() {
        Shape::Struct(_)
        | Shape::Quantity
        | Shape::Time
        | Shape::MicroTime
        | Shape::IntOrString
        | Shape::Raw
        | Shape::Json
        | Shape::FieldsV1
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrList(_)
        | Shape::SchemaOrStrings(_) => true,
        Shape::Map(_)
        | Shape::List(_)
        | Shape::String
        | Shape::Bool
        | Shape::Int32
        | Shape::Int64
        | Shape::Float
        | Shape::Bytes => false,
    }
}

fn is_empty(value: &Value, ty: TypeRef<'_>) -> bool {
    !is_struct_in_go(ty)
        && match value {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
        }
}

pub(crate) fn zero(ty: TypeRef<'_>) -> Value {
    match ty.shape() {
        Shape::Struct(_) => Value::Object(Map::new()),
        Shape::String => "".into(),
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => 0.into(),
        Shape::Quantity => "0".into(),
        Shape::Map(_)
        | Shape::List(_)
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Raw
        | Shape::Json
        | Shape::FieldsV1
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrList(_)
        | Shape::SchemaOrStrings(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[track_caller]
    fn check(group_version: &str, kind: &str, mut value: Value, expected: Value) {
        normalize(&mut value, kind_type(group_version, kind).unwrap());
        assert_eq!(value, expected);
    }

    #[test]
    fn empty_optional_fields_go_and_given_zeros_of_pointers_stay() {
        check(
            "v1",
            "ConfigMap",
            json!({"metadata": {"name": "", "labels": {}, "finalizers": []}, "data": {}, "immutable": false}),
            json!({"metadata": {}, "immutable": false}),
        );
    }

    #[test]
    fn fields_that_are_always_printed_appear() {
        check("rbac.authorization.k8s.io/v1", "Role", json!({}), json!({"metadata": {}, "rules": null}));
        check(
            "apps/v1",
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}),
            json!({
                "metadata": {},
                "spec": {
                    "selector": null,
                    "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}
                },
                "status": {}
            }),
        );
    }

    #[test]
    fn null_elements_become_zero_values() {
        check("v1", "ConfigMap", json!({"data": {"a": null}}), json!({"metadata": {}, "data": {"a": ""}}));
        check("v1", "Secret", json!({"data": {"a": null}}), json!({"metadata": {}, "data": {"a": null}}));
    }

    #[test]
    fn a_normal_form_is_its_own_normal_form() {
        for kind in crate::builtin::kinds() {
            let mut once = json!({});
            kind.normalize(&mut once);
            let mut twice = once.clone();
            kind.normalize(&mut twice);
            assert_eq!(once, twice, "{}", kind.kind);
        }
    }
}
