//! Formats of texts: what each allows.

/// Formats that are checked; others are taken for comments. Dashes don't count.
const KNOWN: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format of texts is checked.
pub(super) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format.replace('-', "").as_str())
}
