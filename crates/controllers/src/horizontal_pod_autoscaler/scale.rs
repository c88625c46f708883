//! The scale of what an autoscaler is for.

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Client;
use kube::api::PostParams;
use kube::core::Request;

use crate::pod_control::message;
use crate::served::Served;

/// Where a scale is found.
pub struct Place(String);

/// The path of the scale of a target, or why there is none.
pub async fn find(client: &Client, namespace: &str, target: &CrossVersionObjectReference) -> Result<Place, String> {
    let api_version = target.api_version.as_deref().unwrap_or_default();
    let (group, name) = (group(api_version)?, &target.name);
    let usual = match (group, target.kind.as_str()) {
        ("apps", "Deployment") => Some(("apps/v1", "deployments")),
        ("apps", "ReplicaSet") => Some(("apps/v1", "replicasets")),
        ("apps", "StatefulSet") => Some(("apps/v1", "statefulsets")),
        _ => None,
    };
    if let Some((version, plural)) = usual {
        return Ok(Place(format!("/apis/{version}/namespaces/{namespace}/{plural}/{name}")));
    }
    let served = Served::discover(client).await.map_err(|error| message(&error))?;
    let found = served.preferred.iter().find(|one| &*one.group == group && *one.kind == target.kind);
    let found = found.ok_or_else(|| format!("no matches for kind \"{}\" in group \"{group}\"", target.kind))?;
    Ok(Place(found.object(namespace, name)))
}

/// The group of an API version, which has at most one slash.
fn group(api_version: &str) -> Result<&str, String> {
    match api_version.split_once('/') {
        None => Ok(""),
        Some((group, version)) if !version.contains('/') => Ok(group),
        Some(_) => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

impl Place {
    pub async fn read(&self, client: &Client) -> Result<Scale, kube::Error> {
        let (path, name) = self.0.rsplit_once('/').unwrap_or_default();
        let request = Request::new(path).get_subresource("scale", name);
        client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Writes this version of a scale.
    pub async fn write(&self, client: &Client, scale: &Scale) -> Result<(), kube::Error> {
        let body = serde_json::to_vec(scale).map_err(kube::Error::SerdeError)?;
        let (path, name) = self.0.rsplit_once('/').unwrap_or_default();
        let request = Request::new(path).replace_subresource("scale", name, &PostParams::default(), body);
        client.request::<Scale>(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
    }
}
