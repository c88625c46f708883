//! Who a connection is from: what its client certificate proves, and until when.

use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::time::Instant;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::tls::Present;
use crate::user::{CREDENTIAL_ID, User};

/// The attribute of a subject that carries a user's uid.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Who a connection is from.
#[derive(Clone)]
pub(super) enum Caller {
    /// No certificate came.
    Nobody,
    /// One came that we don't trust.
    Refused,
    /// A certificate of our CA.
    Known {
        user: Arc<User>,
        /// When it expires; none if that is beyond what the clock can express.
        until: Option<Instant>,
    },
}

impl Caller {
    /// Checks the certificates that came with a finished handshake, the client's own first.
    pub(super) fn of(certificates: &[CertificateDer<'_>], trust: &Present) -> Caller {
        let [certificate, intermediates @ ..] = certificates else { return Caller::Nobody };
        let now = UnixTime::now();
        if let Err(error) = trust.clients.verify_client_cert(certificate, intermediates, now) {
            tracing::debug!(%error, "a client certificate is not trusted");
            return Caller::Refused;
        }
        match read(certificate) {
            Ok(Some((user, not_after))) => {
                let left = not_after.saturating_sub(now.as_secs());
                Caller::Known { user: Arc::new(user), until: Instant::now().checked_add(Duration::from_secs(left)) }
            }
            Ok(None) => Caller::Nobody,
            Err(reason) => {
                tracing::debug!(reason, "a client certificate names nobody");
                Caller::Refused
            }
        }
    }

    /// Whether these certificates, with which a connection was made, count no more: their authority is not trusted any longer.
    pub(super) fn is_gone(certificates: &[CertificateDer<'_>], trust: &Present) -> bool {
        matches!(Caller::of(certificates, trust), Caller::Refused)
    }
}

/// The user that a certificate names and the second at which it expires. One without a common name names nobody.
fn read(certificate: &CertificateDer<'_>) -> Result<Option<(User, u64)>, &'static str> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| "it can't be read")?;
    let subject = parsed.subject();
    // Of several common names the last one counts, as in Go's reading of a subject.
    let Some(name) = subject.iter_common_name().last() else { return Ok(None) };
    let name = text(name)?;
    if name.is_empty() {
        return Ok(None);
    }
    let groups = subject.iter_organization().map(text).collect::<Result<_, _>>()?;
    let extra = [(CREDENTIAL_ID.to_owned(), vec![credential_id(certificate)])].into();
    let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    Ok(Some((User { name, groups, uid: uid(subject)?, extra }, not_after)))
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, &'static str> {
    attribute.as_str().map(str::to_owned).map_err(|_| "its subject is not text")
}

fn uid(subject: &X509Name<'_>) -> Result<String, &'static str> {
    let mut uids = subject.iter_by_oid(&UID);
    let Some(uid) = uids.next() else { return Ok(String::new()) };
    match (text(uid)?, uids.next()) {
        (_, Some(_)) => Err("its subject has more than one uid"),
        (uid, None) if uid.is_empty() => Err("its subject has an empty uid"),
        (uid, None) => Ok(uid),
    }
}

fn credential_id(certificate: &CertificateDer<'_>) -> String {
    let mut id = String::from("X509SHA256=");
    for byte in digest(&SHA256, certificate).as_ref() {
        id.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
        id.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
    }
    id
}
