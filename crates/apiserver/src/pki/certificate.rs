//! Certificates with their keys: making them, and reading what they say.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::x509::X509Name;

/// A certificate is valid from so long before it is made, for clients whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// What a certificate is for.
#[derive(Clone)]
pub(super) struct Purpose {
    common_name: String,
    organization: Option<String>,
    addresses: Vec<IpAddr>,
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
}

impl Purpose {
    /// To serve at these addresses and names.
    pub(super) fn server(addresses: Vec<IpAddr>, names: Vec<String>) -> Purpose {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        Purpose { common_name: "setpoint-apiserver".into(), organization: None, addresses, names, usage }
    }

    /// To call as a user of a group.
    pub(super) fn client(user: &str, group: &str) -> Purpose {
        Purpose {
            common_name: user.into(),
            organization: Some(group.into()),
            addresses: Vec::new(),
            names: Vec::new(),
            usage: ExtendedKeyUsagePurpose::ClientAuth,
        }
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = &self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.distinguished_name.push(DnType::CommonName, &self.common_name);
        for name in &self.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// A certificate and its key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Issued {
    /// Takes the two parts of a file apart, and checks that they belong together.
    pub(super) fn parse(text: &str) -> Result<Issued, String> {
        let at = text.find("-----BEGIN PRIVATE KEY-----").ok_or(match text.contains("PRIVATE KEY-----") {
            true => "its key is not in PKCS #8, as `openssl pkcs8 -topk8 -nocrypt` writes it",
            false => "there is no key in it",
        })?;
        let (certificate, key) = text.split_at(at);
        let pair = Issued { certificate: certificate.to_owned(), key: key.to_owned() };
        let public = KeyPair::from_pem(key).map_err(|error| error.to_string())?;
        if pair.facts()?.public_key != rcgen::PublicKeyData::subject_public_key_info(&public) {
            return Err("the key is not that of the certificate".into());
        }
        Ok(pair)
    }

    /// What the certificate says.
    pub(super) fn facts(&self) -> Result<Facts, String> {
        Facts::of(&self.der()?)
    }

    fn der(&self) -> Result<CertificateDer<'static>, String> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|error| error.to_string())
    }
}

/// What a certificate says.
pub(super) struct Facts {
    /// The common names of whom it is for, and of who signed it.
    pub(super) subject: String,
    pub(super) issuer: String,
    not_before: SystemTime,
    pub(super) not_after: SystemTime,
    pub(super) public_key: Vec<u8>,
    pub(super) names: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
}

impl Facts {
    /// Of a certificate in DER.
    pub(super) fn of(der: &[u8]) -> Result<Facts, String> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).map_err(|error| error.to_string())?;
        let alternatives = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        let mut names = Vec::new();
        let mut addresses = Vec::new();
        for name in alternatives.iter().flat_map(|found| &found.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        let second = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let common_name = |name: &X509Name<'_>| {
            let found = name.iter_common_name().next().and_then(|name| name.as_str().ok());
            found.unwrap_or_default().to_owned()
        };
        Ok(Facts {
            subject: common_name(parsed.subject()),
            issuer: common_name(parsed.issuer()),
            not_before: UNIX_EPOCH + Duration::from_secs(second(parsed.validity().not_before)),
            not_after: UNIX_EPOCH + Duration::from_secs(second(parsed.validity().not_after)),
            public_key: parsed.public_key().raw.to_vec(),
            names,
            addresses,
        })
    }

    pub(super) fn is_valid_at(&self, time: SystemTime) -> bool {
        self.not_before <= time && time < self.not_after
    }
}

/// A certificate authority with its key: the one that signs.
pub(super) struct Authority {
    pair: Issued,
    issuer: Issuer<'static, KeyPair>,
    not_after: SystemTime,
}

impl Authority {
    /// A new certificate and key for the first authority.
    pub(super) fn make(now: SystemTime, valid: Duration) -> Result<Issued, rcgen::Error> {
        self_signed(&authority_params(NAME, now, now + valid))
    }

    /// A new certificate and key for an authority after another. Its name is another, so that nobody takes one for the other.
    pub(super) fn make_successor(now: SystemTime, valid: Duration) -> Result<Issued, rcgen::Error> {
        self_signed(&authority_params(&successor_name(now), now, now + valid))
    }

    /// A certificate by this authority, in PEM, for the one after it, made at the same time.
    pub(super) fn certify_successor(&self, successor: &Issued, now: SystemTime) -> Result<String, String> {
        let params = authority_params(&successor_name(now), now, self.not_after);
        let key = KeyPair::from_pem(&successor.key).map_err(|error| error.to_string())?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        Ok(certificate.pem())
    }

    /// Whether a certificate in PEM is for this authority's key.
    pub(super) fn is_certified_by(&self, certificate: &str) -> bool {
        let key = |pem: &str| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
            Facts::of(&der).ok().map(|facts| facts.public_key)
        };
        key(certificate).is_some_and(|certified| Some(certified) == key(&self.pair.certificate))
    }

    /// The authority that has this certificate and key.
    pub(super) fn new(pair: Issued) -> Result<Authority, String> {
        let key = KeyPair::from_pem(&pair.key).map_err(|error| error.to_string())?;
        let issuer = Issuer::from_ca_cert_der(&pair.der()?, key).map_err(|error| error.to_string())?;
        let not_after = pair.facts()?.not_after;
        Ok(Authority { pair, issuer, not_after })
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// When nobody trusts it any more.
    pub(super) fn not_after(&self) -> SystemTime {
        self.not_after
    }

    pub(super) fn certificate_pem(&self) -> &str {
        &self.pair.certificate
    }

    /// A new certificate and key for a purpose. It never outlives the authority.
    pub(super) fn issue(&self, purpose: &Purpose, now: SystemTime, valid: Duration) -> Result<Issued, rcgen::Error> {
        let mut params = purpose.params()?;
        set_validity(&mut params, now, CLOCK_SKEW, self.not_after.min(now + valid));
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Whether a certificate is ours, serves the purpose, and will for a while.
    pub(super) fn would_keep(&self, pair: &Issued, purpose: &Purpose, now: SystemTime, renew_before: Duration) -> bool {
        let Ok(facts) = pair.facts() else { return false };
        self.has_signed(pair)
            && facts.is_valid_at(now)
            && facts.is_valid_at(now + renew_before)
            && purpose.names.iter().all(|name| facts.names.contains(name))
            && purpose.addresses.iter().all(|address| facts.addresses.contains(address))
    }

    pub(super) fn has_signed(&self, pair: &Issued) -> bool {
        let (Ok(leaf), Ok(ca)) = (pair.der(), self.pair.der()) else { return false };
        let parsed = (x509_parser::parse_x509_certificate(&leaf), x509_parser::parse_x509_certificate(&ca));
        let (Ok((_, leaf)), Ok((_, ca))) = parsed else { return false };
        leaf.verify_signature(Some(ca.public_key())).is_ok()
    }
}

/// The name of the first authority; those after it say when they were made.
const NAME: &str = "setpoint-ca";

fn successor_name(now: SystemTime) -> String {
    format!("{NAME}-{}", now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

fn self_signed(params: &CertificateParams) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn authority_params(name: &str, now: SystemTime, not_after: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, now, CLOCK_SKEW, not_after);
    params
}

/// Valid from some time before now on.
pub(super) fn set_validity(
    params: &mut CertificateParams,
    now: SystemTime,
    backdated: Duration,
    not_after: SystemTime,
) {
    let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(now).saturating_sub(backdated);
    params.not_after = epoch + since_epoch(not_after);
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
