//! Whether a request for a vehicle's certificate is granted.

use std::io::Cursor;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::enrolment::Proof;
use setpoint_fleet_protocol::{Party, VehicleName, hex};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::kinds::Access;

/// How long after its certificate has expired a vehicle may come back by its key, if its spec doesn't say: a season in a garage. Who was
/// stolen or scrapped meanwhile is to be revoked.
pub const RETURN_WITHIN: SignedDuration = SignedDuration::from_hours(24 * 90);

/// Until when a vehicle may come back by its key whose certificate expires at a moment. A span that can't be read is none.
#[must_use]
pub fn returns_until(expires: Timestamp, within: Option<&str>) -> Timestamp {
    let span = within.map_or(RETURN_WITHIN, |text| {
        setpoint_api::time::parse_duration(text).map_or(SignedDuration::ZERO, SignedDuration::from_nanos)
    });
    expires.saturating_add(span).unwrap_or(Timestamp::MAX)
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The vehicle that the certificate is to name.
    pub vehicle: VehicleName,
    /// Its public key in hexadecimal.
    pub key: String,
    /// The request as it was handed in.
    pub request: String,
}

/// When a request is judged, and until when a certificate for it counts.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// How long certificates live.
    pub life: SignedDuration,
}

impl Moment {
    fn until(self) -> Time {
        let until = self.now.saturating_add(self.life).unwrap_or(Timestamp::MAX);
        // Times of objects have no fractions.
        Time(Timestamp::from_second(until.as_second()).unwrap_or(until))
    }
}

impl Asked {
    /// Reads a request in PEM.
    pub fn read(request: &[u8]) -> Result<Asked, String> {
        let unreadable = |error: &dyn std::fmt::Display| format!("the request can't be read: {error}");
        let text = String::from_utf8(request.to_vec()).map_err(|error| unreadable(&error))?;
        let (pem, _) = Pem::read(Cursor::new(request)).map_err(|error| unreadable(&error))?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| unreadable(&error))?;
        parsed.verify_signature().map_err(|_| "who asks doesn't have the key".to_owned())?;
        let info = &parsed.certification_request_info;
        let name = info.subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
        let groups: Vec<&str> = info.subject.iter_organization().filter_map(|group| group.as_str().ok()).collect();
        match Party::of(name, &groups) {
            Some(Party::Vehicle(vehicle)) => {
                Ok(Asked { vehicle, key: hex::encode(&info.subject_pki.subject_public_key.data), request: text })
            }
            _ => Err(format!("{name:?} is no vehicle")),
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing, for this reason.
    Refuse(String),
    /// It is granted; whose certificates count is written already.
    Grant,
    /// It is granted once this is written.
    GrantWith(Access),
}

/// Judges a request by what vouches for it.
pub fn judge(access: &Access, asked: &Asked, proof: &Proof, moment: Moment) -> Verdict {
    let refuse = |why: &str| Verdict::Refuse(format!("{}: {why}", asked.vehicle));
    if access.revoked {
        return refuse("its access is revoked");
    }
    let is_newest = access.keys.first() == Some(&asked.key);
    // The answer may have got lost: the same key may ask for it again, and its next certificate counts for longer than the one before.
    let again = || match access.keys_until.as_ref() == Some(&moment.until()) {
        true => Verdict::Grant,
        false => Verdict::GrantWith(Access { keys_until: Some(moment.until()), ..access.clone() }),
    };
    let grant = |access: Access| Verdict::GrantWith(Access { keys_until: Some(moment.until()), ..access });
    match proof {
        Proof::Token(_) => {
            let Some(token) = &access.token else { return refuse("there is no token for it") };
            if !proof.is_by(&token.key, &asked.request) {
                return refuse("this is not its token");
            }
            if access.used_token.as_ref() == Some(&token.key) {
                return if is_newest { again() } else { refuse("its token was used already") };
            }
            if moment.now >= token.expires.0 {
                return refuse("its token has expired");
            }
            let used_token = Some(token.key.clone());
            grant(Access { used_token, keys: vec![asked.key.clone()], ..access.clone() })
        }
        Proof::Key(_) => {
            let Some(voucher) = access.keys.iter().find(|key| proof.is_by(key, &asked.request)) else {
                return refuse("no key that counts vouches for it");
            };
            // Of what was let in before that was written down nobody knows; a hub asks such a vehicle for its certificate.
            let expires = access.keys_until.as_ref().map(|time| time.0);
            let last = expires.map(|expires| returns_until(expires, access.return_within.as_deref()));
            if let Some(last) = last.filter(|last| moment.now >= *last) {
                return refuse(&format!(
                    "it was away for too long: it could come back by its key until {last}, and needs a token now"
                ));
            }
            if is_newest {
                return again();
            }
            grant(Access { keys: vec![asked.key.clone(), voucher.clone()], ..access.clone() })
        }
    }
}

#[cfg(test)]
mod tests;
