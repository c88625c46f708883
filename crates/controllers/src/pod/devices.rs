//! The claims of devices of a pod.

use serde::Deserialize;

/// A claim that a pod asks for: somebody else's, or one that is made for it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    pub name: Box<str>,
    #[serde(rename = "resourceClaimName")]
    pub claim: Option<Box<str>>,
    #[serde(rename = "resourceClaimTemplateName")]
    pub template: Option<Box<str>>,
}

/// What a pod is told of a claim that was made for it; none if it needs none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceClaimStatus {
    pub name: Box<str>,
    #[serde(rename = "resourceClaimName")]
    pub claim: Option<Box<str>>,
}
