//! Names: what Kubernetes allows in names, label keys, keys of maps and ports, and in which words it refuses the rest.
//!
//! Each rule returns the list of its complaints; an empty list means the value is good.

use std::fmt;

/// Longest label of a DNS name (RFC 1123, RFC 1035).
pub const DNS_LABEL_BYTES_MAX: usize = 63;
/// Longest DNS name (RFC 1123).
pub const DNS_SUBDOMAIN_BYTES_MAX: usize = 253;
/// Longest name part of a label key.
const LABEL_KEY_BYTES_MAX: usize = 63;
/// Longest label value.
pub const LABEL_VALUE_BYTES_MAX: usize = 63;
/// Longest port name (RFC 6335).
const PORT_NAME_BYTES_MAX: usize = 15;

/// The complaints of one rule about one value.
pub type Complaints = Vec<String>;

/// A namespace's name. Only made by [`Namespace::parse`], so whoever holds one holds a good one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// A namespace is a label of a DNS name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        NameError::unless_empty(text, dns1123_label(text)).map(|()| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// An object's name as it stands in a path. Kinds have stricter rules of their own; this is what all share. Only made by
/// [`Name::parse`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// A name is a non-empty segment of a path.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let complaints = if text.is_empty() { vec![EMPTY.to_owned()] } else { path_segment_name(text) };
        NameError::unless_empty(text, complaints).map(|()| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    /// The text that was given.
    pub text: String,
    /// What is wrong with it; never empty.
    pub complaints: Complaints,
}

impl NameError {
    fn unless_empty(text: &str, complaints: Complaints) -> Result<(), Self> {
        if complaints.is_empty() { Ok(()) } else { Err(Self { text: text.to_owned(), complaints }) }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "invalid name {}: {}", crate::quote::quote(&self.text), self.complaints.join(", "))
    }
}

impl std::error::Error for NameError {}

/// A label of a DNS name, lower case, as RFC 1123 has it: names of namespaces.
pub fn dns1123_label(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_LABEL_BYTES_MAX, "characters");
    if !is_dns1123_label(value) {
        complaints.push(if is_dns1123_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    complaints
}

/// A DNS name, lower case, as RFC 1123 has it: names of most objects.
pub fn dns1123_subdomain(value: &str) -> Complaints {
    subdomain(value, "characters")
}

/// A DNS name that may have underscores, which some records of DNS need.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_SUBDOMAIN_BYTES_MAX, "characters");
    if !value.split('.').all(is_dns1123_label_with_underscore) {
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        complaints.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            &format!(r"{label}(\.{label})*"),
            &["example.com"],
        ));
    }
    complaints
}

/// A DNS name in which upper case is tolerated.
pub fn dns1123_subdomain_caseless(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_SUBDOMAIN_BYTES_MAX, "bytes");
    if !is_dns1123_subdomain(&value.to_ascii_lowercase()) {
        complaints.push(regex_error(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character",
            &dns1123_subdomain_regex(),
            &["Example.com"],
        ));
    }
    complaints
}

/// A DNS name after `*.`.
pub fn wildcard_dns1123_subdomain(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_SUBDOMAIN_BYTES_MAX, "characters");
    if !value.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        complaints.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{}", dns1123_subdomain_regex()),
            &["*.example.com"],
        ));
    }
    complaints
}

/// A label of a DNS name as RFC 1035 has it, starting with a letter: names of services.
pub fn dns1035_label(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_LABEL_BYTES_MAX, "characters");
    if !(is_dns1123_label(value) && value.starts_with(|first: char| first.is_ascii_lowercase())) {
        complaints.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

/// A label key, annotation key, finalizer or condition type: a name, optionally after a DNS name and a slash.
pub fn qualified_name(value: &str) -> Complaints {
    let mut complaints = Vec::new();
    let parts: Vec<_> = value.splitn(3, '/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                complaints.push(format!("prefix part {EMPTY}"));
            } else {
                complaints.extend(subdomain(prefix, "bytes").into_iter().map(|it| format!("prefix part {it}")));
            }
            name
        }
        _ => {
            complaints.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                label_key_error()
            ));
            return complaints;
        }
    };
    if name.is_empty() {
        complaints.push(format!("name part {EMPTY}"));
    } else {
        complaints.extend(too_long(name, LABEL_KEY_BYTES_MAX, "bytes").into_iter().map(|it| format!("name part {it}")));
    }
    if !is_label_name(name) {
        complaints.push(format!("name part {}", label_key_error()));
    }
    complaints
}

/// The value of a label; may be empty.
pub fn label_value(value: &str) -> Complaints {
    let mut complaints = too_long(value, LABEL_VALUE_BYTES_MAX, "bytes");
    if !(value.is_empty() || is_label_name(value)) {
        complaints.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &format!("({LABEL_NAME})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

/// A name that can stand in a path as it is.
pub fn path_segment_name(name: &str) -> Complaints {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

/// The start of a name that can stand in a path.
pub fn path_segment_prefix(name: &str) -> Complaints {
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// An environment variable's name, as strictly as Kubernetes took it at first.
pub fn env_var_name(value: &str) -> Complaints {
    let mut complaints = Vec::new();
    let starts_with_digit = value.starts_with(|first: char| first.is_ascii_digit());
    if starts_with_digit || !is_made_of(value, |byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        complaints.push(regex_error(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and \
             must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    complaints.extend(parent_directory(value));
    complaints
}

/// An environment variable's name, as Kubernetes takes it now.
pub fn relaxed_env_var_name(value: &str) -> Complaints {
    let mut complaints = Vec::new();
    if value.is_empty() {
        complaints.push(format!("environment variable name {EMPTY}"));
    }
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        complaints.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    complaints
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_SUBDOMAIN_BYTES_MAX, "characters");
    if !is_made_of(value, |byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        complaints.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    complaints.extend(parent_directory(value));
    complaints
}

/// An HTTP header's name, a little stricter than RFC 7230.
pub fn http_header_name(value: &str) -> Complaints {
    if is_made_of(value, |byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(message, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// The name of a port (RFC 6335), lower case.
pub fn port_name(value: &str) -> Complaints {
    let mut complaints = too_long(value, PORT_NAME_BYTES_MAX, "characters");
    let mut complain = |message: &str| complaints.push(message.to_owned());
    if !is_made_of(value, is_lower_alphanumeric_or_hyphen) {
        complain("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complain("must contain at least one letter (a-z)");
    }
    if value.contains("--") {
        complain("must not contain consecutive hyphens");
    }
    if value.starts_with('-') || value.ends_with('-') {
        complain("must not begin or end with a hyphen");
    }
    complaints
}

/// The number of a port: 1 to 65535.
pub fn is_valid_port_num(port: i64) -> Complaints {
    in_range(port, 1, 65535)
}

/// A number between two bounds, both included.
pub fn in_range(value: i64, low: i64, high: i64) -> Complaints {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

/// A user's number on Linux.
pub fn user_id(uid: i64) -> Complaints {
    in_range(uid, 0, i32::MAX.into())
}

/// A group's number on Linux.
pub fn group_id(gid: i64) -> Complaints {
    in_range(gid, 0, i32::MAX.into())
}

/// A percentage, such as `25%`.
pub fn percent(value: &str) -> Complaints {
    if value.strip_suffix('%').is_some_and(|digits| is_made_of(digits, |byte| byte.is_ascii_digit())) {
        return Vec::new();
    }
    let message = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(message, "[0-9]+%", &["1%", "93%"])]
}

/// An identifier of the C language.
pub fn c_identifier(value: &str) -> Complaints {
    let starts_with_digit = value.starts_with(|first: char| first.is_ascii_digit());
    if !starts_with_digit && is_made_of(value, |byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The reason of a condition.
pub fn condition_reason(value: &str) -> Complaints {
    let good = is_made_of(value, |byte| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte))
        && value.starts_with(|first: char| first.is_ascii_alphabetic())
        && !value.ends_with([',', ':']);
    if good {
        return Vec::new();
    }
    vec![regex_error(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
         characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// What is wrong with a domain and a path within it, such as `acme.io/foo`: each part that is wrong, with the reason.
pub fn domain_prefixed_path(value: &str) -> Vec<(&str, String)> {
    match value.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            let mut wrong: Vec<_> = dns1123_subdomain(host).into_iter().map(|complaint| (host, complaint)).collect();
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !is_made_of(path, good) {
                wrong.push((path, regex_error("Invalid path", HTTP_PATH, &[])));
            }
            wrong
        }
        _ => vec![(value, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned())],
    }
}

/// A whole number as people write it: no sign but `-`, no leading zeros.
pub fn decimal_integer(value: &str) -> Complaints {
    if value.is_empty() {
        return vec![EMPTY.to_owned()];
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    let good = value == "0" || (!digits.starts_with('0') && is_made_of(digits, |byte| byte.is_ascii_digit()));
    if good { Vec::new() } else { vec![DECIMAL_INTEGER.to_owned()] }
}

/// The words for a value that breaks a regular expression.
pub fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{regex}')");
    }
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

const EMPTY: &str = "must be non-empty";
const DECIMAL_INTEGER: &str = "must be a valid decimal integer in canonical form";
const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
/// What a path may be made of, as upstream shows it.
const HTTP_PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
const LABEL_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn dns1123_subdomain_regex() -> String {
    format!(r"{DNS1123_LABEL}(\.{DNS1123_LABEL})*")
}

fn label_key_error() -> String {
    regex_error(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        LABEL_NAME,
        &["MyName", "my.name", "123-abc"],
    )
}

/// Upstream counts in bytes everywhere but says so only in its newer rules, hence the unit.
fn too_long(value: &str, max: usize, unit: &str) -> Complaints {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn subdomain(value: &str, unit: &str) -> Complaints {
    let mut complaints = too_long(value, DNS_SUBDOMAIN_BYTES_MAX, unit);
    if !is_dns1123_subdomain(value) {
        complaints.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &dns1123_subdomain_regex(),
            &["example.com"],
        ));
    }
    complaints
}

/// Names that a container's file system would take for a directory above.
fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn is_dns1123_label(value: &str) -> bool {
    is_made_of(value, is_lower_alphanumeric_or_hyphen) && !value.starts_with('-') && !value.ends_with('-')
}

fn is_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns1123_label)
}

fn is_dns1123_label_with_underscore(value: &str) -> bool {
    let value = value.strip_prefix('_').unwrap_or(value);
    is_made_of(value, |byte| is_lower_alphanumeric_or_hyphen(byte) || byte == b'_')
        && !value.starts_with(['-', '_'])
        && !value.ends_with(['-', '_'])
}

fn is_label_name(value: &str) -> bool {
    is_made_of(value, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !value.starts_with(['-', '_', '.'])
        && !value.ends_with(['-', '_', '.'])
}

fn is_lower_alphanumeric_or_hyphen(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// Non-empty, and every byte is allowed.
fn is_made_of(value: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !value.is_empty() && value.bytes().all(allowed)
}

#[cfg(test)]
mod tests;
