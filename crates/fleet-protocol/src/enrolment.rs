//! How a vehicle gets its first certificate, and each further one: what it asks for, and what vouches for it.
//!
//! A token is the seed of a key, whose public half stands in the vehicle's spec. The vehicle signs its request with it, so nobody who
//! sees the request, the hub included, can ask for anything else with it. Later requests are signed with the key of the certificate
//! before.

use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::hex;

/// Where a hub takes requests for a first certificate, from those who have none.
pub const ENROL_PATH: &str = "/v1/enrol";

/// Where a hub takes requests for the next certificate, from those who have one.
pub const RENEW_PATH: &str = "/v1/renew";

/// Largest request, and largest answer.
pub const ASK_BYTES_MAX: usize = 16 * 1024;

/// What is signed begins with this, so that no signature made for something else counts.
const PURPOSE: &[u8] = b"setpoint vehicle certificate\n";

/// What a vehicle asks for, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The request for a certificate (PKCS #10) in PEM.
    pub request: String,
    /// What vouches for it: see [`Proof`].
    pub proof: String,
}

/// The answer, in JSON. Nobody has decided yet while it is empty: ask again with the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The certificate in PEM.
    pub certificate: String,
    /// From when it counts, in seconds since 1970.
    #[serde(default)]
    pub from: i64,
    /// Until when it counts.
    #[serde(default)]
    pub until: i64,
    /// The hub's time.
    #[serde(default)]
    pub now: i64,
}

/// What lets a vehicle in, once.
pub struct Token {
    pair: Ed25519KeyPair,
}

impl Token {
    /// Reads a token: 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        let seed = hex::decode(text.trim()).filter(|bytes| bytes.len() == 32)?;
        Some(Token { pair: Ed25519KeyPair::from_seed_unchecked(&seed).ok()? })
    }

    /// The half that everybody may know, in hexadecimal.
    #[must_use]
    pub fn key(&self) -> String {
        hex::encode(self.pair.public_key().as_ref())
    }

    /// Vouches for a request.
    #[must_use]
    pub fn vouch(&self, request: &str) -> Proof {
        Proof::Token(self.pair.sign(&message(request)).as_ref().to_vec())
    }
}

/// A signature of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By a token.
    Token(Vec<u8>),
    /// By the key of an earlier certificate: ECDSA with P-256 and SHA-256, in ASN.1.
    Key(Vec<u8>),
}

impl Proof {
    /// Reads `token:HEX` or `key:HEX`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Proof> {
        let (kind, signature) = text.split_once(':')?;
        let signature = hex::decode(signature)?;
        match kind {
            "token" => Some(Proof::Token(signature)),
            "key" => Some(Proof::Key(signature)),
            _ => None,
        }
    }

    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Proof::Token(signature) => format!("token:{}", hex::encode(signature)),
            Proof::Key(signature) => format!("key:{}", hex::encode(signature)),
        }
    }

    /// Whether it is a signature of this request by the owner of a public key, which is in hexadecimal.
    #[must_use]
    pub fn is_by(&self, key: &str, request: &str) -> bool {
        let Some(key) = hex::decode(key) else { return false };
        let (message, verified) = (message(request), |result: Result<(), ring::error::Unspecified>| result.is_ok());
        match self {
            Proof::Token(signature) => verified(UnparsedPublicKey::new(&ED25519, key).verify(&message, signature)),
            Proof::Key(signature) => {
                verified(UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(&message, signature))
            }
        }
    }
}

/// What is signed of a request.
#[must_use]
pub fn message(request: &str) -> Vec<u8> {
    [PURPOSE, request.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(digit: &str) -> Token {
        Token::parse(&digit.repeat(64)).unwrap()
    }

    #[test]
    fn a_token_vouches_for_one_request_and_no_other() {
        let (own, other) = (token("1"), token("2"));
        let proof = own.vouch("request");
        assert_eq!(Proof::parse(&proof.text()), Some(proof.clone()));
        for (key, request, expected) in [
            (own.key(), "request", true),
            (own.key(), "another", false),
            (other.key(), "request", false),
            (String::new(), "request", false),
            ("no key".to_owned(), "request", false),
        ] {
            assert_eq!(proof.is_by(&key, request), expected, "{key} {request}");
        }
        let Proof::Token(signature) = proof else { panic!("a token's") };
        assert!(!Proof::Key(signature).is_by(&own.key(), "request"));
    }

    #[test]
    fn what_is_no_token_and_no_proof_is_none() {
        for text in ["", "1", &"1".repeat(63), &"x".repeat(64), &"1".repeat(66)] {
            assert!(Token::parse(text).is_none(), "{text}");
        }
        for text in ["", "token", "token:x", "seal:00", "key"] {
            assert_eq!(Proof::parse(text), None, "{text}");
        }
    }
}
