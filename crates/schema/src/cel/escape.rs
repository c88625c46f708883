//! Names of properties as expressions write them.

use std::borrow::Cow;

/// Words that can't be names.
pub(super) const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: &[(&str, &str)] = &[("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// The name of a property as expressions write it; None if they can't.
pub(crate) fn escape(name: &str) -> Option<Cow<'_, str>> {
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    let first = name.bytes().next()?;
    if first.is_ascii_alphabetic() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Some(Cow::Borrowed(name));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    if !(first.is_ascii_alphabetic() || first == b'_') || !name.bytes().all(allowed) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    Some(Cow::Owned(escaped.replace('-', "__dash__").replace('/', "__slash__")))
}

/// The words in the text of an expression that could name a property.
pub(crate) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The property that an expression means by a name; None if the name is no escaped one.
pub(super) fn unescape(name: &str) -> Option<Cow<'_, str>> {
    if !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let inner = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| RESERVED.contains(word)) {
        return Some(Cow::Owned(word.to_owned()));
    }
    let (mut rest, mut found) = (name, String::with_capacity(name.len()));
    while let Some(at) = rest.find("__") {
        found.push_str(&rest[..at]);
        let (escaped, plain) = ESCAPES.iter().find(|(escaped, _)| rest[at..].starts_with(escaped))?;
        found.push_str(plain);
        rest = &rest[at + escaped.len()..];
    }
    found.push_str(rest);
    Some(Cow::Owned(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_found_again() {
        for (name, escaped) in [
            ("name", Some("name")),
            ("namespace", Some("__namespace__")),
            ("a.b-c/d__e", Some("a__dot__b__dash__c__slash__d__underscores__e")),
            ("$ref", None),
            ("1a", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
            }
        }
        assert_eq!(unescape("a__b"), None);
    }
}
