//! Finalizers: cleaning up outside of the cluster before an object may go.

use std::fmt::Debug;
use std::future::Future;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// What a reconcile is to do with an object, as far as its finalizer is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The finalizer must be added, before anything is made outside that would have to be cleaned up.
    Add,
    /// The finalizer is there and the object is wanted: reconcile as usual.
    Live,
    /// The object is being deleted: clean up, then remove the finalizer.
    CleanUp,
    /// The object is being deleted and our part is done: leave it alone.
    Gone,
}

/// The phase of an object.
pub fn phase(object: &impl ResourceExt, finalizer: &str) -> Phase {
    let ours = object.finalizers().iter().any(|name| name == finalizer);
    match (object.meta().deletion_timestamp.is_some(), ours) {
        (false, false) => Phase::Add,
        (false, true) => Phase::Live,
        (true, true) => Phase::CleanUp,
        (true, false) => Phase::Gone,
    }
}

/// Adds the finalizer first, cleans up at the end, and tells whether the object is to be reconciled: it is while it lives.
///
/// `clean_up` may be called again if it or the removal of the finalizer failed, so it must not mind what is gone already.
/// All writes have the object's version as precondition: a conflict means that the cache is behind, and the next run decides anew.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn doc(maps: kube::Api<ConfigMap>, map: ConfigMap) -> Result<(), kube::Error> {
/// use setpoint_runtime::finalizers;
///
/// let clean_up = || async { Ok::<(), kube::Error>(()) /* delete the bucket */ };
/// if let Some(map) = finalizers::guard(&maps, &map, "example.com/bucket", clean_up).await? {
///     // make the bucket
/// }
/// # Ok(())
/// # }
/// ```
pub async fn guard<K, E, F>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    clean_up: impl FnOnce() -> F,
) -> Result<Option<K>, E>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    E: From<kube::Error>,
    F: Future<Output = Result<(), E>>,
{
    match phase(object, finalizer) {
        Phase::Live => Ok(Some(object.clone())),
        Phase::Gone => Ok(None),
        Phase::Add => Ok(Some(add(api, object, finalizer).await?)),
        Phase::CleanUp => {
            clean_up().await?;
            remove(api, object, finalizer).await?;
            Ok(None)
        }
    }
}

/// Adds a finalizer, if the object hasn't changed since it was read.
pub async fn add<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut finalizers = object.finalizers().to_vec();
    if finalizers.iter().any(|name| name == finalizer) {
        return Ok(object.clone());
    }
    finalizers.push(finalizer.to_owned());
    write(api, object, &finalizers).await
}

/// Removes a finalizer, if the object hasn't changed since it was read. An object that is gone needs nothing.
pub async fn remove<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|name| name != finalizer);
    match write(api, object, &finalizers).await {
        Err(error) if crate::retry::is_not_found(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

async fn write<K>(api: &Api<K>, object: &K, finalizers: &[String]) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    // The list is replaced as a whole, so the version must be the one that was read: another's finalizer would be lost.
    let patch = json!({"metadata": {
        "resourceVersion": object.resource_version(), "uid": object.uid(), "finalizers": finalizers,
    }});
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::Value;

    use super::*;
    use crate::fake_api::FakeApi;

    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
    const OURS: &str = "example.com/bucket";

    struct Outcome {
        reconciles: bool,
        cleans_up: bool,
        finalizers: Value,
    }

    async fn check(metadata: Value, expected: Outcome) {
        let api = FakeApi::default();
        let mut object = json!({"metadata": {"name": "a", "uid": "u"}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        api.put_at(MAP, object);
        let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
        let (map, mut cleaned) = (maps.get("a").await.unwrap(), false);
        let clean_up = || {
            cleaned = true;
            async { Ok::<(), kube::Error>(()) }
        };
        let live = guard(&maps, &map, OURS, clean_up).await.unwrap();
        assert_eq!((live.is_some(), cleaned), (expected.reconciles, expected.cleans_up), "{metadata}");
        assert_eq!(api.object(MAP).unwrap()["metadata"]["finalizers"], expected.finalizers, "{metadata}");
    }

    #[tokio::test]
    async fn it_is_added_before_work_and_removed_after_cleaning_up() {
        let now = "2026-01-01T00:00:00Z";
        let outcome = |reconciles, cleans_up, finalizers| Outcome { reconciles, cleans_up, finalizers };
        check(json!({}), outcome(true, false, json!([OURS]))).await;
        check(json!({"finalizers": ["other"]}), outcome(true, false, json!(["other", OURS]))).await;
        check(json!({"finalizers": [OURS]}), outcome(true, false, json!([OURS]))).await;
        let deleted = json!({"deletionTimestamp": now, "finalizers": ["other", OURS]});
        check(deleted, outcome(false, true, json!(["other"]))).await;
        let done = json!({"deletionTimestamp": now, "finalizers": ["other"]});
        check(done, outcome(false, false, json!(["other"]))).await;
    }

    #[tokio::test]
    async fn a_stale_object_is_a_conflict() {
        let api = FakeApi::default();
        api.put_at(MAP, json!({"metadata": {"name": "a", "uid": "u"}}));
        let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
        let stale = maps.get("a").await.unwrap();
        api.put_at(MAP, json!({"metadata": {"name": "a", "uid": "u", "finalizers": ["other"]}}));
        let error = add(&maps, &stale, OURS).await.unwrap_err();
        assert!(crate::retry::is_conflict(&error), "{error}");
        assert_eq!(api.object(MAP).unwrap()["metadata"]["finalizers"], json!(["other"]));
    }
}
