//! The collector's calls. None deletes or changes an object that is another than was meant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{PartialObjectMeta, Request};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use setpoint_runtime::clock::Chance;
use setpoint_runtime::retry::{self, Retry};

use super::identity::Identity;
use super::plan::Policy;
use crate::served::{Resource, Served};

/// The finalizer of an object whose dependents are to be let go first.
pub const ORPHAN: &str = "orphan";
/// The finalizer of an object whose dependents are to be deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Why an object could not be dealt with.
#[derive(Debug)]
pub enum Failure {
    /// The server has no such kind, now.
    UnknownKind(Identity),
    /// An object of the whole cluster names an owner that is in a namespace, but can't say in which.
    NoNamespace,
    /// No object can have this name, and a path with it would lead elsewhere.
    BadName(Identity),
    Api(kube::Error),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Failure {
        Failure::Api(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::UnknownKind(identity) => write!(out, "the server has no such kind: {identity}"),
            Failure::NoNamespace => out.write_str("an object without a namespace can't be owned by one in a namespace"),
            Failure::BadName(identity) => write!(out, "no object has such a name: {identity}"),
            Failure::Api(error) => error.fmt(out),
        }
    }
}

/// Where the objects of one kind are, for calls.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub client: &'a Client,
    pub resource: &'a Resource,
    pub identity: &'a Identity,
}

impl<'a> Place<'a> {
    /// Where an object is.
    pub fn of(client: &'a Client, served: &'a Served, identity: &'a Identity) -> Result<Place<'a>, Failure> {
        let kind = &identity.kind;
        let resource = served.of_kind(&kind.api_version, &kind.kind);
        let resource = resource.ok_or_else(|| Failure::UnknownKind(identity.clone()))?;
        if resource.is_namespaced && identity.namespace.is_none() {
            return Err(Failure::NoNamespace);
        }
        if !is_one_segment(&identity.name) {
            return Err(Failure::BadName(identity.clone()));
        }
        Ok(Place { client, resource, identity })
    }

    /// The metadata that it has now; none if there is no object of this name.
    pub async fn get(&self) -> Result<Option<ObjectMeta>, kube::Error> {
        let request = self.request().get_metadata(&self.identity.name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<PartialObjectMeta>(request).await {
            Ok(found) => Ok(Some(found.metadata)),
            Err(error) if retry::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes it, if it is still this object and, where given, in this version.
    pub async fn delete(&self, version: Option<String>, policy: Policy) -> Result<(), kube::Error> {
        let preconditions = Preconditions { uid: Some(self.identity.uid.to_string()), resource_version: version };
        let policy = match policy {
            Policy::Orphan => PropagationPolicy::Orphan,
            Policy::Foreground => PropagationPolicy::Foreground,
            Policy::Background => PropagationPolicy::Background,
        };
        let how = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        let request = self.request().delete(&self.identity.name, &how).map_err(kube::Error::BuildRequest)?;
        // The answer may be the whole object; nobody reads it.
        self.client.request::<IgnoredAny>(request).await.map(drop)
    }

    /// Deletes it unless its owners have changed. Other changes don't matter, however quick they come.
    pub async fn delete_as_seen(&self, seen: &ObjectMeta, policy: Policy) -> Result<(), kube::Error> {
        let refused = match self.delete(seen.resource_version.clone(), policy).await {
            Err(error) if retry::is_conflict(&error) => error,
            answer => return answer,
        };
        let Some(now) = self.get().await? else { return Ok(()) };
        let is_same = now.uid == seen.uid && now.owner_references == seen.owner_references;
        if is_same && now.resource_version != seen.resource_version {
            return self.delete(None, policy).await;
        }
        Err(refused)
    }

    /// Takes the references to these owners away.
    pub async fn let_go(&self, owners: &[String]) -> Result<(), kube::Error> {
        let references: Vec<Value> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let keep = |reference: OwnerReference| (!owners.contains(&reference.uid)).then_some(reference);
        self.patch_owners(references, keep).await
    }

    /// No owner waits for it any more.
    pub async fn unblock(&self, seen: &ObjectMeta) -> Result<(), kube::Error> {
        let blocking = seen.owner_references.iter().flatten().filter(|owner| owner.block_owner_deletion == Some(true));
        let freed = blocking.map(|owner| {
            json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                "blockOwnerDeletion": false,
            })
        });
        let free = |reference| Some(OwnerReference { block_owner_deletion: Some(false), ..reference });
        self.patch_owners(freed.collect(), free).await
    }

    /// Changes references one by one where the kind knows how, else all of them at once in the version that was read.
    async fn patch_owners(
        &self,
        one_by_one: Vec<Value>,
        change: impl Fn(OwnerReference) -> Option<OwnerReference>,
    ) -> Result<(), kube::Error> {
        let uid = self.identity.uid.to_string();
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": one_by_one}});
        match self.patch(Patch::Strategic(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 415 => {}
            answer => return answer,
        }
        let Some(now) = self.get().await? else { return Ok(()) };
        let owners: Vec<_> = now.owner_references.into_iter().flatten().filter_map(change).collect();
        let patch =
            json!({"metadata": {"uid": uid, "resourceVersion": now.resource_version, "ownerReferences": owners}});
        self.patch(Patch::Merge(patch)).await
    }

    /// Takes a finalizer away, whatever else changes meanwhile.
    pub async fn remove_finalizer(&self, finalizer: &str, chance: &Chance) -> Result<(), kube::Error> {
        let attempt = || async {
            let Some(now) = self.get().await? else { return Ok(()) };
            let mut finalizers = now.finalizers.unwrap_or_default();
            if now.uid != Some(self.identity.uid.to_string()) || !finalizers.iter().any(|name| name == finalizer) {
                return Ok(());
            }
            finalizers.retain(|name| name != finalizer);
            let patch = json!({"metadata": {"resourceVersion": now.resource_version, "finalizers": finalizers}});
            self.patch(Patch::Merge(patch)).await
        };
        Retry::BUSY.on_conflict(chance, attempt).await
    }

    async fn patch(&self, patch: Patch<Value>) -> Result<(), kube::Error> {
        let request = self.request().patch_metadata(&self.identity.name, &PatchParams::default(), &patch);
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<IgnoredAny>(request).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn request(&self) -> Request {
        let namespace = if self.resource.is_namespaced { self.identity.namespace() } else { "" };
        Request::new(self.resource.collection(namespace))
    }
}

/// Whether a name is one part of a path, and stays one.
fn is_one_segment(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/%?#\\\"<>`{}|^".contains(&byte);
    !name.is_empty() && name != "." && name != ".." && name.bytes().all(is_plain)
}
