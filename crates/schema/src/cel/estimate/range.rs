//! From the least to the most: a size or a cost that is not known to the unit.

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Rounded up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Casting a float that is too large gives the largest number, which is what is wanted.
fn scale(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}
