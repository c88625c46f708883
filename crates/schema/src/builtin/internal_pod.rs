//! Pod templates as messages show them: upstream prints its internal types, with every field under its Go name, in the
//! order of declaration, absent ones too. The types are in `facts/internal-pod-types.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::go_value::{label_selector, scalar, structure};
use crate::edit::Edit;

/// Fields that belong to the security context inside, and to the pod outside.
const HOST_FIELDS: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// Fields of metadata in the order in which Go prints them.
const METADATA: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// Fields of each type, with their types.
static TYPES: LazyLock<HashMap<&str, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let lines = include_str!("../../facts/internal-pod-types.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.filter_map(|word| word.split_once(':')).collect()))
        })
        .collect()
});

/// A `PodTemplateSpec` as Go prints it.
pub fn pod_template(template: &Value) -> String {
    let mut template = template.clone();
    move_host_fields(template.ensure("spec"));
    print(&template, "PodTemplateSpec")
}

/// A `PodSpec` as Go prints it.
pub fn pod_spec(spec: &Value) -> String {
    let mut spec = spec.clone();
    move_host_fields(&mut spec);
    print(&spec, "PodSpec")
}

fn move_host_fields(spec: &mut Value) {
    for name in HOST_FIELDS {
        if let Some(value) = spec.remove(name) {
            spec.ensure("securityContext").set(name, value);
        }
    }
}

fn print(value: &Value, ty: &str) -> String {
    if let Some(inner) = ty.strip_prefix('*') {
        return if value.is_null() { "null".to_owned() } else { print(value, inner) };
    }
    if let Some(item) = ty.strip_prefix("[]") {
        return match value.as_array() {
            None => "null".to_owned(),
            Some(items) => format!("[{}]", items.iter().map(|value| print(value, item)).collect::<Vec<_>>().join(",")),
        };
    }
    match ty {
        "selector" => label_selector(Some(value)),
        "map" => scalar(Some(value)),
        _ if TYPES.contains_key(ty) => structure(fields(value, ty)),
        _ if !value.is_null() => scalar(Some(value)),
        "string" => "\"\"".to_owned(),
        "quantity" => "\"0\"".to_owned(),
        "bool" => "false".to_owned(),
        _ => "0".to_owned(),
    }
}

fn fields<'a>(value: &Value, ty: &str) -> Vec<(&'a str, String)> {
    let mut shown = Vec::new();
    for (name, ty) in TYPES.get(ty).into_iter().flatten() {
        match (*name, *ty) {
            ("", "metadata") => shown.extend(metadata(&value["metadata"])),
            ("", embedded) => shown.extend(fields(value, embedded)),
            (name, ty) => shown.push((name, print(find(value, name), ty))),
        }
    }
    shown
}

/// Names outside and inside differ in case only.
fn find<'a>(value: &'a Value, name: &str) -> &'a Value {
    let fields = value.as_object().into_iter().flatten();
    fields.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or(&Value::Null, |(_, value)| value)
}

fn metadata<'a>(metadata: &Value) -> impl Iterator<Item = (&'a str, String)> {
    METADATA.into_iter().filter_map(|name| {
        let value = metadata.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""))?;
        Some((name, scalar(Some(value))))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_that_is_named_is_known() {
        const SIMPLE: [&str; 7] = ["string", "number", "bool", "quantity", "map", "selector", "metadata"];
        for (owner, fields) in TYPES.iter() {
            for (name, ty) in fields {
                let base = ty.trim_start_matches(['*', '[', ']']);
                assert!(SIMPLE.contains(&base) || TYPES.contains_key(base), "{owner}.{name}: {ty}");
            }
        }
    }

    #[test]
    fn a_template_is_shown_with_all_its_fields() {
        let text = pod_template(&json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"hostNetwork": true, "volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {}},
        }));
        assert!(
            text.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":[{"Name":"v","HostPath":null,"EmptyDir":{"#),
            "{text}"
        );
        assert!(text.contains(r#""EmptyDir":{"Medium":"","SizeLimit":null}"#), "{text}");
        assert!(text.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false"#), "{text}");
        assert!(text.contains(r#""RestartPolicy":"","TerminationGracePeriodSeconds":null"#), "{text}");
    }
}
