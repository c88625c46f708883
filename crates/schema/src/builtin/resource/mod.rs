//! Kinds of the group `resource.k8s.io`: devices, the classes they are known by, and claims for them.

use std::sync::Arc;

use crate::behaviour::Behaviour;

mod bounded;
mod claim;
mod claim_layout;
mod configuration;
mod device;
mod device_capacity;
mod names;

pub mod deviceclass;
pub mod resourceclaim;
mod resourceclaim_status;
pub mod resourceclaimtemplate;
pub mod resourceslice;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "deviceclasses" => Arc::new(deviceclass::DeviceClass),
        "resourceclaims" => Arc::new(resourceclaim::ResourceClaim),
        "resourceclaimtemplates" => Arc::new(resourceclaimtemplate::ResourceClaimTemplate),
        "resourceslices" => Arc::new(resourceslice::ResourceSlice),
        _ => return None,
    })
}
