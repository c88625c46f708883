//! Rules that can be left out, by the names that Kubernetes gives them.
//!
//! All but one only add to objects. What keeps one user from the things of another can't be left out, but for the external addresses of
//! Services, which Kubernetes takes unless it is told not to.

use std::fmt;
use std::str::FromStr;

/// A rule that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Pods get an account and its token, and are refused without one.
    ServiceAccount,
    /// Pods stay for five minutes on nodes that are lost.
    DefaultTolerationSeconds,
    /// Claims get the class that is marked as the default.
    DefaultStorageClass,
    /// Claims, volumes and their classes stay until nobody uses them.
    StorageObjectInUseProtection,
    /// Services get no external addresses that they did not have before (CVE-2020-8554).
    DenyServiceExternalIPs,
}

impl Plugin {
    /// All that can be left out.
    pub const ALL: [Plugin; 5] = [
        Plugin::ServiceAccount,
        Plugin::DefaultTolerationSeconds,
        Plugin::DefaultStorageClass,
        Plugin::StorageObjectInUseProtection,
        Plugin::DenyServiceExternalIPs,
    ];

    /// The name that Kubernetes gives it.
    pub fn name(self) -> &'static str {
        match self {
            Plugin::ServiceAccount => "ServiceAccount",
            Plugin::DefaultTolerationSeconds => "DefaultTolerationSeconds",
            Plugin::DefaultStorageClass => "DefaultStorageClass",
            Plugin::StorageObjectInUseProtection => "StorageObjectInUseProtection",
            Plugin::DenyServiceExternalIPs => "DenyServiceExternalIPs",
        }
    }
}

/// A name that is not among those that can be left out.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownPlugin;

impl fmt::Display for UnknownPlugin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "only these can be left out: {}", Plugin::ALL.map(Plugin::name).join(", "))
    }
}

impl std::error::Error for UnknownPlugin {}

impl FromStr for Plugin {
    type Err = UnknownPlugin;

    fn from_str(text: &str) -> Result<Plugin, UnknownPlugin> {
        Plugin::ALL.into_iter().find(|plugin| plugin.name() == text.trim()).ok_or(UnknownPlugin)
    }
}
