//! Laying a document over an object without owning any of it: what mutations of policies do.

use serde_json::Value;

use super::atom::{Atom, Form};
use super::merge::merge;
use super::validity::{Duplicates, validate};
use crate::types::TypeRef;

/// The object with everything that the other document mentions. That must fit the type, and may not mention a part of what can only
/// be replaced as a whole: what it leaves out there would be lost.
pub fn lay_over(object: &Value, over: &Value, ty: TypeRef<'_>) -> Result<Value, String> {
    let form = Form::of(ty);
    validate(over, form, Duplicates::Refused)
        .map_err(|misfit| format!("failed to convert patch object to typed object: {misfit}"))?;
    let mut atomic = Vec::new();
    find_atomic(over, form, String::new(), &mut atomic);
    if !atomic.is_empty() {
        let listed = atomic.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {listed}"));
    }
    validate(object, form, Duplicates::Allowed)
        .map_err(|misfit| format!("failed to convert original object to typed object: {misfit}"))?;
    Ok(merge(object, over, form))
}

fn find_atomic(value: &Value, form: Form<'_>, path: String, found: &mut Vec<String>) {
    match (form.atom(Some(value)), value) {
        (Atom::Map(map), Value::Object(fields)) => {
            if map.atomic {
                found.push(path.clone());
            }
            for (name, value) in fields {
                if let Some(form) = map.child(name) {
                    find_atomic(value, form, format!("{path}.{name}"), found);
                }
            }
        }
        (Atom::List(list), Value::Array(items)) => {
            if list.is_atomic() {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomic(item, list.item, format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin;

    fn check(over: Value, expected: Result<Value, &str>) {
        let deployment = builtin::by_plural("apps", "v1", "deployments").expect("built in");
        let object = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}});
        let laid = lay_over(&object, &over, deployment.root_type());
        assert_eq!(laid.as_ref().map_err(String::as_str), expected.as_ref().map_err(|why| *why), "{over}");
    }

    #[test]
    fn lists_with_keys_are_merged_and_what_is_atomic_is_refused() {
        let containers = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        check(
            containers(json!([{"name": "a", "tty": true}, {"name": "b"}])),
            Ok(containers(json!([{"name": "a", "image": "i", "tty": true}, {"name": "b"}]))),
        );
        check(
            containers(json!([{"name": "a", "command": ["x"]}])),
            Err(
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].command",
            ),
        );
        check(
            json!({"spec": {"size": 1}}),
            Err("failed to convert patch object to typed object: .spec.size: field not declared in schema"),
        );
    }
}
