//! How long a request is kept, and how long a certificate lives.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use x509_parser::pem::Pem;

/// How long what was decided is kept.
const DECIDED: SignedDuration = SignedDuration::from_hours(1);

/// How long what wasn't is kept.
const PENDING: SignedDuration = SignedDuration::from_hours(24);

/// How long certificates live, unless less is asked for.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest life of a certificate.
const LIFE_MIN: Duration = Duration::from_secs(600);

/// When a request is to be deleted.
pub fn ends_at(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let status = request.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let certificate = status.certificate.map(|certificate| certificate.0).filter(|bytes| !bytes.is_empty());
    let after = |time: Option<Timestamp>, span| time.and_then(|time| time.checked_add(span).ok());
    if conditions.is_empty() {
        return after(request.metadata.creation_timestamp.as_ref().map(|time| time.0), PENDING);
    }
    let ends = conditions.iter().filter_map(|condition| {
        let updated = condition.last_update_time.as_ref().map(|time| time.0);
        match (condition.type_.as_str(), &certificate) {
            ("Denied" | "Failed", _) => after(updated, DECIDED),
            ("Approved", Some(certificate)) => after(updated, DECIDED).into_iter().chain(expiry(certificate)).min(),
            ("Approved", None) => after(updated, PENDING),
            _ => None,
        }
    });
    ends.min()
}

/// When a certificate expires.
fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (pem, _) = Pem::read(std::io::Cursor::new(certificate)).ok()?;
    let second = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Timestamp::from_second(second).ok()
}

/// How long a certificate is to live.
pub fn life(request: &CertificateSigningRequest) -> Duration {
    let asked = request.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    asked.map_or(LIFE, |seconds| Duration::from_secs(seconds).clamp(LIFE_MIN, LIFE))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requests_are_kept_for_an_hour_once_decided_and_a_day_before() {
        let said = |kind: &str| json!([{"type": kind, "status": "True", "lastUpdateTime": "2026-01-01T10:00:00Z"}]);
        for (status, end) in [
            (json!({}), Some("2026-01-02T00:00:00Z")),
            (json!({"conditions": said("Denied")}), Some("2026-01-01T11:00:00Z")),
            (json!({"conditions": said("Failed")}), Some("2026-01-01T11:00:00Z")),
            (json!({"conditions": said("Approved")}), Some("2026-01-02T10:00:00Z")),
            (json!({"conditions": said("Approved"), "certificate": "eA=="}), Some("2026-01-01T11:00:00Z")),
            (json!({"conditions": said("Other")}), None),
        ] {
            let request = request(status.clone(), Value::Null);
            assert_eq!(ends_at(&request).map(|end| end.to_string()).as_deref(), end, "{status}");
        }
    }

    #[test]
    fn a_certificate_lives_as_long_as_asked_within_bounds() {
        for (asked, seconds) in [
            (Value::Null, 365 * 86400),
            (json!(1), 600),
            (json!(7200), 7200),
            (json!(i32::MAX), 365 * 86400),
            (json!(-5), 365 * 86400),
        ] {
            assert_eq!(life(&request(json!({}), asked.clone())).as_secs(), seconds, "{asked}");
        }
    }

    fn request(status: Value, seconds: Value) -> CertificateSigningRequest {
        serde_json::from_value(json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": "s", "expirationSeconds": seconds}, "status": status}))
        .unwrap()
    }
}
