//! Which volume fits a claim.

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use setpoint_api::labels::Selector;
use setpoint_api::quantity::Quantity;

use crate::selector;

/// Where older clients wrote the class.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class of a claim; empty if it has none.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&claim.metadata, OLD_CLASS).or(class).unwrap_or_default()
}

/// Whether a claim says of which class it is, be it none.
pub fn has_class(claim: &PersistentVolumeClaim) -> bool {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation(&claim.metadata, OLD_CLASS).is_some() || class.is_some()
}

/// The class of a volume; empty if it has none.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, OLD_CLASS).or(class).unwrap_or_default()
}

/// The value of an annotation.
pub fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether a volume is for this claim, by its own word.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let same_uid =
        reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref());
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace && same_uid
}

/// Why a volume that a claim asks for by name doesn't fit; in the words that users know.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {name:?}"));
    }
    let why = if size_of(volume).value() < wanted(claim).value() {
        "requested PV is too small"
    } else if class_of_volume(volume) != class_of_claim(claim) {
        "storageClassName does not match"
    } else if attributes(volume) != wanted_attributes(claim) {
        "volumeAttributesClassName does not match"
    } else if mode(volume) != wanted_mode(claim) {
        "incompatible volumeMode"
    } else if !offers_access(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// The volume that fits a claim best: the one that is for it already, else the one that offers least beyond what is asked.
///
/// A claim that waits for its first consumer gets none but one that is for it.
pub fn best<'a, V: AsRef<PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a V>,
    waits: bool,
) -> Option<&'a V> {
    let selector = wanted_labels(claim);
    let mut best: Option<&V> = None;
    for candidate in volumes {
        let volume = candidate.as_ref();
        if volume.metadata.deletion_timestamp.is_some() || !is_big_enough(volume, claim) {
            continue;
        }
        if attributes(volume) != wanted_attributes(claim) || mode(volume) != wanted_mode(claim) {
            continue;
        }
        if is_for(volume, claim) {
            return Some(candidate);
        }
        let is_free = volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none()) && phase(volume) == "Available";
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        let fits = class_of_volume(volume) == class_of_claim(claim)
            && offers_access(volume, claim)
            && selector.as_ref().is_none_or(|selector| selector.matches(&labels));
        if !waits && is_free && fits && best.is_none_or(|best| order(volume, best.as_ref()).is_lt()) {
            best = Some(candidate);
        }
    }
    best
}

/// Fewer ways of access first, then the smaller.
fn order(one: &PersistentVolume, other: &PersistentVolume) -> Ordering {
    let modes = |volume: &PersistentVolume| access(volume).count();
    modes(one).cmp(&modes(other)).then_with(|| size_of(one).cmp(&size_of(other)))
}

fn is_big_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    size_of(volume) >= wanted(claim)
}

/// The phase of a volume.
pub fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// The selector of a claim, if it has one; one that can't be read selects nothing.
fn wanted_labels(claim: &PersistentVolumeClaim) -> Option<Selector> {
    let selector = claim.spec.as_ref()?.selector.as_ref()?;
    Some(selector::read(Some(selector)).unwrap_or(Selector::nothing()))
}

fn size_of(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    capacity.and_then(|size| Quantity::parse(&size.0).ok()).unwrap_or(Quantity::ZERO)
}

/// How much a claim asks for.
pub fn wanted(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    requests.and_then(|size| Quantity::parse(&size.0).ok()).unwrap_or(Quantity::ZERO)
}

fn mode(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem")
}

/// How a claim wants its volume.
pub fn wanted_mode(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem")
}

fn attributes(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn wanted_attributes(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn access(volume: &PersistentVolume) -> impl Iterator<Item = &String> {
    volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten())
}

fn offers_access(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mut wanted = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    wanted.all(|mode| access(volume).any(|offered| offered == mode))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "c", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn volume(name: &str, size: &str, modes: &[&str], more: Value) -> Arc<PersistentVolume> {
        let mut spec = json!({"capacity": {"storage": size}, "accessModes": modes});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let status = json!({"phase": "Available"});
        let metadata = json!({"name": name, "labels": {"name": name}});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
    }

    fn check(spec: Value, volumes: &[Arc<PersistentVolume>], waits: bool, expected: Option<&str>) {
        let found = best(&claim(spec.clone()), volumes.iter(), waits);
        let name = found.map(|volume| volume.metadata.name.clone().unwrap());
        assert_eq!(name.as_deref(), expected, "{spec}");
    }

    #[test]
    fn the_smallest_volume_that_fits_is_taken() {
        let asks = |size: &str, more: Value| {
            let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let once = &["ReadWriteOnce"][..];
        let volumes = [
            volume("big", "100Gi", once, json!({})),
            volume("small", "10Gi", once, json!({})),
            volume("many-ways", "1Gi", &["ReadWriteOnce", "ReadWriteMany"], json!({})),
            volume("classy", "10Gi", once, json!({"storageClassName": "fast"})),
            volume("taken", "1Gi", once, json!({"claimRef": {"namespace": "a", "name": "other"}})),
            volume("block", "50Gi", once, json!({"volumeMode": "Block"})),
        ];
        check(asks("5Gi", json!({})), &volumes, false, Some("small"));
        check(asks("1Gi", json!({})), &volumes, false, Some("small"));
        check(asks("20Gi", json!({})), &volumes, false, Some("big"));
        check(asks("200Gi", json!({})), &volumes, false, None);
        check(asks("1Gi", json!({"storageClassName": "fast"})), &volumes, false, Some("classy"));
        check(asks("1Gi", json!({"storageClassName": "fast"})), &volumes, true, None);
        check(asks("1Gi", json!({"volumeMode": "Block"})), &volumes, false, Some("block"));
        check(asks("1Gi", json!({"accessModes": ["ReadWriteMany"]})), &volumes, false, Some("many-ways"));
        check(asks("1Gi", json!({"selector": {"matchLabels": {"name": "big"}}})), &volumes, false, Some("big"));
        let reserved = volume("reserved", "500Gi", once, json!({"claimRef": {"namespace": "a", "name": "c"}}));
        let with_reserved = [volumes[1].clone(), reserved];
        check(asks("1Gi", json!({})), &with_reserved, true, Some("reserved"));
    }

    #[test]
    fn a_volume_that_is_asked_for_by_name_may_not_fit() {
        let asked = claim(json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}));
        for (volume, why) in [
            (volume("v", "5Gi", &["ReadWriteOnce"], json!({})), None),
            (volume("v", "1Gi", &["ReadWriteOnce"], json!({})), Some("requested PV is too small")),
            (volume("v", "5Gi", &["ReadOnlyMany"], json!({})), Some("incompatible accessMode")),
            (volume("v", "5Gi", &["ReadWriteOnce"], json!({"volumeMode": "Block"})), Some("incompatible volumeMode")),
            (
                volume("v", "5Gi", &["ReadWriteOnce"], json!({"storageClassName": "x"})),
                Some("storageClassName does not match"),
            ),
        ] {
            assert_eq!(mismatch(&volume, &asked).as_deref(), why);
        }
    }
}
