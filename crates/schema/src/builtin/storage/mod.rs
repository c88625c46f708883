//! Kinds of the group `storage.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod csidriver;
pub mod csinode;
pub mod csistoragecapacity;
pub mod parameters;
pub mod storageclass;
pub mod volumeattachment;
pub mod volumeattributesclass;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "csidrivers" => Arc::new(csidriver::CsiDriver),
        "csinodes" => Arc::new(csinode::CsiNode),
        "csistoragecapacities" => Arc::new(csistoragecapacity::CsiStorageCapacity),
        "storageclasses" => Arc::new(storageclass::StorageClass),
        "volumeattachments" => Arc::new(volumeattachment::VolumeAttachment),
        "volumeattributesclasses" => Arc::new(volumeattributesclass::VolumeAttributesClass),
        _ => return None,
    })
}
