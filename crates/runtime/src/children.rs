//! The children of an object: each applied as it should be, and those that are no longer wanted deleted.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owners;

/// What was done to the children of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Names of those that are wanted.
    pub applied: Vec<String>,
    /// Names of those that were deleted because they aren't wanted any more.
    pub pruned: Vec<String>,
}

/// Applies the children of one owner, kind by kind.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::{ConfigMap, Service};
/// # async fn doc(client: kube::Client, owner: ConfigMap, config: ConfigMap, service: Service) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_runtime::children::Children;
///
/// let children = Children::of(&owner, &client, "shop-controller", "app.kubernetes.io/instance=shop").ok_or("no uid yet")?;
/// children.apply(vec![config]).await?;
/// children.apply(vec![service]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Children {
    client: Client,
    namespace: String,
    owner: OwnerReference,
    manager: String,
    selector: String,
}

impl Children {
    /// The children of `owner` in its namespace. `manager` is the field manager that applies them; `selector` finds them: each
    /// child must have these labels. Nothing if the owner hasn't been stored yet.
    pub fn of<O: Resource<DynamicType = ()>>(
        owner: &O,
        client: &Client,
        manager: &str,
        selector: &str,
    ) -> Option<Children> {
        Some(Children {
            client: client.clone(),
            namespace: owner.meta().namespace.clone().unwrap_or_default(),
            owner: owners::controller_reference(owner)?,
            manager: manager.to_owned(),
            selector: selector.to_owned(),
        })
    }

    /// Applies each of `wanted`, which must have a name and no namespace but the owner's, and deletes the others of this kind that
    /// the owner controls. Objects that only look alike, without the owner's reference, are never touched.
    pub async fn apply<K>(&self, wanted: Vec<K>) -> Result<Applied, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply(&self.manager).force();
        let mut done = Applied::default();
        for mut child in wanted {
            owners::set_owner(child.meta_mut(), self.owner.clone());
            let name = child.name_any();
            let mut body = serde_json::to_value(&child).map_err(kube::Error::SerdeError)?;
            // Server-side apply needs to know the kind; typed objects carry it already, others may not.
            body["apiVersion"] = K::api_version(&()).into_owned().into();
            body["kind"] = K::kind(&()).into_owned().into();
            api.patch(&name, &params, &Patch::Apply(body)).await?;
            done.applied.push(name);
        }
        done.pruned = self.prune(&api, &done.applied).await?;
        Ok(done)
    }

    async fn prune<K>(&self, api: &Api<K>, wanted: &[String]) -> Result<Vec<String>, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
        let mut pruned = Vec::new();
        for child in api.list(&ListParams::default().labels(&self.selector)).await? {
            let ours = owners::is_controlled_by(child.meta(), &self.owner.uid);
            if !ours || wanted.contains(child.name_any().as_str()) || child.meta().deletion_timestamp.is_some() {
                continue;
            }
            // With the uid: another object may have taken the name since the list.
            let preconditions = Some(Preconditions { uid: child.uid(), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::background() };
            match api.delete(&child.name_any(), &params).await {
                Ok(_) => pruned.push(child.name_any()),
                Err(error) if crate::retry::is_not_found(&error) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(pruned)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::fake_api::FakeApi;

    fn map(name: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.labels = Some([("app".to_owned(), "shop".to_owned())].into());
        map
    }

    #[tokio::test]
    async fn those_no_longer_wanted_are_deleted_and_strangers_are_not() {
        let api = FakeApi::default();
        let at = |name: &str| format!("/api/v1/namespaces/shop/configmaps/{name}");
        api.put_at(&at("stranger"), json!({"metadata": {"name": "stranger", "labels": {"app": "shop"}}}));
        let mut owner = map("owner");
        (owner.metadata.namespace, owner.metadata.uid) = (Some("shop".to_owned()), Some("u1".to_owned()));
        let children = Children::of(&owner, &api.client(), "tester", "app=shop").unwrap();
        let first = children.apply(vec![map("a"), map("b")]).await.unwrap();
        assert_eq!((first.applied, first.pruned), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        let calls = api.take_calls();
        assert_eq!(calls[0].media, "application/apply-patch+yaml");
        assert_eq!((&calls[0].body["apiVersion"], &calls[0].body["kind"]), (&json!("v1"), &json!("ConfigMap")));
        assert_eq!(calls[0].body["metadata"]["ownerReferences"][0]["controller"], json!(true));
        let second = children.apply(vec![map("b")]).await.unwrap();
        assert_eq!(second.pruned, ["a"]);
        let delete = api.take_calls().pop().unwrap();
        assert!(delete.body["preconditions"]["uid"].is_string(), "{:?}", delete.body);
        assert!(api.object(&at("a")).is_none() && api.object(&at("b")).is_some());
        assert!(api.object(&at("stranger")).is_some());
    }
}
