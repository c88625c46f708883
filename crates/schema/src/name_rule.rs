//! What names a kind allows.

use setpoint_api::name;

/// A rule for names, and for the prefixes given as `generateName`. Each answers with complaints; none means allowed.
#[derive(Debug, Clone, Copy)]
pub struct NameRule {
    /// For a whole name.
    pub name: fn(&str) -> Vec<String>,
    /// For a prefix that a random suffix is going to follow.
    pub prefix: fn(&str) -> Vec<String>,
}

impl NameRule {
    /// RFC 1123 subdomain: most kinds.
    pub const SUBDOMAIN: Self =
        Self { name: name::dns1123_subdomain, prefix: |text| name::dns1123_subdomain(&without_dash(text)) };
    /// RFC 1123 label.
    pub const LABEL: Self = Self { name: name::dns1123_label, prefix: |text| name::dns1123_label(&without_dash(text)) };
    /// RFC 1035 label.
    pub const LABEL_1035: Self =
        Self { name: name::dns1035_label, prefix: |text| name::dns1035_label(&without_dash(text)) };
    /// Whatever can stand in a URL path.
    pub const PATH_SEGMENT: Self = Self { name: name::path_segment_name, prefix: name::path_segment_prefix };
}

/// A prefix may end in a dash, because something follows; so the dash is taken for a letter.
fn without_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
            kept + "a"
        }
        _ => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_end_in_a_dash_and_a_name_may_not() {
        assert!((NameRule::SUBDOMAIN.prefix)("web-").is_empty());
        assert!(!(NameRule::SUBDOMAIN.name)("web-").is_empty());
        assert!(!(NameRule::LABEL.prefix)("-").is_empty());
        assert!(!(NameRule::LABEL.prefix)("a.b-").is_empty());
    }
}
