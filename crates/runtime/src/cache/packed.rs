//! Several texts in one allocation, for objects of which there are many: each text of its own costs 16 bytes where it is held, as
//! much for the allocator, and a miss of the CPU's cache.

use std::borrow::Cow;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Texts one after the other, each with its length before it: `3:app3:web`. So any text can be one of them, and all are read
/// without a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed(Box<str>);

impl Packed {
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        use std::fmt::Write;
        let mut all = String::with_capacity(128);
        for text in texts {
            // Writing to memory does not fail.
            let _ = write!(all, "{}:{text}", text.len());
        }
        Self(all.into_boxed_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (length, following) = rest.split_once(':')?;
            let (text, following) = following.split_at(length.parse().ok()?);
            rest = following;
            Some(text)
        })
    }
}

/// Names with values, such as labels: one allocation for all of them, sorted by name.
///
/// ```
/// use setpoint_runtime::cache::Pairs;
///
/// let labels: Pairs = serde_json::from_str(r#"{"tier":"front","app":"web"}"#).unwrap();
/// assert_eq!(labels.get("tier"), Some("front"));
/// assert_eq!(labels.iter().next(), Some(("app", "web")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Packed);

impl Pairs {
    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.iter();
        std::iter::from_fn(move || texts.next().zip(texts.next()))
    }

    /// Keeps those names that somebody reads.
    #[must_use]
    pub fn only(self, is_read: impl Fn(&str) -> bool) -> Self {
        Self(Packed::of(self.iter().filter(|(name, _)| is_read(name)).flat_map(|(name, value)| [name, value])))
    }
}

impl setpoint_api::labels::Labels for Pairs {
    fn get(&self, key: &str) -> Option<&str> {
        Pairs::get(self, key)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As a struct, not as a map: what is visited are no elements with memory of their own.
        deserializer.deserialize_struct("Pairs", &[], PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs: Vec<(Text<'de>, Text<'de>)> = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        pairs.sort_by(|one, other| one.0.0.cmp(&other.0.0));
        // Of a name that stands twice the last value counts, as in Go.
        pairs.reverse();
        pairs.dedup_by(|one, other| one.0.0 == other.0.0);
        pairs.reverse();
        Ok(Pairs(Packed::of(pairs.iter().flat_map(|(name, value)| [&*name.0, &*value.0]))))
    }
}

/// A text, copied only if it has escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &[(&str, &str)]) {
        let pairs: Pairs = serde_json::from_str(json).unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), expected, "{json}");
        for (name, value) in expected {
            assert_eq!(pairs.get(name), Some(*value), "{json}");
        }
        assert_eq!(pairs.get("none"), None);
    }

    #[test]
    fn any_text_can_be_packed_and_read_again() {
        check("{}", &[]);
        check(r#"{"tier":"front","app":"web"}"#, &[("app", "web"), ("tier", "front")]);
        check(r#"{"a":"","":"3:x"}"#, &[("", "3:x"), ("a", "")]);
        check(r#"{"größe":"1\n2:\u00003"}"#, &[("größe", "1\n2:\x003")]);
        check(r#"{"a":"1","b":"2","a":"3"}"#, &[("a", "3"), ("b", "2")]);
        for bad in ["[]", "7", r#"{"a":1}"#] {
            assert!(serde_json::from_str::<Pairs>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_nobody_reads_can_be_dropped() {
        let pairs: Pairs = serde_json::from_str(r#"{"a":"1","b":"2","c":"3"}"#).unwrap();
        let kept = pairs.only(|name| name != "b");
        assert_eq!(kept.iter().collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
    }
}
