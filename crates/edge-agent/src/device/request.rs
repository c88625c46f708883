//! A key of the vehicle's own, and the request for a certificate for it (PKCS #10).

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use setpoint_fleet_protocol::Party;
use setpoint_fleet_protocol::enrolment::{Proof, message};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;
const TEXT: u8 = 0x0c;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const ATTRIBUTES: u8 = 0xa0;

/// A key with P-256.
pub struct OwnKey {
    pair: EcdsaKeyPair,
    pem: String,
}

impl OwnKey {
    /// A new one.
    pub fn draw() -> Result<OwnKey, String> {
        let drawn = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        let drawn = drawn.map_err(|_| "no key could be drawn".to_owned())?;
        OwnKey::read(&pem("PRIVATE KEY", drawn.as_ref()))
    }

    /// From PEM.
    pub fn read(text: &str) -> Result<OwnKey, String> {
        let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| e.to_string())?
        else {
            return Err("the key is not in PKCS #8".into());
        };
        let rng = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der(), &rng);
        Ok(OwnKey { pair: pair.map_err(|error| error.to_string())?, pem: text.to_owned() })
    }

    /// In PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Asks for a certificate that names a party, in PEM.
    pub fn request(&self, party: &Party) -> Result<String, String> {
        let (name, group) = party.subject();
        let attribute = |kind: &[u8], value: &str| {
            let pair = der(SEQUENCE, &[&der(OBJECT, &[kind]), &der(TEXT, &[value.as_bytes()])]);
            der(SET, &[&pair])
        };
        let subject = der(SEQUENCE, &[&attribute(ORGANIZATION, group), &attribute(COMMON_NAME, &name)]);
        let sort = der(SEQUENCE, &[&der(OBJECT, &[EC_PUBLIC_KEY]), &der(OBJECT, &[P256])]);
        let key = der(SEQUENCE, &[&sort, &bits(self.pair.public_key().as_ref())]);
        let info = der(SEQUENCE, &[&der(INTEGER, &[&[0]]), &subject, &key, &der(ATTRIBUTES, &[])]);
        let signed = der(SEQUENCE, &[&der(OBJECT, &[ECDSA_WITH_SHA256])]);
        let signature = bits(&self.sign(&info)?);
        Ok(pem("CERTIFICATE REQUEST", &der(SEQUENCE, &[&info, &signed, &signature])))
    }

    /// Vouches for a request of the vehicle's next key.
    pub fn vouch(&self, request: &str) -> Result<Proof, String> {
        self.sign(&message(request)).map(Proof::Key)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature.map(|signature| signature.as_ref().to_vec()).map_err(|_| "nothing could be signed".to_owned())
    }
}

/// One value of DER: a tag, the length, and what is in it.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut out = vec![tag];
    if content.len() >= 0x80 {
        // A length has at most eight bytes.
        out.push(0x80 | u8::try_from(length.len()).unwrap_or(8));
    }
    out.extend(length);
    out.extend(content);
    out
}

fn bits(bytes: &[u8]) -> Vec<u8> {
    der(BIT_STRING, &[&[0], bytes])
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let value = three.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = char::from(LETTERS[(value >> (18 - 6 * place) & 63) as usize]);
            text.push(if place <= three.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn lengths_are_as_short_as_they_can_be() {
        assert_eq!(der(INTEGER, &[&[0]]), [2, 1, 0]);
        assert_eq!(der(ATTRIBUTES, &[]), [0xa0, 0]);
        assert_eq!(der(TEXT, &[&[7; 127]])[..3], [0x0c, 127, 7]);
        assert_eq!(der(TEXT, &[&[7; 128]])[..4], [0x0c, 0x81, 128, 7]);
        assert_eq!(der(TEXT, &[&[7; 300]])[..5], [0x0c, 0x82, 1, 44, 7]);
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = OwnKey::draw().unwrap();
        let again = OwnKey::read(key.pem()).unwrap();
        let proof = again.vouch("request").unwrap();
        assert!(proof.is_by(&setpoint_fleet_protocol::hex::encode(key.pair.public_key().as_ref()), "request"));
        assert!(OwnKey::read("no key").is_err());
    }
}
