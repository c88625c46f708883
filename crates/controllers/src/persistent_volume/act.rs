//! Writes links between claims and volumes. Every write is refused if the object isn't as it was read.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use setpoint_runtime::retry;

use super::matching::{self, annotation, class_of_claim};
use super::plan::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, PROVISIONERS, SIMULATED, claim_ref};

/// Writes to claims and volumes.
pub struct Hand<'a> {
    pub client: &'a Client,
}

impl Hand<'_> {
    /// Links a claim and a volume, as far as that isn't done: the volume first, then the claim.
    pub async fn bind(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let mut volume = volume.clone();
        let linked = claim_ref(&volume).is_some_and(|reference| reference.uid == claim.metadata.uid);
        if !linked || !matching::is_for(&volume, claim) {
            let mut patch = json!({"spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.metadata.namespace, "name": claim.metadata.name,
                "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}}});
            if !matching::is_for(&volume, claim) && annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_none() {
                patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            volume = self.volume(&volume, patch).await?;
        }
        if matching::phase(&volume) != "Bound" {
            volume = self.volume_phase(&volume, "Bound", None).await?;
        }
        let mut claim = claim.clone();
        let mut annotations = json!({});
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        if name != volume.metadata.name {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        if annotation(&claim.metadata, BIND_COMPLETED).is_none() {
            annotations[BIND_COMPLETED] = json!("yes");
        }
        if annotations != json!({}) {
            let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.metadata.name}});
            claim = self.claim(&claim, patch).await?;
        }
        self.claim_phase(&claim, "Bound", Some(&volume)).await
    }

    /// Writes the phase of a claim with what it has of its volume; nothing if that is so already.
    pub async fn claim_phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<(), kube::Error> {
        let status = claim.status.clone().unwrap_or_default();
        let is_new = status.phase.as_deref() != Some(phase);
        let mut wanted = json!({});
        if is_new {
            wanted["phase"] = json!(phase);
        }
        let spec = volume.and_then(|volume| volume.spec.as_ref());
        if status.access_modes.as_ref() != spec.and_then(|spec| spec.access_modes.as_ref()) {
            wanted["accessModes"] = json!(spec.and_then(|spec| spec.access_modes.as_ref()));
        }
        // The capacity of a bound claim is whose business resizes it.
        let capacity = spec.and_then(|spec| spec.capacity.as_ref());
        if status.capacity.as_ref() != capacity && (is_new || volume.is_none()) {
            wanted["capacity"] = json!(capacity);
        }
        let attributes = spec.and_then(|spec| spec.volume_attributes_class_name.as_ref());
        if status.current_volume_attributes_class_name.as_ref() != attributes && (is_new || volume.is_none()) {
            wanted["currentVolumeAttributesClassName"] = json!(attributes);
        }
        if wanted == json!({}) {
            return Ok(());
        }
        let patch = guarded(&claim.metadata, json!({ "status": wanted }));
        let (name, api) = self.claims(claim);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Changes a claim.
    pub async fn claim(
        &self,
        claim: &PersistentVolumeClaim,
        patch: Value,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let (name, api) = self.claims(claim);
        api.patch(name, &PatchParams::default(), &Patch::Merge(guarded(&claim.metadata, patch))).await
    }

    /// Says who is to make the volume of a claim; whether that was new.
    pub async fn ask_provisioner(&self, claim: &PersistentVolumeClaim, provisioner: &str) -> Result<bool, kube::Error> {
        if PROVISIONERS.iter().all(|name| annotation(&claim.metadata, name) == Some(provisioner)) {
            return Ok(false);
        }
        let annotations: serde_json::Map<String, Value> =
            PROVISIONERS.iter().map(|name| ((*name).to_owned(), json!(provisioner))).collect();
        self.claim(claim, json!({"metadata": {"annotations": annotations}})).await?;
        Ok(true)
    }

    /// Makes the volume of a claim of a simulated class; whether it wasn't there.
    pub async fn provision(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<bool, kube::Error> {
        let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
        let spec = claim.spec.clone().unwrap_or_default();
        let volume = json!({
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: SIMULATED}},
            "spec": {
                "capacity": {"storage": matching::wanted(claim).to_string()},
                "accessModes": spec.access_modes,
                "volumeMode": matching::wanted_mode(claim),
                "storageClassName": class_of_claim(claim),
                "volumeAttributesClassName": spec.volume_attributes_class_name,
                "mountOptions": class.mount_options,
                "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
                "csi": {"driver": SIMULATED, "volumeHandle": name},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.metadata.namespace,
                    "name": claim.metadata.name, "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version},
            },
        });
        let volume: PersistentVolume = serde_json::from_value(volume).map_err(kube::Error::SerdeError)?;
        match self.volumes().create(&PostParams::default(), &volume).await {
            Err(error) if retry::is_already_exists(&error) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Writes the phase of a volume.
    pub async fn volume_phase(
        &self,
        volume: &PersistentVolume,
        phase: &str,
        message: Option<&str>,
    ) -> Result<PersistentVolume, kube::Error> {
        let patch = guarded(&volume.metadata, json!({"status": {"phase": phase, "message": message}}));
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        self.volumes().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Takes the claim off a volume; one that the user reserved stays reserved for the name.
    pub async fn unbind(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let patch = match annotation(&volume.metadata, BOUND_BY_CONTROLLER) {
            Some(_) => json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}}),
            None => json!({"spec": {"claimRef": {"uid": null}}}),
        };
        let volume = self.volume(volume, patch).await?;
        self.volume_phase(&volume, "Available", None).await.map(drop)
    }

    /// Deletes a volume.
    pub async fn delete(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let preconditions = Some(Preconditions { uid: volume.metadata.uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.volumes().delete(volume.metadata.name.as_deref().unwrap_or_default(), &params).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn volume(&self, volume: &PersistentVolume, patch: Value) -> Result<PersistentVolume, kube::Error> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(guarded(&volume.metadata, patch));
        self.volumes().patch(name, &PatchParams::default(), &patch).await
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    fn claims<'a>(&self, claim: &'a PersistentVolumeClaim) -> (&'a str, Api<PersistentVolumeClaim>) {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        (claim.metadata.name.as_deref().unwrap_or_default(), Api::namespaced(self.client.clone(), namespace))
    }
}

/// A patch that fits this version of an object only.
fn guarded(metadata: &kube::api::ObjectMeta, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    patch
}
