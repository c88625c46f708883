//! What a cache must know of an object, and the small form of metadata for types that keep only what they read.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::packed::{Packed, Pairs, Text};
use crate::Key;

/// An object that a cache can hold: every API type, metadata alone, or a view with the few fields that a controller reads.
///
/// All types of `k8s-openapi`, derived custom resources, `PartialObjectMeta` and `DynamicObject` are cached as they are.
/// For a view, hold a [`LeanMeta`] and use [`lean_view!`](crate::lean_view):
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use serde::Deserialize;
/// use setpoint_runtime::cache::{Cached, LeanMeta};
///
/// #[derive(Deserialize)]
/// struct PodView {
///     metadata: LeanMeta,
///     #[serde(default)]
///     status: PodPhase,
/// }
///
/// #[derive(Deserialize, Default)]
/// struct PodPhase {
///     #[serde(default)]
///     phase: Box<str>,
/// }
///
/// setpoint_runtime::lean_view!(PodView of Pod);
///
/// let json = r#"{"metadata":{"namespace":"shop","name":"web","uid":"u","resourceVersion":"7"},"spec":{"containers":[]}}"#;
/// let pod: PodView = serde_json::from_str(json).unwrap();
/// assert_eq!((pod.key().as_str(), pod.resource_version()), ("shop/web", "7"));
/// ```
pub trait Cached: DeserializeOwned + Send + Sync + 'static {
    /// The type whose API serves these objects.
    type Kind: Resource;

    /// Its key.
    fn key(&self) -> Key;

    /// Its version.
    fn resource_version(&self) -> &str;

    /// Its identity, which a deleted and recreated object of the same name doesn't share.
    fn uid(&self) -> &str;

    /// The generation of its desired state, if this type keeps it.
    fn generation(&self) -> Option<i64> {
        None
    }

    /// Whether its deletion has begun, if this type keeps that.
    fn is_deleting(&self) -> bool {
        false
    }

    /// The owner that controls it, if this type keeps owners.
    fn controller(&self) -> Option<Owner<'_>> {
        None
    }

    /// Whether labels are known to be equal.
    fn same_labels(&self, _other: &Self) -> bool {
        false
    }

    /// Whether annotations are known to be equal.
    fn same_annotations(&self, _other: &Self) -> bool {
        false
    }
}

/// The facts of a reference to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its API version, with the group.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name; the namespace is that of the owned object, or none.
    pub name: &'a str,
    /// Its identity.
    pub uid: &'a str,
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Cached for K {
    type Kind = K;

    fn key(&self) -> Key {
        let meta = self.meta();
        Key::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn generation(&self) -> Option<i64> {
        self.meta().generation
    }

    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    fn controller(&self) -> Option<Owner<'_>> {
        let owners = self.meta().owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        Some(Owner { api_version: &owner.api_version, kind: &owner.kind, name: &owner.name, uid: &owner.uid })
    }

    fn same_labels(&self, other: &Self) -> bool {
        self.meta().labels == other.meta().labels
    }

    fn same_annotations(&self, other: &Self) -> bool {
        self.meta().annotations == other.meta().annotations
    }
}

/// Metadata that takes a few dozen bytes: what a cache and most controllers need, without labels of no concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanMeta {
    /// Namespace and name.
    pub key: Key,
    /// Identity.
    pub uid: Box<str>,
    /// Version.
    pub resource_version: Box<str>,
    /// Generation of the desired state; zero for kinds that have none.
    pub generation: i64,
    /// Whether its deletion has begun.
    pub deleting: bool,
    /// Labels.
    pub labels: Pairs,
    /// The owner that controls it.
    pub controller: Option<LeanOwner>,
}

/// The owner that controls an object, in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanOwner(Packed);

impl LeanOwner {
    /// What it says.
    #[must_use]
    pub fn owner(&self) -> Owner<'_> {
        let mut texts = self.0.iter();
        let mut next = || texts.next().unwrap_or_default();
        Owner { api_version: next(), kind: next(), name: next(), uid: next() }
    }
}

impl LeanMeta {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name)
    }
}

impl<'de> Deserialize<'de> for LeanMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireMeta::deserialize(deserializer)?;
        Ok(Self {
            key: Key::new(wire.namespace.as_ref().map(|text| &*text.0), &wire.name.0),
            uid: wire.uid,
            resource_version: wire.resource_version,
            generation: wire.generation,
            deleting: wire.deletion_timestamp.is_some(),
            labels: wire.labels,
            controller: wire.owner_references.0,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta<'a> {
    #[serde(default = "nothing", borrow)]
    name: Text<'a>,
    #[serde(default, borrow)]
    namespace: Option<Text<'a>>,
    #[serde(default)]
    uid: Box<str>,
    #[serde(default)]
    resource_version: Box<str>,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: Pairs,
    #[serde(default)]
    owner_references: Controller,
}

fn nothing<'a>() -> Text<'a> {
    Text("".into())
}

/// That one of the owners that controls.
#[derive(Default)]
struct Controller(Option<LeanOwner>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(default)]
    controller: bool,
}

impl<'de> Deserialize<'de> for Controller {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let owners: Vec<WireOwner<'de>> = Vec::deserialize(deserializer)?;
        let controller = owners.iter().find(|owner| owner.controller);
        Ok(Self(controller.map(|WireOwner { api_version, kind, name, uid, .. }| {
            LeanOwner(Packed::of([api_version, kind, name, uid].into_iter().map(|text| &*text.0)))
        })))
    }
}

/// Makes a type with a field `metadata: LeanMeta` fit for caches: `lean_view!(PodView of Pod);`.
#[macro_export]
macro_rules! lean_view {
    ($view:ident of $kind:ty) => {
        impl $crate::cache::Cached for $view {
            type Kind = $kind;

            fn key(&self) -> $crate::Key {
                self.metadata.key.clone()
            }

            fn resource_version(&self) -> &str {
                &self.metadata.resource_version
            }

            fn uid(&self) -> &str {
                &self.metadata.uid
            }

            fn generation(&self) -> Option<i64> {
                Some(self.metadata.generation)
            }

            fn is_deleting(&self) -> bool {
                self.metadata.deleting
            }

            fn controller(&self) -> Option<$crate::cache::Owner<'_>> {
                self.metadata.controller.as_ref().map(|owner| owner.owner())
            }

            fn same_labels(&self, other: &Self) -> bool {
                self.metadata.labels == other.metadata.labels
            }
        }
    };
}
