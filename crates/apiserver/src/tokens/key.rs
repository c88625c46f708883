//! A private key that signs tokens, in the forms in which others keep it: PEM, an elliptic curve or RSA.

use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use super::BadKey;

/// Names of algorithms in DER: what the key is for, and on which curve it is.
const ELLIPTIC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const NULL: &[u8] = &[0x05, 0x00];

/// Tags of DER.
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const BYTES: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// A key that signs.
pub(super) enum Key {
    P256(EcdsaKeyPair),
    Rsa(rsa::KeyPair),
}

impl Key {
    /// The first private key in a text.
    pub(super) fn from_pem(text: &[u8]) -> Result<Key, BadKey> {
        let found = PrivateKeyDer::from_pem_slice(text).map_err(|error| BadKey(error.to_string()))?;
        match &found {
            PrivateKeyDer::Pkcs1(key) => rsa(rsa::KeyPair::from_der(key.secret_pkcs1_der())),
            PrivateKeyDer::Sec1(key) => p256(&wrapped(key.secret_sec1_der())),
            PrivateKeyDer::Pkcs8(key) => {
                let der = key.secret_pkcs8_der();
                if contains(der, RSA) { rsa(rsa::KeyPair::from_pkcs8(der)) } else { p256(der) }
            }
            _ => Err(BadKey("it is in a form that nobody knows".to_owned())),
        }
    }

    /// What it is called in the header of a token.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Key::P256(_) => "ES256",
            Key::Rsa(_) => "RS256",
        }
    }

    /// Its public half, as certificates hold it.
    pub(super) fn public(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Key::P256(pair) => (der(SEQUENCE, &[ELLIPTIC, P256]), pair.public_key().as_ref()),
            Key::Rsa(pair) => (der(SEQUENCE, &[RSA, NULL]), pair.public().as_ref()),
        };
        der(SEQUENCE, &[&algorithm, &der(BITS, &[&[0], key])])
    }

    pub(super) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, BadKey> {
        let chance = SystemRandom::new();
        let signed = match self {
            Key::P256(pair) => pair.sign(&chance, text).map(|signature| signature.as_ref().to_vec()),
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &chance, text, &mut signature).map(|()| signature)
            }
        };
        signed.map_err(|_| BadKey("the system gives no random numbers".to_owned()))
    }
}

fn p256(pkcs8: &[u8]) -> Result<Key, BadKey> {
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
    pair.map(Key::P256).map_err(|error| BadKey(format!("it is neither on the curve P-256 nor of RSA: {error}")))
}

fn rsa(pair: Result<rsa::KeyPair, ring::error::KeyRejected>) -> Result<Key, BadKey> {
    pair.map(Key::Rsa).map_err(|error| BadKey(error.to_string()))
}

/// A key of the curve P-256 in the old form, in the new one.
fn wrapped(sec1: &[u8]) -> Vec<u8> {
    der(SEQUENCE, &[&der(INTEGER, &[&[0]]), &der(SEQUENCE, &[ELLIPTIC, P256]), &der(BYTES, &[sec1])])
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A value of DER: its tag, its length, what it holds.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ 0..0x80) => out.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let digits = &length[length.iter().position(|byte| *byte != 0).unwrap_or(0)..];
            // At most eight, so it fits.
            out.push(0x80 | digits.len() as u8);
            out.extend(digits);
        }
    }
    out.extend(content);
    out
}
