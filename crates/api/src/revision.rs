//! Revisions: the position of a write in the one order of all writes, which clients see as `resourceVersion`.

use std::fmt;
use std::str::FromStr;

/// A position in the order of all writes. Zero stands before the first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first write.
    pub const ZERO: Self = Self(0);

    /// The revision at this position.
    pub const fn new(position: u64) -> Self {
        Self(position)
    }

    /// The position as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision of the write after this one.
    ///
    /// # Panics
    /// After 2^64 writes: a wrapped revision would be handed out twice, which is worse than a stopped server.
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(position) => Self(position),
            None => panic!("revisions are used up"),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// Why a text is no revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionError {
    /// Nothing between the quotes.
    Empty,
    /// A byte that is no decimal digit (a sign counts as one).
    NotDecimal,
    /// More than 64 bits.
    TooLarge,
}

impl fmt::Display for RevisionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "a resource version must not be empty",
            Self::NotDecimal => "a resource version must consist of decimal digits",
            Self::TooLarge => "a resource version must fit in 64 bits",
        })
    }
}

impl std::error::Error for RevisionError {}

impl FromStr for Revision {
    type Err = RevisionError;

    /// Decimal digits only. Rust's own integer parser takes a leading `+`, which Go's does not.
    fn from_str(text: &str) -> Result<Self, RevisionError> {
        if text.is_empty() {
            return Err(RevisionError::Empty);
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RevisionError::NotDecimal);
        }
        text.parse().map(Self).map_err(|_| RevisionError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_digits_make_a_revision() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("42", Ok(42)),
            ("007", Ok(7)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(RevisionError::TooLarge)),
            ("", Err(RevisionError::Empty)),
            ("+1", Err(RevisionError::NotDecimal)),
            ("-1", Err(RevisionError::NotDecimal)),
            ("1 ", Err(RevisionError::NotDecimal)),
            ("0x1", Err(RevisionError::NotDecimal)),
        ] {
            assert_eq!(text.parse::<Revision>().map(Revision::get), expected, "{text:?}");
        }
    }

    #[test]
    fn the_next_revision_is_one_later_and_prints_as_its_number() {
        assert_eq!(Revision::ZERO.next().next(), Revision::new(2));
        assert_eq!(Revision::new(2).to_string(), "2");
    }
}
