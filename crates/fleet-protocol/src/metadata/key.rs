//! Keys that sign and keys that check.

use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::canonical;
use crate::hex;

/// A public key, as metadata holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// `ed25519`.
    pub keytype: String,
    /// 32 bytes in hexadecimal.
    pub public: String,
}

impl Key {
    /// The name of a key: its digest, so that nobody can give a key another's name.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(&digest(&SHA256, self.public.as_bytes()).as_ref()[..8])
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Some(public) = hex::decode(&self.public).filter(|_| self.keytype == "ed25519") else { return false };
        UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
    }
}

/// A key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// The key of a seed. Whoever has the seed has the key.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> SigningKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("every 32 bytes are a seed");
        SigningKey { pair }
    }

    /// The half that everybody may know.
    #[must_use]
    pub fn public(&self) -> Key {
        Key { keytype: "ed25519".into(), public: hex::encode(self.pair.public_key().as_ref()) }
    }
}

/// Metadata with the signatures of these keys. None if it has a number that isn't whole.
#[must_use]
pub fn sign<T: Serialize>(signed: &T, keys: &[&SigningKey]) -> Option<String> {
    let signed = serde_json::to_value(signed).ok()?;
    let message = canonical(&signed)?;
    let signature =
        |key: &&SigningKey| json!({"keyid": key.public().id(), "sig": hex::encode(key.pair.sign(&message).as_ref())});
    let signatures: Vec<_> = keys.iter().map(signature).collect();
    Some(json!({"signed": signed, "signatures": signatures}).to_string())
}
