//! The public half of the key that signs tokens, as a JSON Web Key Set.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::KeyPair;
use serde::Serialize;

use super::Signer;

/// Keys that open signatures.
#[derive(Debug, Serialize)]
pub(crate) struct PublicKeys {
    keys: [PublicKey; 1],
}

/// A key on the curve P-256.
#[derive(Debug, Serialize)]
struct PublicKey {
    #[serde(rename = "use")]
    usage: &'static str,
    kty: &'static str,
    kid: String,
    crv: &'static str,
    alg: &'static str,
    x: String,
    y: String,
}

impl Signer {
    /// What it takes to check what this one has signed.
    pub(crate) fn public_keys(&self) -> PublicKeys {
        // One byte that says that both coordinates follow, then they do.
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let key = PublicKey {
            usage: "sig",
            kty: "EC",
            kid: self.id.clone(),
            crv: "P-256",
            alg: "ES256",
            x: URL_SAFE_NO_PAD.encode(x),
            y: URL_SAFE_NO_PAD.encode(y),
        };
        PublicKeys { keys: [key] }
    }
}
