//! Makes, changes and deletes slices.

use futures_util::future::try_join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use setpoint_runtime::retry;

use super::plan::Plan;
use crate::pod_control::is_namespace_terminating;

/// Carries a plan out. New slices come first, so that nobody is without a place in between.
pub async fn carry_out(client: &Client, namespace: &str, plan: &Plan) -> Result<(), kube::Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    try_join_all(plan.create.iter().map(|slice| create(&api, slice))).await?;
    try_join_all(plan.update.iter().map(|slice| update(&api, slice))).await?;
    try_join_all(plan.delete.iter().map(|slice| delete(&api, slice))).await?;
    Ok(())
}

async fn create(api: &Api<EndpointSlice>, slice: &EndpointSlice) -> Result<(), kube::Error> {
    match api.create(&PostParams::default(), slice).await {
        Err(error) if is_namespace_terminating(&error) => Ok(()),
        other => other.map(drop),
    }
}

async fn update(api: &Api<EndpointSlice>, slice: &EndpointSlice) -> Result<(), kube::Error> {
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    api.replace(name, &PostParams::default(), slice).await.map(drop)
}

async fn delete(api: &Api<EndpointSlice>, slice: &EndpointSlice) -> Result<(), kube::Error> {
    let preconditions = Preconditions {
        uid: slice.metadata.uid.clone(),
        // Somebody may have put endpoints into it since.
        resource_version: slice.metadata.resource_version.clone(),
    };
    let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(slice.metadata.name.as_deref().unwrap_or_default(), &how).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => other.map(drop),
    }
}
