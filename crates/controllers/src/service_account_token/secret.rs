//! A Secret for a token without what it hides: whose token it is to hold, and what of it is there.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde::{Deserialize, Deserializer};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Cached;

/// The type of Secrets that hold a token.
pub const TYPE: &str = "kubernetes.io/service-account-token";

/// Whose token it is.
pub const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Which one of that name.
pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// What it holds.
pub const TOKEN: &str = "token";
pub const NAMESPACE: &str = "namespace";
pub const CA: &str = "ca.crt";

#[derive(Debug, Deserialize)]
pub struct Token {
    pub metadata: Meta,
    #[serde(rename = "type", default)]
    kind: Box<str>,
    #[serde(default)]
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    #[serde(rename = "kubernetes.io/service-account.name")]
    pub account: Box<str>,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    pub account_uid: Box<str>,
}

/// Of what is secret only whether it is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(rename = "token", deserialize_with = "is_there")]
    has_token: bool,
    #[serde(rename = "namespace", deserialize_with = "is_there")]
    has_namespace: bool,
    #[serde(rename = "ca.crt")]
    ca: ByteString,
}

fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    std::borrow::Cow::<str>::deserialize(deserializer).map(|text| !text.is_empty())
}

/// What is missing in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    pub token: bool,
    pub namespace: bool,
    pub ca: bool,
}

impl Lacks {
    pub fn is_nothing(self) -> bool {
        !self.token && !self.namespace && !self.ca
    }
}

impl Token {
    /// The account that it speaks for, if it is to hold a token.
    pub fn account(&self) -> Option<Key> {
        let name = &*self.metadata.annotations.account;
        (&*self.kind == TYPE && !name.is_empty()).then(|| Key::namespaced(&self.metadata.namespace, name))
    }

    /// Whether it speaks for this very account. One that doesn't say which speaks for any of the name.
    pub fn is_of(&self, account: &ServiceAccount) -> bool {
        let uid = &*self.metadata.annotations.account_uid;
        uid.is_empty() || account.metadata.uid.as_deref() == Some(uid)
    }

    /// What it lacks, if these certificates are the API server's; it need not have any if nobody knows them.
    pub fn lacks(&self, root_ca: &str) -> Lacks {
        let Data { has_token, has_namespace, ca } = &self.data;
        let ca = !root_ca.is_empty() && ca.0 != root_ca.as_bytes();
        Lacks { token: !has_token, namespace: !has_namespace, ca }
    }
}

impl Cached for Token {
    type Kind = Secret;

    fn key(&self) -> Key {
        Key::namespaced(&self.metadata.namespace, &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn token(kind: &str, name: &str, uid: &str, data: Value) -> Token {
        let annotations = json!({ACCOUNT: name, ACCOUNT_UID: uid});
        let metadata = json!({"name": "t", "namespace": "shop", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "type": kind, "data": data})).unwrap()
    }

    #[test]
    fn a_token_speaks_for_the_account_that_it_names() {
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "robot", "namespace": "shop", "uid": "u"}})).unwrap();
        for (kind, name, uid, key, is_of) in [
            (TYPE, "robot", "u", Some("shop/robot"), true),
            (TYPE, "robot", "", Some("shop/robot"), true),
            (TYPE, "robot", "earlier", Some("shop/robot"), false),
            (TYPE, "", "u", None, true),
            ("Opaque", "robot", "u", None, true),
        ] {
            let token = token(kind, name, uid, json!({}));
            let found = token.account().map(|key| key.to_string());
            assert_eq!((found.as_deref(), token.is_of(&account)), (key, is_of), "{kind} {name} {uid}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_told() {
        let (some, ca) = ("c29tZQ==", "Q0E=");
        for (data, root_ca, expected) in [
            (json!({}), "CA", [true, true, true]),
            (json!({"token": some, "namespace": some, "ca.crt": ca}), "CA", [false; 3]),
            (json!({"token": some, "namespace": some, "ca.crt": ca}), "other", [false, false, true]),
            (json!({"token": "", "namespace": some}), "", [true, false, false]),
            (json!({"token": some, "namespace": "", "ca.crt": ca}), "", [false, true, false]),
        ] {
            let Lacks { token, namespace, ca } = token(TYPE, "robot", "", data.clone()).lacks(root_ca);
            assert_eq!([token, namespace, ca], expected, "{data} {root_ca}");
        }
    }
}
