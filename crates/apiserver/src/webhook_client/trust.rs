//! Whom a bundle of certificates vouches for: those whose certificates its authorities signed, and whoever shows a certificate that is
//! in the bundle itself.
//!
//! The second is how Go reads such bundles, and so how they are written: one with nothing but the server's own certificate, signed by
//! itself or by somebody who isn't in it, is common. Of such a certificate name, time and purpose are looked at all the same.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// The trust in a bundle.
#[derive(Debug)]
pub(super) struct Trust {
    bundle: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// In these certificates. Those that can't be authorities vouch for themselves alone.
    pub(super) fn in_bundle(
        bundle: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Trust, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Ok(Trust { bundle, signed: signed.map_err(|error| format!("unable to load root certificates: {error}"))? })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.bundle.contains(end_entity) {
            return self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        check_itself(end_entity, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// What a certificate says of its time and of what it is for.
fn check_itself(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    let now = now.ok_or(Error::FailedToGetCurrentTime)?;
    if now < parsed.validity().not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after {
        return Err(CertificateError::Expired.into());
    }
    let purposes = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let is_for_servers = purposes.is_none_or(|purposes| purposes.value.server_auth || purposes.value.any);
    if is_for_servers { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    /// The end of 2023.
    const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_704_000_000));

    fn authority() -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.der().clone(), Issuer::new(params, key))
    }

    fn server(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["hook.example.com".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        params
    }

    /// What a bundle with `trusted` says of a server that shows `shown`.
    fn verdict(trusted: &[&CertificateDer<'static>], shown: &CertificateDer<'static>, name: &str) -> String {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trust = Trust::in_bundle(trusted.iter().map(|of| (*of).clone()).collect(), &provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        match trust.verify_server_cert(shown, &[], &name, &[], NOW) {
            Ok(_) => "trusted".to_owned(),
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
                "another name".to_owned()
            }
            Err(Error::InvalidCertificate(why)) => format!("{why:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_bundle_vouches_for_what_its_authorities_signed_and_for_what_is_in_it() {
        let (ca, issuer) = authority();
        let signed = |change: fn(&mut CertificateParams)| {
            server(change).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
        };
        let leaf = signed(|_| {});
        assert_eq!(verdict(&[&ca], &leaf, "hook.example.com"), "trusted");
        assert_eq!(verdict(&[&leaf], &leaf, "hook.example.com"), "trusted", "without who signed it");
        assert_eq!(verdict(&[&leaf], &signed(|_| {}), "hook.example.com"), "UnknownIssuer", "another of the same");
        let own = server(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let own = own.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        assert_eq!(verdict(&[&ca, &own], &own, "hook.example.com"), "trusted", "signed by itself, as an authority is");
    }

    #[test]
    fn what_is_in_the_bundle_has_to_be_for_this_server_and_for_now() {
        let (_, issuer) = authority();
        for (change, name, expected) in [
            ((|_| {}) as fn(&mut CertificateParams), "other.example.com", "another name"),
            (|params| params.not_after = rcgen::date_time_ymd(2023, 1, 1), "hook.example.com", "Expired"),
            (|params| params.not_before = rcgen::date_time_ymd(2024, 1, 1), "hook.example.com", "NotValidYet"),
            (
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                "hook.example.com",
                "InvalidPurpose",
            ),
            (|params| params.extended_key_usages = Vec::new(), "hook.example.com", "trusted"),
        ] {
            let leaf = server(change).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
            assert_eq!(verdict(&[&leaf], &leaf, name), expected);
        }
    }
}
