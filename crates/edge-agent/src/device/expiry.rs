//! From when and until when a certificate counts: as much of X.509 as that takes.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// From when and until when the first of some certificates in PEM counts, in seconds since 1970.
pub fn validity(pem: &str) -> Option<(i64, i64)> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate, _) = value(&certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut fields, _) = value(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    // The version may be left out; then come serial number, sort of signature, issuer, and what is looked for.
    let (first, _, rest) = value(fields)?;
    if first == VERSION {
        fields = rest;
    }
    for _ in 0..3 {
        fields = value(fields)?.2;
    }
    let (_, times, _) = value(fields).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (kind, from, rest) = value(times)?;
    let (other, until, _) = value(rest)?;
    Some((seconds(kind, from)?, seconds(other, until)?))
}

/// The first value of DER: its tag, what is in it, and what comes after it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*length) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (digits, rest) =
                rest.split_at_checked(long - 0x80).filter(|(digits, _)| (1..=4).contains(&digits.len()))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`. Years of two digits are those from 1950 to 2049.
fn seconds(kind: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match kind {
        UTC_TIME => format!("{}{text}", if text < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    Some(TimeZone::UTC.to_timestamp(time).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(from: i32, until: i32) -> String {
        let mut params = CertificateParams::new(vec!["v-1".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 12, 31));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn both_ways_to_write_a_year_are_read() {
        assert_eq!(validity(&made(2026, 2027)), Some((1_767_225_600, 1_830_211_200)));
        assert_eq!(validity(&made(1999, 2049)), Some((915_148_800, 2_524_521_600)));
        assert_eq!(validity(&made(2049, 2051)), Some((2_493_072_000, 2_587_593_600)));
    }

    #[test]
    fn what_is_no_certificate_counts_never() {
        let whole = made(2026, 2027);
        let (head, body) = whole.split_at(whole.len() / 2);
        for text in ["", "no PEM", head, body] {
            assert_eq!(validity(text), None, "{text}");
        }
        for cut in [&[][..], &[SEQUENCE], &[SEQUENCE, 0x85, 1, 1, 1, 1, 1], &[SEQUENCE, 0x80], &[SEQUENCE, 5, 1]] {
            assert_eq!(value(cut), None, "{cut:?}");
        }
    }
}
