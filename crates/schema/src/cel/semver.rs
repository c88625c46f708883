//! Versions as semver.org has them.

use std::cmp::Ordering;

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    before: Vec<String>,
}

impl Semver {
    /// Reads a version; if it may be sloppy, a `v`, missing parts and leading zeros are allowed.
    pub(super) fn parse(text: &str, sloppy: bool) -> Result<Self, String> {
        let normal;
        let text = if sloppy {
            normal = normalized(text);
            &normal
        } else {
            text
        };
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        let (major, minor, patch) = (number(major, "Major")?, number(minor, "Minor")?, number(patch, "Patch")?);
        let mut identifiers = Vec::new();
        for identifier in before.into_iter().flat_map(|before| before.split('.')) {
            identifiers.push(checked(identifier, "Prerelease", true)?);
        }
        for identifier in build.into_iter().flat_map(|build| build.split('.')) {
            checked(identifier, "Build meta data", false)?;
        }
        Ok(Self { major, minor, patch, before: identifiers })
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.compare_before(other),
        })
    }

    fn compare_before(&self, other: &Self) -> Ordering {
        let pairs = self.before.iter().zip(&other.before);
        let mut different = pairs.map(|(a, b)| match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        });
        different.find(|order| order.is_ne()).unwrap_or(self.before.len().cmp(&other.before.len()))
    }
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {text:?}", what.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"))
}

fn checked(identifier: &str, what: &str, numbers: bool) -> Result<String, String> {
    if identifier.is_empty() {
        return Err(format!("{what} is empty"));
    }
    if !identifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("Invalid character(s) found in prerelease {identifier:?}"));
    }
    if numbers
        && identifier.len() > 1
        && identifier.starts_with('0')
        && identifier.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("Numeric PreRelease version must not contain leading zeroes {identifier:?}"));
    }
    Ok(identifier.to_owned())
}

fn normalized(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let kept = part[..digits].trim_start_matches('0');
        if digits > 1 {
            *part = format!("{}{}", if kept.is_empty() { "0" } else { kept }, &part[digits..]);
        }
    }
    if parts.len() < 3 && !parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        parts.resize(3, "0".to_owned());
    }
    parts.join(".")
}
