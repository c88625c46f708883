//! Tokens that lie in a Secret: good for as long as the Secret holds them, and without an end of their own.

mod uses;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::{Edit, base64 as plain};

use super::key::Key;
use super::request::find;
use super::{BadKey, Header, Refused, bootstrap, compact};
use crate::server::Inner;
use crate::user::User;

pub(crate) use uses::{Uses, run};

/// Who signs them, in their own words.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";

/// Who has found out that a token is not used any more says so by this label, and it counts no longer.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Signs them. It is another one than that of tokens with an end, so that it can take a key that somebody else made.
pub struct LegacySigner {
    key: Key,
    /// Tells keys apart: the digest of the public one.
    id: String,
}

/// What a token is to say.
#[derive(Clone, Copy, Debug)]
pub struct LegacySubject<'a> {
    /// Where the Secret and the account are.
    pub namespace: &'a str,
    /// The Secret that holds the token.
    pub secret: &'a str,
    /// Whose token it is.
    pub account: &'a str,
    /// Which one of that name.
    pub account_uid: &'a str,
}

impl LegacySigner {
    /// A signer with the private key in a text: PEM, on the curve P-256 or of RSA.
    pub fn from_pem(text: &[u8]) -> Result<LegacySigner, BadKey> {
        let key = Key::from_pem(text)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &key.public());
        Ok(LegacySigner { key, id: URL_SAFE_NO_PAD.encode(digest) })
    }

    /// A token.
    pub fn token(&self, subject: &LegacySubject<'_>) -> Result<String, BadKey> {
        let LegacySubject { namespace, secret, account, account_uid } = *subject;
        let claims = LegacyClaims {
            iss: ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.to_owned(),
            account_uid: account_uid.to_owned(),
            sub: user_name(namespace, account),
        };
        let header = Header { alg: self.key.algorithm().to_owned(), kid: self.id.clone() };
        compact(&header, &claims, |text| self.key.sign(text))
    }
}

/// Keys are secrets: only which one it is can be shown.
impl std::fmt::Debug for LegacySigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LegacySigner").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What such a token says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LegacyClaims {
    iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    account_uid: String,
    sub: String,
}

impl LegacyClaims {
    pub(super) fn user(&self) -> User {
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ];
        User { name: self.sub.clone(), groups: groups.into(), uid: self.account_uid.clone(), ..User::default() }
    }

    /// Whether it is good now: nothing of this is remembered, since it ends with the Secret.
    pub(super) fn check(&self, server: &Inner, token: &str) -> Result<(), Refused> {
        if self.sub != user_name(&self.namespace, &self.account) {
            return because("sub claim is invalid");
        }
        let namespace = Some(&*self.namespace);
        let secret = match find(server, "secrets", namespace, &self.secret) {
            Ok(secret) if !secret["metadata"].has("deletionTimestamp") => secret,
            _ => return because("Token has been invalidated"),
        };
        let kept = plain::decode(secret["data"].text("token")).unwrap_or_default();
        if !bootstrap::is_same(&kept, token.as_bytes()) {
            return because("Token does not match server's copy");
        }
        self.check_account(server)?;
        self.check_label(&secret)?;
        server.legacy_uses.note(&secret, server.clock.seconds());
        Ok(())
    }

    fn check_account(&self, server: &Inner) -> Result<(), Refused> {
        let (namespace, name) = (&self.namespace, &self.account);
        let account = match find(server, "serviceaccounts", Some(namespace), name) {
            Ok(account) => account,
            Err(_) => return because(&Status::not_found(&GroupResource::new("", "serviceaccounts"), name).message),
        };
        if account["metadata"].has("deletionTimestamp") {
            return because(&format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        let uid = account["metadata"].text("uid");
        if uid != self.account_uid {
            return because(&format!("ServiceAccount UID ({uid}) does not match claim ({})", self.account_uid));
        }
        Ok(())
    }

    fn check_label(&self, secret: &Value) -> Result<(), Refused> {
        if secret["metadata"]["labels"].text(INVALID_SINCE).is_empty() {
            return Ok(());
        }
        let LegacyClaims { namespace, secret, account, .. } = self;
        because(&format!(
            "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ))
    }
}

fn because(why: &str) -> Result<(), Refused> {
    Err(Refused::Because(why.to_owned()))
}

fn user_name(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

#[cfg(test)]
mod tests;
