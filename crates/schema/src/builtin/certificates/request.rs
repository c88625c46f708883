//! The PKCS#10 request inside a CertificateSigningRequest, and the certificate that answers it.

use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;

use super::pem;
use crate::base64;

/// The organizations that a request (base64 of PEM, as in `spec.request`) names in its subject: the groups of the user
/// that a client certificate makes. None if the request can't be read.
pub fn organizations(request: &str) -> Option<Vec<String>> {
    let der = der(&base64::decode(request).ok()?).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&der).ok()?;
    let subject = &parsed.certification_request_info.subject;
    Some(subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect())
}

/// What is wrong with a request (base64 of PEM), if anything.
pub(super) fn complaint(request: &str) -> Option<String> {
    let der = match der(&base64::decode(request).unwrap_or_default()) {
        Ok(der) => der,
        Err(complaint) => return Some(complaint),
    };
    match X509CertificationRequest::from_der(&der) {
        Ok((rest, _)) if !rest.is_empty() => Some("asn1: syntax error: trailing data".to_owned()),
        Ok((_, parsed)) => signature_complaint(&parsed),
        Err(_) => Some("asn1: structure error: malformed certificate request".to_owned()),
    }
}

fn signature_complaint(request: &X509CertificationRequest<'_>) -> Option<String> {
    let algorithm = request.signature_algorithm.algorithm.to_id_string();
    let complaint = match request.verify_signature() {
        Ok(()) => return None,
        Err(X509Error::SignatureUnsupportedAlgorithm) => "x509: cannot verify signature: algorithm unimplemented",
        Err(_) if algorithm.starts_with("1.2.840.10045.") => "x509: ECDSA verification failure",
        Err(_) if algorithm == "1.3.101.112" => "x509: Ed25519 verification failure",
        Err(_) => "crypto/rsa: verification error",
    };
    Some(complaint.to_owned())
}

/// What is wrong with an issued certificate (base64 of PEM), if anything. There may be a chain, or nothing at all.
pub(super) fn certificate_complaint(certificate: &str) -> Option<String> {
    let bytes = base64::decode(certificate).unwrap_or_default();
    if bytes.is_empty() {
        return None;
    }
    let blocks = pem::blocks(&bytes);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks.iter().find_map(|block| match block {
        _ if block.kind != "CERTIFICATE" => {
            Some(format!("only CERTIFICATE PEM blocks are allowed, found {}", setpoint_api::quote::quote(&block.kind)))
        }
        _ if block.has_headers => Some("no PEM block headers are permitted".to_owned()),
        _ if block.der.is_empty() => Some("found CERTIFICATE PEM block containing 0 certificates".to_owned()),
        _ => certificates_complaint(&block.der),
    })
}

fn certificates_complaint(mut der: &[u8]) -> Option<String> {
    while !der.is_empty() {
        match X509Certificate::from_der(der) {
            Ok((rest, _)) => der = rest,
            Err(_) => return Some("x509: malformed certificate".to_owned()),
        }
    }
    None
}

fn der(bytes: &[u8]) -> Result<Vec<u8>, String> {
    match pem::blocks(bytes).into_iter().next() {
        Some(block) if block.kind == "CERTIFICATE REQUEST" => Ok(block.der),
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

/// Requests for tests: of `alice` in `devs`, and of `m` in `system:masters`.
#[cfg(test)]
pub(super) const OF_ALICE: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIYU1JR0JBZ0VBTUI4eERqQU1CZ05WQkFNTUJXRnNhV05sTVEw",
    "d0N3WURWUVFLREFSa1pYWnpNRmt3RXdZSApLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFSURwRE1LZnFseGYzTXBnWUtoaitH",
    "QXhzQTJaT0g2ZmUyT1NMCklHRFZZYjVkYXhKZEVIa1NkR2dWWmxKZTl6clBjZU9TTFpnVlpjdmxLQWUwZEJVYy9LQUFNQW9HQ0Nx",
    "R1NNNDkKQkFNQ0EwZ0FNRVVDSVFDTU1NU0Y1aElLNzBJQ2tQUUw2ZnliS1JKNldONHh2b0RDT2ZrYkU1alN1Z0lnWERxawpidDZs",
    "WFBFTGNDWjNnTSs4b1d6cStkZUdmY1kxWm9nK2pzVk1hY0k9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=",
);

#[cfg(test)]
mod tests {
    use super::*;

    const OF_MASTERS: &str = concat!(
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZ01JR0hBZ0VBTUNVeENqQUlCZ05WQkFNTUFXMHhGekFWQmdO",
        "VkJBb01Ebk41YzNSbGJUcHRZWE4wWlhKegpNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVELzdrRXE2WWZXTDBE",
        "ZlovNkFsNTFkUlYvNXR3CkhiYnBreXk4WVF4YUhpT1pIYXFSMHE4cjhmd3lQQ01lSDRSbkg3SnZaRG1LSEV3WTJCZHFTR3lWd0tB",
        "QU1Bb0cKQ0NxR1NNNDlCQU1DQTBnQU1FVUNJUUNWRkFUVVFITWFIdExNSlhXWUwyWVZNZC9neEkwTmxxbElOVk14SnR6OApQUUln",
        "UmtYdCtxVldlNElhanJINXprSUpQN2FSeCtjSGRCOXhKNkhLQWRWWE5zMD0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0t",
        "LS0tCg==",
    );

    #[test]
    fn a_request_names_organizations() {
        assert_eq!(organizations(OF_ALICE), Some(vec!["devs".to_owned()]));
        assert_eq!(organizations(OF_MASTERS), Some(vec!["system:masters".to_owned()]));
        assert_eq!(organizations("bm8="), None);
    }

    #[test]
    fn a_request_is_signed_with_its_own_key() {
        assert_eq!(complaint(OF_ALICE), None);
        let pem = String::from_utf8(base64::decode(OF_ALICE).unwrap()).unwrap();
        let forged = base64::encode(pem.replace("DDAVhbGljZ", "DDAVhbGljY").replace("FsaWNl", "FsaWNm").as_bytes());
        assert_eq!(complaint(&forged).as_deref(), Some("x509: ECDSA verification failure"));
        let other = base64::encode(pem.replace("CERTIFICATE REQUEST", "CERTIFICATE").as_bytes());
        assert_eq!(complaint(&other).as_deref(), Some("PEM block type must be CERTIFICATE REQUEST"));
    }

    #[test]
    fn a_certificate_is_nothing_but_certificates() {
        assert_eq!(certificate_complaint(""), None);
        for (certificate, expected) in [
            (base64::encode(b"not pem"), "must contain at least one CERTIFICATE PEM block"),
            (OF_ALICE.to_owned(), "only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\""),
            (
                base64::encode(b"-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"),
                "x509: malformed certificate",
            ),
        ] {
            assert_eq!(certificate_complaint(&certificate).as_deref(), Some(expected));
        }
    }
}
