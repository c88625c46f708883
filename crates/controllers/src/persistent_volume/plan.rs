//! What becomes of a claim, and of a volume.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::matching::{self, annotation, class_of_claim};

/// On both: the controller made the link, not the user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: it was bound once.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a volume: who made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: who is to make its volume.
pub const PROVISIONERS: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
/// On a claim: the node of its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A class of this provisioner has volumes that are there for simulated nodes; nothing is stored on them.
pub const SIMULATED: &str = "simulated.setpoint.dev";

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say {
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Say {
    fn normal(reason: &'static str, message: impl Into<String>) -> Option<Say> {
        Some(Say { is_warning: false, reason, message: message.into() })
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Option<Say> {
        Some(Say { is_warning: true, reason, message: message.into() })
    }
}

/// What is to be done for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    /// It waits.
    Wait(Option<Say>),
    /// It has lost its volume.
    Lose(Say),
    /// It gets the default class.
    Classify(String),
    /// It gets this volume; what is done of that already is not done again.
    Bind(String),
    /// Somebody is to make a volume for it.
    Provision(String),
    /// Nobody can make a volume for it.
    Refuse(Say),
}

impl ClaimStep {
    /// What is told about a claim that waits.
    pub fn said(&self) -> Option<&Say> {
        match self {
            ClaimStep::Wait(say) => say.as_ref(),
            ClaimStep::Refuse(say) => Some(say),
            ClaimStep::Lose(_) | ClaimStep::Classify(_) | ClaimStep::Bind(_) | ClaimStep::Provision(_) => None,
        }
    }
}

/// What a claim's fate depends on.
pub struct Surroundings<'a, V> {
    pub volumes: &'a [V],
    /// The class of the claim, if there is such a class.
    pub class: Option<&'a StorageClass>,
    /// The class that claims without one get.
    pub default_class: Option<&'a str>,
    /// Pods that use the claim and have no node yet.
    pub consumers: Vec<String>,
}

/// What is to be done for a claim.
pub fn claim<V: AsRef<PersistentVolume>>(claim: &PersistentVolumeClaim, around: &Surroundings<'_, V>) -> ClaimStep {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let named = around.volumes.iter().map(AsRef::as_ref).find(|volume| volume.metadata.name.as_deref() == Some(name));
    match (annotation(&claim.metadata, BIND_COMPLETED), name) {
        (Some(_), "") => {
            lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
        }
        (Some(_), _) => bound(claim, named),
        (None, "") => unbound(claim, around),
        (None, _) => asking(claim, named),
    }
}

fn lost(reason: &'static str, message: &str) -> ClaimStep {
    ClaimStep::Lose(Say { is_warning: true, reason, message: message.to_owned() })
}

/// A claim that was bound.
fn bound(claim: &PersistentVolumeClaim, volume: Option<&PersistentVolume>) -> ClaimStep {
    let Some(volume) = volume else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match claim_ref(volume) {
        Some(reference) if reference.uid != claim.metadata.uid => {
            lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        Some(_) | None => ClaimStep::Bind(volume.metadata.name.clone().unwrap_or_default()),
    }
}

/// A claim that asks for a volume by name.
fn asking(claim: &PersistentVolumeClaim, volume: Option<&PersistentVolume>) -> ClaimStep {
    let Some(volume) = volume else { return ClaimStep::Wait(None) };
    let name = volume.metadata.name.clone().unwrap_or_default();
    match claim_ref(volume) {
        None => match matching::mismatch(volume, claim) {
            Some(why) => {
                let said = format!("Cannot bind to requested volume {name:?}: {why}");
                ClaimStep::Wait(Say::warning("VolumeMismatch", said))
            }
            None => ClaimStep::Bind(name),
        },
        Some(_) if matching::is_for(volume, claim) => ClaimStep::Bind(name),
        Some(_) => {
            let said = format!("volume {name:?} already bound to a different claim.");
            ClaimStep::Wait(Say::warning("FailedBinding", said))
        }
    }
}

/// A claim that takes what fits.
fn unbound<V: AsRef<PersistentVolume>>(claim: &PersistentVolumeClaim, around: &Surroundings<'_, V>) -> ClaimStep {
    let mode = around.class.and_then(|class| class.volume_binding_mode.as_deref());
    let waits = mode == Some("WaitForFirstConsumer");
    if let Some(volume) = matching::best(claim, around.volumes.iter(), waits) {
        return ClaimStep::Bind(volume.as_ref().metadata.name.clone().unwrap_or_default());
    }
    if let Some(class) = around.default_class.filter(|_| !matching::has_class(claim)) {
        return ClaimStep::Classify(class.to_owned());
    }
    if waits && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return ClaimStep::Wait(match &around.consumers[..] {
            [] => Say::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            [pod] => Say::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => Say::normal("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        });
    }
    match (class_of_claim(claim), around.class) {
        ("", _) => ClaimStep::Wait(Say::normal(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        )),
        (name, None) => {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            ClaimStep::Refuse(Say { is_warning: true, reason: "ProvisioningFailed", message })
        }
        (_, Some(class)) if class.provisioner.starts_with("kubernetes.io/") => {
            let message = format!("no volume plugin matched name: {}", class.provisioner);
            ClaimStep::Refuse(Say { is_warning: true, reason: "ProvisioningFailed", message })
        }
        (_, Some(class)) => ClaimStep::Provision(class.provisioner.clone()),
    }
}

/// What is to be done for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeStep {
    Nothing,
    /// It is in this phase.
    Phase(&'static str),
    /// Its claim is gone: first it says so.
    Release,
    /// It goes, and what is on it.
    Delete,
    /// It can't be used again, for this reason.
    Fail(Say),
    /// It is for nobody any more. Volumes that the user reserved stay reserved.
    Unbind,
}

/// What is to be done for a volume whose claim, by name and identity, is this one.
pub fn volume(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let phase = matching::phase(volume);
    let be = |wanted: &'static str| if phase == wanted { VolumeStep::Nothing } else { VolumeStep::Phase(wanted) };
    let Some(reference) = claim_ref(volume) else { return be("Available") };
    if reference.uid.as_deref().unwrap_or_default().is_empty() {
        return be("Available");
    }
    let is_over = matches!(phase, "Released" | "Failed");
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == reference.uid) else {
        return if is_over { reclaim(volume) } else { VolumeStep::Release };
    };
    let bound_to = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    match bound_to {
        "" => VolumeStep::Nothing,
        name if Some(name) == volume.metadata.name.as_deref() => be("Bound"),
        _ => {
            let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
            let was_made_for_it = annotation(&volume.metadata, PROVISIONED_BY).is_some() && policy == Some("Delete");
            match (was_made_for_it, is_over) {
                (true, true) => reclaim(volume),
                (true, false) => VolumeStep::Release,
                (false, _) => VolumeStep::Unbind,
            }
        }
    }
}

/// What becomes of a volume whose claim is gone.
fn reclaim(volume: &PersistentVolume) -> VolumeStep {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let fail = |reason, message: String| match matching::phase(volume) {
        "Failed" => VolumeStep::Nothing,
        _ => VolumeStep::Fail(Say { is_warning: true, reason, message }),
    };
    match (policy.unwrap_or("Retain"), annotation(&volume.metadata, PROVISIONED_BY)) {
        ("Retain", _) => VolumeStep::Nothing,
        ("Delete", Some(SIMULATED)) if volume.metadata.deletion_timestamp.is_some() => VolumeStep::Nothing,
        ("Delete", Some(SIMULATED)) => VolumeStep::Delete,
        // Whoever made it deletes it.
        ("Delete", Some(_)) => VolumeStep::Nothing,
        ("Delete", None) => fail(
            "VolumeFailedDelete",
            format!("error getting deleter volume plugin for volume {name:?}: no volume plugin matched"),
        ),
        ("Recycle", _) => fail("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        _ => fail("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned()),
    }
}

/// Whom a volume is for.
pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
