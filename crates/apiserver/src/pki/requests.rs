//! Certificates for requests that others made: a subject, names and a key that they keep.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose as Extended, IsCa, KeyUsagePurpose as Usage};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use super::certificate::{Authority, set_validity};

/// A certificate is valid from so long before it is made, for machines whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(5 * 60);

/// Certificates that live shorter than this get the whole of their time from now on.
const SHORT: Duration = Duration::from_secs(8 * 60 * 60);

impl Authority {
    /// A certificate in PEM for a request in PEM, for these usages (in the words of the API) and no others.
    pub(super) fn certify(
        &self,
        request: &[u8],
        usages: &[String],
        life: Duration,
        now: SystemTime,
    ) -> Result<String, String> {
        if now >= self.not_after() {
            return Err("refusing to sign a certificate that expired in the past".to_owned());
        }
        let der = CertificateSigningRequestDer::from_pem_slice(request).map_err(|error| error.to_string())?;
        let mut asked = CertificateSigningRequestParams::from_der(&der).map_err(|error| error.to_string())?;
        let params = &mut asked.params;
        (params.key_usages, params.extended_key_usages) = usages_of(usages)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let life = if life < SHORT { life } else { life.saturating_sub(BACKDATED) };
        set_validity(params, now, BACKDATED, self.not_after().min(now + life));
        let certificate = asked.signed_by(self.issuer()).map_err(|error| error.to_string())?;
        // The library guesses the sort of the key from the request's signature.
        if public_key(certificate.der())? != asked_key(&der)? {
            return Err(format!("keys of {:?} can't be certified", asked.public_key.algorithm()));
        }
        Ok(certificate.pem())
    }
}

fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    Ok(parsed.public_key().raw.to_vec())
}

fn asked_key(request: &[u8]) -> Result<Vec<u8>, String> {
    use x509_parser::prelude::{FromDer, X509CertificationRequest};
    let (_, parsed) = X509CertificationRequest::from_der(request).map_err(|error| error.to_string())?;
    Ok(parsed.certification_request_info.subject_pki.raw.to_vec())
}

/// What a certificate is to be used for, each once and in the order of certificates.
fn usages_of(names: &[String]) -> Result<(Vec<Usage>, Vec<Extended>), String> {
    let (mut usages, mut extended, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match (usage(name), extended_usage(name)) {
            (Some(usage), _) if !usages.contains(&usage) => usages.push(usage),
            (_, Some(usage)) if !extended.contains(&usage) => extended.push(usage),
            (None, None) => unknown.push(name),
            _ => {}
        }
    }
    if unknown.is_empty() { Ok((usages, extended)) } else { Err(format!("unrecognized usage values: {unknown:?}")) }
}

fn usage(name: &str) -> Option<Usage> {
    Some(match name {
        "signing" | "digital signature" => Usage::DigitalSignature,
        "content commitment" => Usage::ContentCommitment,
        "key encipherment" => Usage::KeyEncipherment,
        "key agreement" => Usage::KeyAgreement,
        "data encipherment" => Usage::DataEncipherment,
        "cert sign" => Usage::KeyCertSign,
        "crl sign" => Usage::CrlSign,
        "encipher only" => Usage::EncipherOnly,
        "decipher only" => Usage::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(name: &str) -> Option<Extended> {
    Some(match name {
        "any" => Extended::Any,
        "server auth" => Extended::ServerAuth,
        "client auth" => Extended::ClientAuth,
        "code signing" => Extended::CodeSigning,
        "email protection" | "s/mime" => Extended::EmailProtection,
        "ipsec end system" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 5]),
        "ipsec tunnel" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 6]),
        "ipsec user" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7]),
        "timestamping" => Extended::TimeStamping,
        "ocsp signing" => Extended::OcspSigning,
        "microsoft sgc" => Extended::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => Extended::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData, SanType};

    use super::*;

    /// A day in 2026, so that nothing depends on the day of the test.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
    }

    fn authority() -> Authority {
        let pair = Authority::make(now(), Duration::from_secs(1_000_000)).unwrap();
        Authority::new(pair).unwrap()
    }

    fn request(key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "developers");
        params.subject_alt_names.push(SanType::DnsName("edge-7".try_into().unwrap()));
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    fn certify(
        authority: &Authority,
        request: &str,
        usages: &[&str],
        life: u64,
    ) -> Result<CertificateDer<'static>, String> {
        let usages: Vec<_> = usages.iter().map(|usage| (*usage).to_owned()).collect();
        let pem = authority.certify(request.as_bytes(), &usages, Duration::from_secs(life), now())?;
        Ok(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
    }

    #[test]
    fn a_certificate_says_what_was_asked_and_granted() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            let (authority, key) = (authority(), KeyPair::generate_for(algorithm).unwrap());
            let der =
                certify(&authority, &request(&key), &["digital signature", "client auth", "signing"], 600).unwrap();
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
            assert_eq!(certificate.subject().to_string(), "CN=jane, O=developers");
            assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
            let usage = certificate.key_usage().unwrap().unwrap().value;
            assert!(usage.digital_signature() && !usage.key_encipherment());
            let extended = certificate.extended_key_usage().unwrap().unwrap().value;
            assert!(extended.client_auth && !extended.server_auth);
            let alternatives = certificate.subject_alternative_name().unwrap().unwrap().value;
            assert_eq!(alternatives.general_names, [x509_parser::extensions::GeneralName::DNSName("edge-7")]);
            assert!(!certificate.is_ca());
            let der = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap();
            let (_, ca) = x509_parser::parse_x509_certificate(&der).unwrap();
            assert!(certificate.verify_signature(Some(ca.public_key())).is_ok());
        }
    }

    #[test]
    fn times_are_those_asked_for_but_end_with_the_authority() {
        let (authority, key) = (authority(), KeyPair::generate().unwrap());
        for (life, expected) in [(600, 600), (10 * 3600, 10 * 3600 - 300), (2_000_000, 1_000_000)] {
            let der = certify(&authority, &request(&key), &["client auth"], life).unwrap();
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
            let validity = certificate.validity();
            let times = (validity.not_before.timestamp(), validity.not_after.timestamp());
            assert_eq!(times, (1_790_000_000 - 300, 1_790_000_000 + expected), "{life}");
        }
        let late = now() + Duration::from_secs(1_000_000);
        let outcome = authority.certify(request(&key).as_bytes(), &[], Duration::from_secs(600), late);
        assert_eq!(outcome.unwrap_err(), "refusing to sign a certificate that expired in the past");
    }

    #[test]
    fn what_is_no_request_gets_no_certificate() {
        let (authority, key) = (authority(), KeyPair::generate().unwrap());
        let unknown = certify(&authority, &request(&key), &["client auth", "fishing"], 600).unwrap_err();
        assert_eq!(unknown, "unrecognized usage values: [\"fishing\"]");
        for text in ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"] {
            assert!(certify(&authority, text, &["client auth"], 600).is_err(), "{text:?}");
        }
    }
}
