//! How many pods the owners of some pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{Api, DynamicObject, GroupVersionKind};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Owner};
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::retry;

use crate::Wiring;
use crate::pod::Pod;

/// The caches of those that own pods and say how many.
#[derive(Clone)]
pub struct Owners {
    pub deployments: Informer<Deployment>,
    pub replica_sets: Informer<ReplicaSet>,
    pub replication_controllers: Informer<ReplicationController>,
    pub stateful_sets: Informer<StatefulSet>,
}

/// Why nobody knows how many pods there should be.
pub enum ScaleError {
    /// Nobody says it.
    Unknown(String),
    /// The server could not be asked.
    Api(Error),
}

/// An owner and how many pods it wants.
type Scale = (String, i32);

impl Owners {
    pub fn new(wiring: &Wiring<'_>) -> Owners {
        Owners {
            deployments: wiring.informer(),
            replica_sets: wiring.informer(),
            replication_controllers: wiring.informer(),
            stateful_sets: wiring.informer(),
        }
    }

    /// How many pods all owners of some pods, which are of one namespace, want together. Pods that nobody owns don't count.
    pub async fn scale_of(&self, context: &Context, pods: &[Arc<Pod>]) -> Result<i32, ScaleError> {
        let (mut scales, mut asked) = (BTreeMap::new(), BTreeMap::new());
        for pod in pods {
            let Some(owner) = pod.controller() else { continue };
            if asked.insert(owner.uid, ()).is_some() {
                continue;
            }
            let known = self.known(&pod.metadata.namespace, owner);
            let scale = match known {
                Some(known) => Some(known),
                None => asked_of_server(context, &pod.metadata.namespace, owner).await?,
            };
            let unknown = || ScaleError::Unknown(format!("found no controllers for pod \"{}\"", pod.metadata.name));
            let (uid, replicas) = scale.ok_or_else(unknown)?;
            scales.insert(uid, replicas);
        }
        Ok(scales.into_values().fold(0, i32::saturating_add))
    }

    /// What an owner of one of the usual kinds wants.
    fn known(&self, namespace: &str, owner: Owner<'_>) -> Option<Scale> {
        let key = Key::namespaced(namespace, owner.name);
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        match (group, owner.kind) {
            ("", "ReplicationController") => {
                let controller = get(&self.replication_controllers, &key, owner.uid)?;
                let replicas = controller.spec.as_ref().and_then(|spec| spec.replicas);
                Some((owner.uid.to_owned(), replicas.unwrap_or(1)))
            }
            ("apps" | "extensions", "ReplicaSet") => {
                let set = get(&self.replica_sets, &key, owner.uid)?;
                match Cached::controller(&*set).filter(|above| above.kind == "Deployment") {
                    Some(above) => {
                        let key = Key::namespaced(namespace, above.name);
                        let deployment = get(&self.deployments, &key, above.uid)?;
                        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                        Some((above.uid.to_owned(), replicas.unwrap_or(1)))
                    }
                    None => {
                        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
                        Some((owner.uid.to_owned(), replicas.unwrap_or(1)))
                    }
                }
            }
            ("apps", "StatefulSet") => {
                let set = get(&self.stateful_sets, &key, owner.uid)?;
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
                Some((owner.uid.to_owned(), replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }
}

/// The object of this key, if it is the very one.
fn get<K: Cached>(cache: &Informer<K>, key: &Key, uid: &str) -> Option<Arc<K>> {
    cache.lister().get(key.as_str()).filter(|object| object.uid() == uid)
}

/// What an owner of any other kind wants: its scale tells, if it has one.
async fn asked_of_server(context: &Context, namespace: &str, owner: Owner<'_>) -> Result<Option<Scale>, ScaleError> {
    let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, owner.kind);
    let no_match =
        || ScaleError::Unknown(format!("no matches for kind \"{}\" in version \"{}\"", owner.kind, owner.api_version));
    let (resource, capabilities) = match kube::discovery::pinned_kind(context.client(), &kind).await {
        Ok(found) => found,
        Err(kube::Error::Discovery(_)) => return Err(no_match()),
        Err(error) if retry::is_not_found(&error) => return Err(no_match()),
        Err(error) => return Err(ScaleError::Api(error.into())),
    };
    let has_scale = capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "scale");
    if !has_scale {
        let dot = if group.is_empty() { "" } else { "." };
        let name = format!("{}{dot}{group}", resource.plural);
        return Err(ScaleError::Unknown(format!("{name} does not implement the scale subresource")));
    }
    let api: Api<DynamicObject> = Api::namespaced_with(context.client().clone(), namespace, &resource);
    match api.get_scale(owner.name).await {
        Ok(scale) if scale.metadata.uid.as_deref() == Some(owner.uid) => {
            let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
            Ok(Some((owner.uid.to_owned(), replicas)))
        }
        Ok(_) => Ok(None),
        Err(error) if retry::is_not_found(&error) => Ok(None),
        Err(error) => Err(ScaleError::Api(error.into())),
    }
}
