//! Making sure that an object is as it should be: created if missing, patched where it differs, left alone otherwise.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What had to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was missing.
    Created,
    /// It was different.
    Patched,
    /// It was as it should be; nothing was written.
    Unchanged,
}

/// Reads the object, lets `make` change it, and writes only the difference, with the version that was read as precondition.
///
/// `make` gets the object as it is, or an empty one with the name, and must only touch what its caller owns.
///
/// ```no_run
/// # async fn doc(maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap>) -> Result<(), kube::Error> {
/// use setpoint_runtime::create_or_patch::create_or_patch;
///
/// let make = |map: &mut k8s_openapi::api::core::v1::ConfigMap| {
///     map.data.get_or_insert_default().insert("temperature".into(), "21".into());
/// };
/// let (map, change) = create_or_patch(&maps, "settings", make).await?;
/// # Ok(())
/// # }
/// ```
pub async fn create_or_patch<K>(api: &Api<K>, name: &str, make: impl FnOnce(&mut K)) -> Result<(K, Change), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Default,
{
    let Some(found) = api.get_opt(name).await? else {
        let mut object = K::default();
        object.meta_mut().name = Some(name.to_owned());
        make(&mut object);
        return Ok((api.create(&PostParams::default(), &object).await?, Change::Created));
    };
    let mut wanted = found.clone();
    make(&mut wanted);
    let Some(mut patch) = difference(&value(&found)?, &value(&wanted)?) else {
        return Ok((found, Change::Unchanged));
    };
    patch["metadata"]["resourceVersion"] = Value::from(found.resource_version());
    let object = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok((object, Change::Patched))
}

fn value(object: &impl Serialize) -> Result<Value, kube::Error> {
    serde_json::to_value(object).map_err(kube::Error::SerdeError)
}

/// The merge patch (RFC 7386) from one to the other; nothing if they are equal.
pub fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter_map(|(key, value)| match from.get(key) {
        Some(old) => difference(old, value).map(|patch| (key.clone(), patch)),
        None => Some((key.clone(), value.clone())),
    });
    let patch: Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::fake_api::FakeApi;

    #[test]
    fn a_difference_holds_only_what_changed() {
        let check = |from: Value, to: Value, expected: Option<Value>| assert_eq!(difference(&from, &to), expected);
        check(json!({"a": 1, "b": {"c": [1]}}), json!({"a": 1, "b": {"c": [1]}}), None);
        check(
            json!({"a": 1, "b": {"c": 1, "d": 2}}),
            json!({"b": {"c": 3, "d": 2}}),
            Some(json!({"a": null, "b": {"c": 3}})),
        );
        check(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})));
        check(json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]})));
    }

    #[tokio::test]
    async fn it_is_created_patched_or_left_alone() {
        let api = FakeApi::default();
        let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
        let set = |value: &'static str| {
            move |map: &mut ConfigMap| drop(map.data.get_or_insert_default().insert("key".into(), value.into()))
        };
        for (value, expected, writes) in
            [("1", Change::Created, 1), ("1", Change::Unchanged, 0), ("2", Change::Patched, 1)]
        {
            let (map, change) = create_or_patch(&maps, "a", set(value)).await.unwrap();
            assert_eq!((change, map.data.unwrap()["key"].as_str()), (expected, value));
            let calls = api.take_calls();
            assert_eq!(calls.iter().filter(|call| call.method != http::Method::GET).count(), writes, "{value}");
            if change == Change::Patched {
                let patch = &calls.last().unwrap().body;
                assert_eq!(*patch, json!({"metadata": {"resourceVersion": "1"}, "data": {"key": "2"}}));
            }
        }
    }
}
