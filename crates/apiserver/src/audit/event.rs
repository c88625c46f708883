//! An event as it is written: the fields of `Event` in `audit.k8s.io/v1`, in their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use setpoint_api::metadata::ListMeta;
use setpoint_api::{Status, StatusDetails};

use super::{Level, Stage};
use crate::user::User;

/// What is known of a request so far.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    #[serde(serialize_with = "user")]
    pub(super) user: Arc<User>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_user")]
    pub(super) impersonated_user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Box<RawValue>>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// How it came that a request is for somebody else.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata {
    pub(super) impersonation_constraint: &'static str,
}

/// The object that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// How a request ended.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Outcome {
    pub(super) metadata: ListMeta,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<StatusDetails>,
    pub(super) code: u16,
}

impl Outcome {
    /// With what the answer said, if it was a status.
    pub(super) fn of(status: Option<&Status>, code: u16) -> Outcome {
        let Some(status) = status else { return Outcome { code, ..Outcome::default() } };
        Outcome {
            metadata: ListMeta::default(),
            status: status.status.clone(),
            message: status.message.clone(),
            reason: status.reason.clone(),
            details: status.details.clone(),
            code,
        }
    }
}

#[derive(Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

fn user<S: Serializer>(user: &User, serializer: S) -> Result<S::Ok, S::Error> {
    UserInfo { username: &user.name, uid: &user.uid, groups: &user.groups, extra: &user.extra }.serialize(serializer)
}

fn some_user<S: Serializer>(found: &Option<User>, serializer: S) -> Result<S::Ok, S::Error> {
    match found {
        Some(found) => user(found, serializer),
        None => serializer.serialize_none(),
    }
}
