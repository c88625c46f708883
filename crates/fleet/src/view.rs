//! What controllers keep of a vehicle: a few hundred bytes of the few thousand that it has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Pairs};

use crate::kinds::{Progress, Retry, Task, Vehicle};
use crate::phase::Phase;

/// A vehicle, as controllers see it.
#[derive(Debug, Deserialize)]
pub struct VehicleView {
    /// Who it is.
    pub metadata: Meta,
    /// What should be.
    pub spec: Wish,
    /// What is.
    #[serde(default)]
    pub status: Report,
}

/// Who a vehicle is.
#[derive(Debug, Deserialize)]
#[serde(from = "WireMeta")]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// Identity.
    pub uid: Box<str>,
    /// Version of the object.
    pub resource_version: Box<str>,
    /// Generation of the spec.
    pub generation: i64,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Pairs,
}

/// What a vehicle should be.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    /// The version that it should run.
    #[serde(default)]
    pub firmware_version: Option<Box<str>>,
    /// Which hardware it is.
    #[serde(default)]
    pub hardware_id: Box<str>,
    /// Whether nothing new is begun.
    #[serde(default)]
    pub paused: bool,
    /// When it may be updated.
    #[serde(default)]
    pub update_policy: Policy,
    /// Until when its certificate counts. No controller asks; people are told of it.
    #[serde(default)]
    pub access: Option<Box<Papers>>,
}

/// Until when a vehicle's certificate counts.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Papers {
    /// Until when the certificate of its newest key counts.
    #[serde(default)]
    pub keys_until: Option<Time>,
    /// How long after that it may come back by its key.
    #[serde(default)]
    pub return_within: Option<Box<str>>,
    /// Whether no certificate counts.
    #[serde(default)]
    pub revoked: bool,
}

/// The part of a vehicle's policy that controllers keep to; the vehicle keeps to all of it.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// When it may download.
    #[serde(default)]
    pub download_window: Option<Box<str>>,
    /// When it may install. No controller waits for it; people are told of it.
    #[serde(default)]
    pub install_window: Option<Box<str>>,
}

/// What is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Where it is on its way.
    #[serde(default, deserialize_with = "lenient")]
    pub phase: Option<Phase>,
    /// The generation that the phase is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// The last task.
    #[serde(default)]
    pub task: Option<Box<Task>>,
    /// How attempts went.
    #[serde(default)]
    pub retry: Option<Box<Retry>>,
    /// The version that it runs and has confirmed.
    #[serde(default)]
    pub firmware_version: Option<Box<str>>,
    /// How far it is with a task.
    #[serde(default)]
    pub progress: Option<Box<Progress>>,
    /// What is said about it.
    #[serde(default)]
    pub conditions: Conditions,
}

/// The conditions that controllers read.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Vec<Condition>")]
pub struct Conditions {
    /// Whether it is connected, and since when.
    pub connected: Option<(bool, Timestamp)>,
    /// `UpToDate`, as it is now.
    pub up_to_date: Option<Said>,
    /// `Updating`, as it is now.
    pub updating: Option<Said>,
    /// `Blocked`, as it is now.
    pub blocked: Option<Said>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it holds.
    pub holds: bool,
    /// Why, in one word.
    pub reason: Box<str>,
    /// Why, in a sentence.
    pub message: Box<str>,
    /// Since when.
    pub since: Timestamp,
}

impl VehicleView {
    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.status.conditions.connected.is_some_and(|(connected, _)| connected)
    }

    /// The version that it runs and has confirmed.
    #[must_use]
    pub fn running(&self) -> Option<&str> {
        self.status.firmware_version.as_deref()
    }

    /// The version that it should run.
    #[must_use]
    pub fn wanted(&self) -> Option<&str> {
        self.spec.firmware_version.as_deref()
    }

    /// Since when its certificate counts no more, and until when it can come back without one, if it has expired.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let papers = self.spec.access.as_deref()?;
        let expires = papers.keys_until.as_ref()?.0;
        (now >= expires).then(|| (expires, crate::approver::returns_until(expires, papers.return_within.as_deref())))
    }

    /// Whether it is let in no more, whatever it does: it is revoked, or was away for too long. Then somebody has to let it in.
    #[must_use]
    pub fn is_shut_out(&self, now: Timestamp) -> bool {
        let is_revoked = self.spec.access.as_deref().is_some_and(|papers| papers.revoked);
        is_revoked || self.expired(now).is_some_and(|(_, until)| now >= until)
    }

    /// Whether it says that it is at a task: also at one that it is not to do any more, until it says that it isn't.
    #[must_use]
    pub fn is_at_a_task(&self) -> bool {
        self.status.progress.as_ref().is_some_and(|said| said.result.is_empty() && !said.stage.is_empty())
    }

    /// Whether it has given up what its spec of now asks for.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.status.phase == Some(Phase::Failed) && self.status.observed_generation == self.metadata.generation
    }
}

impl Cached for VehicleView {
    type Kind = Vehicle;

    fn key(&self) -> Key {
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

    fn same_labels(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: Box<str>,
    #[serde(default)]
    resource_version: Box<str>,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    labels: Pairs,
}

impl From<WireMeta> for Meta {
    fn from(wire: WireMeta) -> Meta {
        Meta {
            key: Key::new(wire.namespace.as_deref(), &wire.name),
            uid: wire.uid,
            resource_version: wire.resource_version,
            generation: wire.generation,
            created: wire.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: wire.deletion_timestamp.is_some(),
            labels: wire.labels,
        }
    }
}

impl From<Vec<Condition>> for Conditions {
    fn from(all: Vec<Condition>) -> Conditions {
        let mut conditions = Conditions::default();
        for condition in all {
            let (holds, since) = (condition.status == "True", condition.last_transition_time.0);
            let kind = condition.type_;
            let said = Said { holds, reason: condition.reason.into(), message: condition.message.into(), since };
            match &*kind {
                "Connected" => conditions.connected = Some((holds, since)),
                "UpToDate" => conditions.up_to_date = Some(said),
                "Updating" => conditions.updating = Some(said),
                "Blocked" => conditions.blocked = Some(said),
                _ => {}
            }
        }
        conditions
    }
}

/// A phase that is not known is as none: the controller writes it anew.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Phase>, D::Error> {
    let word = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(word.and_then(|word| serde_json::from_value(word).ok()))
}
