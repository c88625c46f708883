//! Owner references: who an object belongs to, and the one controller among them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

/// Another controller manages the object already; an object has at most one.
#[derive(Clone, Debug, PartialEq)]
pub struct AlreadyOwned {
    /// The object.
    pub object: String,
    /// Its controller.
    pub owner: Box<OwnerReference>,
}

impl fmt::Display for AlreadyOwned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AlreadyOwned { object, owner } = self;
        write!(formatter, "{object} is already owned by another controller, {} {}", owner.kind, owner.name)
    }
}

impl std::error::Error for AlreadyOwned {}

/// The reference to an owner that doesn't manage the object; nothing if the owner has no name or uid yet.
pub fn owner_reference<O: Resource<DynamicType = ()>>(owner: &O) -> Option<OwnerReference> {
    owner.owner_ref(&())
}

/// The reference to the owner that manages the object: a foreground deletion of the owner waits for it.
pub fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> Option<OwnerReference> {
    let reference = owner.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The owner that manages the object, if there is one.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the object with this uid manages the object.
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}

/// Makes `owner` the controller of the object, or refuses because another is. A reference to the same owner that was there is
/// replaced.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint_runtime::owners;
///
/// let mut owner = ConfigMap::default();
/// owner.metadata.name = Some("web".into());
/// owner.metadata.uid = Some("1-2-3".into());
/// let mut child = ConfigMap::default();
/// let reference = owners::controller_reference(&owner).unwrap();
/// owners::set_controller(&mut child.metadata, reference).unwrap();
/// assert!(owners::is_controlled_by(&child.metadata, "1-2-3"));
/// ```
pub fn set_controller(metadata: &mut ObjectMeta, owner: OwnerReference) -> Result<(), AlreadyOwned> {
    if let Some(other) = controller_of(metadata).filter(|other| other.uid != owner.uid) {
        let object = metadata.name.clone().unwrap_or_default();
        return Err(AlreadyOwned { object, owner: Box::new(other.clone()) });
    }
    set_owner(metadata, OwnerReference { controller: Some(true), ..owner });
    Ok(())
}

/// Adds an owner, in place of a reference to the same owner that was there.
pub fn set_owner(metadata: &mut ObjectMeta, owner: OwnerReference) {
    let owners = metadata.owner_references.get_or_insert_default();
    match owners.iter_mut().find(|other| other.uid == owner.uid) {
        Some(other) => *other = owner,
        None => owners.push(owner),
    }
}

/// Takes an owner away, and says whether it was one.
pub fn remove_owner(metadata: &mut ObjectMeta, uid: &str) -> bool {
    let Some(owners) = &mut metadata.owner_references else { return false };
    let before = owners.len();
    owners.retain(|owner| owner.uid != uid);
    let removed = owners.len() != before;
    if owners.is_empty() {
        metadata.owner_references = None;
    }
    removed
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    fn owner(uid: &str) -> OwnerReference {
        let mut set = ReplicaSet::default();
        set.metadata.name = Some(format!("set-{uid}"));
        set.metadata.uid = Some(uid.to_owned());
        controller_reference(&set).unwrap()
    }

    #[test]
    fn a_controller_reference_names_its_kind_and_blocks_deletion() {
        let expected = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "set-1".into(),
            uid: "1".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(owner("1"), expected);
        assert_eq!(owner_reference(&ReplicaSet::default()), None, "an owner without a uid can't be one");
    }

    #[test]
    fn an_object_has_at_most_one_controller() {
        let mut child = ObjectMeta { name: Some("pod".into()), ..ObjectMeta::default() };
        set_controller(&mut child, owner("1")).unwrap();
        set_controller(&mut child, owner("1")).unwrap();
        let refused = set_controller(&mut child, owner("2")).unwrap_err();
        assert_eq!(refused.to_string(), "pod is already owned by another controller, ReplicaSet set-1");
        set_owner(&mut child, OwnerReference { controller: None, ..owner("2") });
        assert_eq!(child.owner_references.as_ref().map(Vec::len), Some(2));
        assert!(is_controlled_by(&child, "1") && !is_controlled_by(&child, "2"));
        assert!(remove_owner(&mut child, "1") && !remove_owner(&mut child, "1"));
        assert!(remove_owner(&mut child, "2"));
        assert_eq!(child.owner_references, None);
    }
}
