//! Reads from the server what no cache keeps: pods with what they take, and how many objects of a kind there are.

use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ListMeta, NamespaceResourceScope, Request};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use setpoint_runtime::retry;

use super::pods::Pod;

/// How many objects are asked for at once.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    items: Vec<T>,
}

/// All pods of a namespace.
pub async fn pods(client: &Client, namespace: &str) -> Result<Vec<Pod>, kube::Error> {
    let path = Api::<core::Pod>::namespaced(client.clone(), namespace).resource_url().to_owned();
    let (mut pods, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let request = Request::new(path.clone()).list(&params).map_err(kube::Error::BuildRequest)?;
        let page: List<Pod> = client.request(request).await?;
        pods.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(pods),
        }
    }
}

/// All objects of a kind in a namespace.
pub async fn all<K>(client: &Client, namespace: &str) -> Result<Vec<K>, kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// How many objects of a kind are in a namespace; none if there is no such kind in namespaces.
pub async fn count(client: &Client, namespace: &str, plural: &str, group: &str) -> Result<Option<usize>, kube::Error> {
    let Some(version) = version(client, plural, group).await? else { return Ok(None) };
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let path = format!("{root}/namespaces/{namespace}/{plural}");
    let request = Request::new(path).list(&ListParams::default().limit(1)).map_err(kube::Error::BuildRequest)?;
    let page: List<IgnoredAny> = client.request(request).await?;
    let more = page.metadata.remaining_item_count.and_then(|more| usize::try_from(more).ok()).unwrap_or(0);
    Ok(Some(page.items.len() + more))
}

/// The version in which a kind that lives in namespaces is served.
async fn version(client: &Client, plural: &str, group: &str) -> Result<Option<String>, kube::Error> {
    if group.is_empty() {
        let served = client.list_core_api_resources("v1").await?;
        let is_there = served.resources.iter().any(|resource| resource.name == plural && resource.namespaced);
        return Ok(is_there.then(|| "v1".to_owned()));
    }
    let groups = client.list_api_groups().await?;
    let Some(known) = groups.groups.into_iter().find(|known| known.name == group) else { return Ok(None) };
    let preferred = known.preferred_version.map(|version| version.version);
    let versions = known.versions.into_iter().map(|version| version.version);
    for version in preferred.into_iter().chain(versions) {
        let served = match client.list_api_group_resources(&format!("{group}/{version}")).await {
            Err(error) if retry::is_not_found(&error) => continue,
            served => served?,
        };
        if served.resources.iter().any(|resource| resource.name == plural && resource.namespaced) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}
