//! Ownership of the number of replicas, between an object and its scale: one field of both.

use serde_json::Value;

use super::element::Element;
use super::field_set::FieldSet;
use super::managers::{Managers, Operation, Owner};

/// The version of every scale.
const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the number of replicas is, in each version of the object: the version, and the fields from the root. A version
/// without scale has none.
pub type ScaleVersions<'a> = &'a [(&'a str, Option<&'a [String]>)];

/// The managed fields of a scale: who owns the number of replicas of the object. None if nobody does.
pub fn to_scale(managed_fields: Option<&Value>, versions: ScaleVersions<'_>) -> Result<Option<Value>, String> {
    let mut scale = Managers::default();
    for (_, owner) in Managers::decode(managed_fields)?.iter() {
        let path = path_in(versions, &owner.api_version).flatten();
        if path.is_some_and(|path| owner.set.has(&path)) {
            insert_as(&mut scale, owner, SCALE_VERSION, replicas_of_scale());
        }
    }
    Ok(scale.encode())
}

/// The managed fields of the object after a write to its scale: who lost the number of replicas there loses it here, and
/// who is new there owns it here, in `api_version`.
pub fn from_scale(
    managed_fields: Option<&Value>,
    scale_fields: Option<&Value>,
    versions: ScaleVersions<'_>,
    api_version: &str,
) -> Result<Option<Value>, String> {
    let (known, scale) = (Managers::decode(managed_fields)?, Managers::decode(scale_fields)?);
    // Who updates is another manager in each version, so it never has in the scale what it has in the object.
    let is_same = |a: &Owner, b: &Owner| a.manager == b.manager && a.manager.operation == Operation::Apply;
    let mut after = Managers::default();
    for (_, owner) in known.iter() {
        let Some(path) = path_in(versions, &owner.api_version) else { continue };
        let mut owner = owner.clone();
        if let Some(path) = path.filter(|path| owner.set.has(path))
            && !scale.iter().any(|(_, other)| is_same(other, &owner))
        {
            owner.set = owner.set.difference(&only(&path));
        }
        if !owner.set.is_empty() {
            after.insert(owner);
        }
    }
    let kept = |other: &Owner| known.iter().any(|(_, owner)| is_same(owner, other) && owns_replicas(owner, versions));
    let replicas = path_in(versions, api_version).flatten().map(|path| only(&path)).unwrap_or_default();
    for (_, owner) in scale.iter().filter(|(_, owner)| !kept(owner)) {
        if owner.set.has(&scale_path()) && !replicas.is_empty() {
            let time = known.iter().find(|(_, other)| is_same(other, owner)).and_then(|(_, other)| other.time.clone());
            let (api_version, set) = (api_version.to_owned(), replicas.clone());
            after.insert_beside(SCALE_VERSION, Owner { time, api_version, set, ..owner.clone() });
        }
    }
    Ok(after.encode())
}

fn insert_as(managers: &mut Managers, owner: &Owner, api_version: &str, set: FieldSet) {
    managers.insert(Owner { api_version: api_version.to_owned(), set, ..owner.clone() });
}

fn owns_replicas(owner: &Owner, versions: ScaleVersions<'_>) -> bool {
    path_in(versions, &owner.api_version).flatten().is_some_and(|path| owner.set.has(&path))
}

/// None if the version isn't served.
fn path_in(versions: ScaleVersions<'_>, api_version: &str) -> Option<Option<Vec<Element>>> {
    let (_, path) = versions.iter().find(|(version, _)| *version == api_version)?;
    Some(path.map(|fields| fields.iter().map(|name| Element::field(name)).collect()))
}

fn only(path: &[Element]) -> FieldSet {
    let mut set = FieldSet::new();
    set.insert(path);
    set
}

fn scale_path() -> [Element; 2] {
    [Element::field("spec"), Element::field("replicas")]
}

fn replicas_of_scale() -> FieldSet {
    only(&scale_path())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn replicas() -> Value {
        json!({"f:spec": {"f:replicas": {}}})
    }

    fn way() -> Vec<String> {
        vec!["spec".to_owned(), "replicas".to_owned()]
    }

    #[test]
    fn the_scale_knows_who_owns_the_replicas() {
        let way = way();
        let versions: ScaleVersions<'_> = &[("apps/v1", Some(&way))];
        let object = json!([
            entry("one", "Apply", "apps/v1", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}})),
            entry("two", "Update", "apps/v1", json!({"f:spec": {"f:paused": {}}})),
            entry("old", "Update", "apps/v0", replicas()),
        ]);
        let expected = json!([entry("one", "Apply", "autoscaling/v1", replicas())]);
        assert_eq!(to_scale(Some(&object), versions), Ok(Some(expected)));
        assert_eq!(to_scale(None, versions), Ok(None));
    }

    #[test]
    fn what_is_taken_through_the_scale_is_lost_in_the_object() {
        let way = way();
        let versions: ScaleVersions<'_> = &[("apps/v1", Some(&way))];
        let object = json!([entry("one", "Apply", "apps/v1", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}))]);
        let mut scaler = entry("scaler", "Update", "autoscaling/v1", replicas());
        scaler["subresource"] = json!("scale");
        let after = from_scale(Some(&object), Some(&json!([scaler])), versions, "apps/v1").unwrap().unwrap();
        scaler["apiVersion"] = json!("apps/v1");
        let one = entry("one", "Apply", "apps/v1", json!({"f:spec": {"f:paused": {}}}));
        assert_eq!(after, json!([one, scaler]));
    }

    #[test]
    fn what_is_not_taken_stays() {
        let way = way();
        let versions: ScaleVersions<'_> = &[("apps/v1", Some(&way)), ("apps/v2", None)];
        let object = json!([
            entry("one", "Apply", "apps/v1", replicas()),
            entry("three", "Apply", "apps/v2", json!({"f:x": {}})),
            entry("gone", "Apply", "apps/v0", json!({"f:x": {}})),
            entry("two", "Update", "apps/v1", json!({"f:spec": {"f:paused": {}}})),
        ]);
        let scale = to_scale(Some(&object), versions).unwrap();
        let after = from_scale(Some(&object), scale.as_ref(), versions, "apps/v1").unwrap().unwrap();
        let names: Vec<_> = after.as_array().unwrap().iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
        assert_eq!(names, ["one", "three", "two"]);
        assert_eq!(after[0], object[0]);
    }

    #[test]
    fn who_has_updated_owns_the_replicas_apart_after_a_write_to_the_scale() {
        let way = way();
        let versions: ScaleVersions<'_> = &[("apps/v1", Some(&way))];
        let object = json!([entry("one", "Update", "apps/v1", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}))]);
        let scale = to_scale(Some(&object), versions).unwrap();
        let after = from_scale(Some(&object), scale.as_ref(), versions, "apps/v1").unwrap().unwrap();
        let mut fields: Vec<_> = after.as_array().unwrap().iter().map(|entry| entry["fieldsV1"].clone()).collect();
        fields.sort_by_key(Value::to_string);
        assert_eq!(fields, [json!({"f:spec": {"f:paused": {}}}), replicas()]);
    }
}
