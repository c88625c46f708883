//! Service account tokens: signed with a key of our own, each for one account, some audiences and a limited time, and
//! most of them for as long as a pod, a secret or a node is there.
//!
//! They are JSON Web Tokens with the claims that Kubernetes gives them, so everyone who reads those reads these. Start
//! at [`Signer`].

mod bootstrap;
mod key;
mod legacy;
mod public;
mod request;
mod review;
mod verified;

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

pub use legacy::{LegacySigner, LegacySubject};
pub(crate) use legacy::{Uses as LegacyUses, run as note_legacy_uses};
pub(crate) use request::issue;
pub(crate) use review::{holder, review};

use self::legacy::LegacyClaims;
use self::verified::{Opened, Verified};

/// Who signs, and for whom a token is if nobody else is named.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Signs tokens, and knows its own signature.
pub struct Signer {
    pair: EcdsaKeyPair,
    /// Tells keys apart: the digest of the public one.
    id: String,
    /// Tokens whose signature was found to be right.
    verified: Verified,
}

impl Signer {
    /// A signer with a P-256 key. `public` is the same key's public half, as certificates hold it.
    pub fn new(pkcs8: &[u8], public: &[u8]) -> Result<Signer, BadKey> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|error| BadKey(error.to_string()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, public);
        Ok(Signer { pair, id: URL_SAFE_NO_PAD.encode(digest), verified: Verified::default() })
    }

    fn sign(&self, claims: &Claims) -> Result<String, BadKey> {
        let header = Header { alg: "ES256".to_owned(), kid: self.id.clone() };
        compact(&header, claims, |text| {
            let signature = self.pair.sign(&SystemRandom::new(), text);
            signature.map_err(|_| BadKey("the system gives no random numbers".to_owned()))
        })
    }

    /// What a token says that is signed by us. Whether it is still good is another question, asked each time.
    fn open(&self, token: &str) -> Result<Arc<Opened>, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Foreign);
        }
        self.verified.get_or_open(token, || self.verify(token))
    }

    fn verify(&self, token: &str) -> Result<Said, Refused> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Refused::Foreign)?;
        let (header, claims) = signed.split_once('.').ok_or(Refused::Foreign)?;
        let header: Header = read(header).ok_or(Refused::Foreign)?;
        let said = Said::read(claims).ok_or(Refused::Foreign)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Foreign)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        match header.alg == "ES256" && key.verify(signed.as_bytes(), &signature).is_ok() {
            true => Ok(said),
            false => Err(Refused::Because("go-jose/go-jose: error in cryptographic primitive".to_owned())),
        }
    }
}

/// The token that comes with a request.
pub(crate) fn bearer(headers: &http::HeaderMap) -> Option<&str> {
    let header = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Keys are secrets: only which one it is can be shown.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A key that can't sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadKey(String);

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key for service account tokens can't be used: {}", self.0)
    }
}

impl std::error::Error for BadKey {}

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    /// It is not one of ours.
    Foreign,
    /// It is ours, but no longer good, or not for this.
    Because(String),
}

/// A token in its usual form: header, claims and signature, each as text.
fn compact<S: AsRef<[u8]>>(
    header: &Header,
    claims: &impl Serialize,
    sign: impl FnOnce(&[u8]) -> Result<S, BadKey>,
) -> Result<String, BadKey> {
    let mut token = format!("{}.{}", part(header), part(claims));
    let signature = sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

fn part(value: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).expect("claims are always encodable"))
}

fn read<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

/// What a token says, by who signed it.
enum Said {
    /// For a time, and some audiences.
    Bound(Box<Claims>),
    /// For as long as a Secret holds it.
    Legacy(LegacyClaims),
}

impl Said {
    fn read(part: &str) -> Option<Said> {
        #[derive(Deserialize)]
        struct Signed {
            iss: String,
        }
        match &*read::<Signed>(part)?.iss {
            ISSUER => read(part).map(Said::Bound),
            legacy::ISSUER => read(part).map(Said::Legacy),
            _ => None,
        }
    }

    /// For whom it is. Tokens of Secrets say nothing of that: they are for the API server.
    fn audiences(&self) -> Vec<String> {
        match self {
            Said::Bound(claims) => claims.aud.clone(),
            Said::Legacy(_) => vec![ISSUER.to_owned()],
        }
    }
}

/// What a token with an end says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claims {
    aud: Vec<String>,
    exp: i64,
    iat: i64,
    iss: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Subject,
    nbf: i64,
    sub: String,
}

/// Whose token it is, and what it is bound to.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Subject {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<Named>,
    serviceaccount: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnafter: Option<i64>,
}

/// One object in its one life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    uid: String,
}

#[cfg(test)]
mod tests;
