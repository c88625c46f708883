//! IP addresses and CIDRs: what Kubernetes takes, in old fields and in new ones, and in which words it refuses or warns.
//!
//! Old fields were read by a parser that ignored leading zeros (`010.0.0.1`) and took IPv4 in IPv6 clothes
//! (`::ffff:10.0.0.1`). Other software reads both differently, so today both are refused, unless an object already has
//! such a value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{FieldError, Path};
use crate::quote::quote;

/// Reads an address as the old parser does: leading zeros are ignored. IPv4-mapped IPv6 is given back as IPv6.
pub fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') { parse_sloppy_v6(text).map(IpAddr::V6) } else { parse_sloppy_v4(text).map(IpAddr::V4) }
}

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The address, with all its bits.
    pub address: IpAddr,
    /// How many bits belong to the network: up to 32 or 128.
    pub prefix: u8,
}

impl Cidr {
    /// Reads a CIDR as the old parser does: leading zeros are ignored, in the address and in the length.
    pub fn parse_sloppy(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_sloppy(address)?;
        let prefix = decimal(prefix).filter(|prefix| *prefix <= bits(address).into())?;
        Some(Self { address, prefix: u8::try_from(prefix).ok()? })
    }

    /// The address with all bits beyond the prefix cleared.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    /// Whether the address is in this network. IPv4 and IPv6 never contain each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_family = self.address.is_ipv4() == address.is_ipv4();
        same_family && Self { address, prefix: self.prefix }.network() == self.network()
    }

    /// The network in its canonical form; IPv4 in IPv6 clothes comes out as IPv4.
    pub fn canonical(&self) -> String {
        with_prefix(self.network(), self.prefix)
    }
}

/// What is wrong with an address in a new field: it must be in its one canonical form.
pub fn validate_ip(path: &Path<'_>, value: &str) -> Vec<FieldError> {
    let (address, errors) = parse_ip(path, value);
    match address {
        Some(address) if errors.is_empty() => not_canonical(path, value, &canonical(address)).into_iter().collect(),
        _ => errors,
    }
}

/// What is wrong with an address in an old field, where forms that are not canonical are taken, and where the values
/// that the stored object has (`old`) stay valid.
pub fn validate_legacy_ip(path: &Path<'_>, value: &str, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&value) { Vec::new() } else { parse_ip(path, value).1 }
}

/// What to warn about in an address of an old field.
pub fn warnings_for_ip(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(address) = parse_sloppy(value) else { return Vec::new() };
    let (quoted, canonical) = (quote(value), quote(&canonical(address)));
    if !is_strict_ip(value) || is_mapped(address) {
        return vec![format!("{path}: non-standard IP address {quoted} is invalid: use {canonical}")];
    }
    if address.is_ipv6() && address.to_string() != value {
        return vec![format!("{path}: IPv6 address {quoted} should be in RFC 5952 canonical format ({canonical})")];
    }
    Vec::new()
}

/// What is wrong with a CIDR in a new field: it must be a network in its one canonical form.
pub fn validate_cidr(path: &Path<'_>, value: &str) -> Vec<FieldError> {
    let (cidr, errors) = parse_cidr(path, value);
    match cidr {
        Some(cidr) if errors.is_empty() => not_canonical(path, value, &cidr.canonical()).into_iter().collect(),
        _ => errors,
    }
}

/// What is wrong with a CIDR in an old field, where the values that the stored object has (`old`) stay valid.
pub fn validate_legacy_cidr(path: &Path<'_>, value: &str, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&value) { Vec::new() } else { parse_cidr(path, value).1 }
}

/// What to warn about in a CIDR of an old field.
pub fn warnings_for_cidr(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(cidr) = Cidr::parse_sloppy(value) else { return Vec::new() };
    let (quoted, canonical_text) = (quote(value), quote(&cidr.canonical()));
    let mut warnings = Vec::new();
    if cidr.address != cidr.network() {
        let single = quote(&format!("{}/{}", canonical(cidr.address), bits(cidr.address)));
        warnings.push(format!(
            "{path}: CIDR value {quoted} is ambiguous in this context (should be {canonical_text} or {single}?)"
        ));
    }
    if !is_strict_cidr(value) || is_mapped(cidr.address) {
        warnings.push(format!("{path}: non-standard CIDR value {quoted} is invalid: use {canonical_text}"));
    }
    if warnings.is_empty() && cidr.address.is_ipv6() && cidr.canonical() != value {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {quoted} should be in RFC 5952 canonical format ({canonical_text})"
        ));
    }
    warnings
}

/// What is wrong with an interface's address: all bits of the address with the length of its network's prefix.
pub fn validate_interface_address(path: &Path<'_>, value: &str) -> Vec<FieldError> {
    let Some(cidr) = Cidr::parse_sloppy(value) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![FieldError::invalid(path, value, detail)];
    };
    // Upstream subtracts even from a prefix that is too short for IPv4, and so do we: the hint is the same nonsense.
    let shortened = is_mapped(cidr.address) && cidr.prefix > 32;
    let prefix = i16::from(cidr.prefix) - if shortened { 96 } else { 0 };
    let expected = format!("{}/{prefix}", canonical(cidr.address));
    not_canonical(path, value, &expected).into_iter().collect()
}

fn parse_ip(path: &Path<'_>, value: &str) -> (Option<IpAddr>, Vec<FieldError>) {
    let Some(address) = parse_sloppy(value) else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return (None, vec![FieldError::invalid(path, value, detail)]);
    };
    let strict = is_strict_ip(value);
    let mut errors = Vec::new();
    if !strict {
        errors.push(FieldError::invalid(path, value, "must not have leading 0s"));
    }
    if strict && is_mapped(address) {
        errors.push(FieldError::invalid(path, value, "must not be an IPv4-mapped IPv6 address"));
    }
    (Some(address), errors)
}

fn parse_cidr(path: &Path<'_>, value: &str) -> (Option<Cidr>, Vec<FieldError>) {
    let Some(cidr) = Cidr::parse_sloppy(value) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return (None, vec![FieldError::invalid(path, value, detail)]);
    };
    let complaint = if !is_strict_cidr(value) {
        Some("must not have leading 0s in IP or prefix length")
    } else if is_mapped(cidr.address) {
        Some("must not have an IPv4-mapped IPv6 address")
    } else if cidr.address != cidr.network() {
        Some("must not have bits set beyond the prefix length")
    } else {
        None
    };
    (Some(cidr), complaint.map(|complaint| FieldError::invalid(path, value, complaint)).into_iter().collect())
}

fn not_canonical(path: &Path<'_>, value: &str, expected: &str) -> Option<FieldError> {
    let detail = || format!("must be in canonical form ({})", quote(expected));
    (value != expected).then(|| FieldError::invalid(path, value, detail()))
}

/// Whether a parser of today takes it too. The standard library refuses leading zeros, as Go's does.
fn is_strict_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_strict_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        is_strict_ip(address) && (prefix == "0" || !prefix.starts_with('0')) && decimal(prefix).is_some()
    })
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// IPv4 in IPv6 clothes prints as IPv4.
fn canonical(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

fn with_prefix(network: IpAddr, prefix: u8) -> String {
    let prefix = if is_mapped(network) { prefix.saturating_sub(96) } else { prefix };
    format!("{}/{prefix}", canonical(network))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn parse_sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.');
    let mut octets = [0; 4];
    for octet in &mut octets {
        *octet = u8::try_from(decimal(parts.next()?)?).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// Takes the leading zeros away and leaves the rest to the standard library.
fn parse_sloppy_v6(text: &str) -> Option<Ipv6Addr> {
    let groups: Option<Vec<String>> = text.split(':').map(trim_group).collect();
    groups?.join(":").parse().ok()
}

fn trim_group(group: &str) -> Option<String> {
    if group.contains('.') {
        return parse_sloppy_v4(group).map(|address| address.to_string());
    }
    let trimmed = group.trim_start_matches('0');
    Some(if trimmed.is_empty() && !group.is_empty() { "0".to_owned() } else { trimmed.to_owned() })
}

/// A number without sign; leading zeros are ignored.
fn decimal(text: &str) -> Option<u16> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.trim_start_matches('0') {
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.detail.as_str()).collect()
    }

    #[test]
    fn addresses_of_old_fields_may_be_uncommon_but_not_ambiguous() {
        let invalid = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        for (text, expected) in [
            ("10.0.0.1", vec![]),
            ("2001:DB8:0:0::1", vec![]),
            ("::", vec![]),
            ("1:2:3:4:5:6:7::", vec![]),
            ("010.0.0.1", vec!["must not have leading 0s"]),
            ("00010.0.0.1", vec!["must not have leading 0s"]),
            ("00001::1", vec!["must not have leading 0s"]),
            ("::ffff:010.0.0.1", vec!["must not have leading 0s"]),
            ("::ffff:10.0.0.1", vec!["must not be an IPv4-mapped IPv6 address"]),
            ("::ffff:a00:1", vec!["must not be an IPv4-mapped IPv6 address"]),
            ("", vec![invalid]),
            ("10.0.0", vec![invalid]),
            ("10.0.0.256", vec![invalid]),
            ("10.0.0.1.2", vec![invalid]),
            ("+1.0.0.0", vec![invalid]),
            ("fe80::1%eth0", vec![invalid]),
            ("1:2:3:4:5:6:7:8::", vec![invalid]),
            (":::", vec![invalid]),
            ("10.0.0.1/8", vec![invalid]),
        ] {
            assert_eq!(details(&validate_legacy_ip(&Path::root("ip"), text, &[])), expected, "{text:?}");
            assert!(validate_legacy_ip(&Path::root("ip"), text, &[text]).is_empty());
        }
    }

    #[test]
    fn addresses_of_new_fields_have_one_form() {
        for (text, expected) in [
            ("10.0.0.1", vec![]),
            ("2001:db8::1", vec![]),
            ("2001:DB8:0:0::1", vec!["must be in canonical form (\"2001:db8::1\")"]),
            ("010.0.0.1", vec!["must not have leading 0s"]),
        ] {
            assert_eq!(details(&validate_ip(&Path::root("ip"), text)), expected, "{text:?}");
        }
    }

    #[test]
    fn cidrs_are_networks() {
        let invalid = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        for (text, expected) in [
            ("10.0.0.0/8", vec![]),
            ("0.0.0.0/0", vec![]),
            ("::/0", vec![]),
            ("2001:db8::/32", vec![]),
            ("10.0.0.1/32", vec![]),
            ("2001:DB8::/32", vec!["must be in canonical form (\"2001:db8::/32\")"]),
            ("10.0.0.1/8", vec!["must not have bits set beyond the prefix length"]),
            ("10.0.0.0/08", vec!["must not have leading 0s in IP or prefix length"]),
            ("010.0.0.0/8", vec!["must not have leading 0s in IP or prefix length"]),
            ("::ffff:10.0.0.0/104", vec!["must not have an IPv4-mapped IPv6 address"]),
            ("10.0.0.0/33", vec![invalid]),
            ("10.0.0.0", vec![invalid]),
            ("10.0.0.0/", vec![invalid]),
            ("10.0.0.0/+8", vec![invalid]),
            ("10.0.0.0/8/8", vec![invalid]),
        ] {
            assert_eq!(details(&validate_cidr(&Path::root("cidr"), text)), expected, "{text:?}");
        }
        assert!(validate_legacy_cidr(&Path::root("cidr"), "2001:DB8::/32", &[]).is_empty());
        assert!(validate_legacy_cidr(&Path::root("cidr"), "010.0.0.0/8", &["010.0.0.0/8"]).is_empty());
    }

    #[test]
    fn odd_but_valid_values_are_warned_about() {
        let path = Path::root("f");
        for (text, expected) in [
            ("10.0.0.1", vec![]),
            ("2001:db8::1", vec![]),
            ("010.0.0.1", vec!["f: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""]),
            ("::ffff:10.0.0.1", vec!["f: non-standard IP address \"::ffff:10.0.0.1\" is invalid: use \"10.0.0.1\""]),
            (
                "2001:DB8::1",
                vec!["f: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"],
            ),
        ] {
            assert_eq!(warnings_for_ip(&path, text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("10.0.0.0/8", vec![]),
            (
                "10.1.0.0/8",
                vec![
                    "f: CIDR value \"10.1.0.0/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.1.0.0/32\"?)",
                ],
            ),
            ("10.0.0.0/08", vec!["f: non-standard CIDR value \"10.0.0.0/08\" is invalid: use \"10.0.0.0/8\""]),
            (
                "2001:DB8::/32",
                vec!["f: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")"],
            ),
        ] {
            assert_eq!(warnings_for_cidr(&path, text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_interface_address_keeps_its_bits() {
        let path = Path::root("f");
        for (text, expected) in [
            ("192.168.1.5/24", vec![]),
            ("fd00::5/64", vec![]),
            ("::ffff:192.168.0.1/120", vec!["must be in canonical form (\"192.168.0.1/24\")"]),
            ("fd00:0::5/64", vec!["must be in canonical form (\"fd00::5/64\")"]),
            ("192.168.1.5", vec!["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"]),
        ] {
            assert_eq!(details(&validate_interface_address(&path, text)), expected, "{text:?}");
        }
    }

    #[test]
    fn a_network_contains_its_own() {
        let network = Cidr::parse_sloppy("10.0.0.0/16").unwrap();
        assert!(network.contains("10.0.255.1".parse().unwrap()));
        assert!(!network.contains("10.1.0.0".parse().unwrap()));
        assert!(!network.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(Cidr::parse_sloppy("::/0").unwrap().contains("ff00::1".parse().unwrap()));
    }
}
