//! Quantities of resources: exact decimal numbers with the suffixes that people write, such as `100m` or `1.5Gi`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

mod parse;

/// An exact amount: `mantissa × 10^exponent`.
///
/// Equality and order are those of the numbers: `1` equals `1000m`. Up to 38 significant digits are kept, down to 10⁻⁹;
/// what a person asks for below that is rounded away from zero, so that asking for something never gives nothing.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Without factors of ten, so that equal amounts have equal fields.
    mantissa: i128,
    /// Never below [`SCALE_MIN`].
    exponent: i32,
    format: Format,
    /// The text as it was written, where Kubernetes gives it back unchanged though it is not the shortest form.
    text: Option<Box<str>>,
}

/// How a quantity is printed: as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `12M`
    #[default]
    DecimalSi,
    /// `12Mi`
    BinarySi,
    /// `12e6`
    DecimalExponent,
}

/// The smallest power of ten that is kept: nano.
const SCALE_MIN: i32 = -9;
/// The power of ten of milli.
const MILLI: i32 = -3;
/// The largest power of ten that has a suffix of its own: exa.
const SCALE_SUFFIX_MAX: i32 = 18;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::DecimalSi, text: None };

    /// A whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self::from_parts(value.into(), 0, format)
    }

    /// So many thousandths.
    pub fn from_milli(thousandths: i64, format: Format) -> Self {
        Self::from_parts(thousandths.into(), MILLI, format)
    }

    /// Reads a quantity as Kubernetes does.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }

    /// How this quantity is printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The exact whole number, if it is one that fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_integer().and_then(|integer| integer.try_into().ok())
    }

    /// Rounded away from zero to a whole number. Bounded by what fits.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Rounded away from zero to thousandths. Bounded by what fits.
    pub fn milli_value(&self) -> i64 {
        self.scaled(MILLI)
    }

    /// The nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// Adds another quantity. Nothing takes over the format of what is added to it. Beyond 38 digits the larger of the two
    /// remains.
    pub fn add(&mut self, other: &Self) {
        let format = if self.is_zero() { other.format } else { self.format };
        let sum = self.checked_sum(other.mantissa, other.exponent);
        let (mantissa, exponent) = sum.unwrap_or_else(|| {
            let larger = if self.magnitude_cmp(other).is_ge() { &*self } else { other };
            (larger.mantissa, larger.exponent)
        });
        *self = Self::from_parts(mantissa, exponent, format);
    }

    /// Takes another quantity away.
    pub fn sub(&mut self, other: &Self) {
        self.add(&other.negated());
    }

    /// The same amount with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { mantissa: -self.mantissa, text: None, ..*self }
    }

    /// So many times this amount; `None` beyond 38 digits.
    pub fn checked_mul(&self, factor: i64) -> Option<Self> {
        Some(Self::from_parts(self.mantissa.checked_mul(factor.into())?, self.exponent, self.format))
    }

    fn from_parts(mut mantissa: i128, mut exponent: i32, format: Format) -> Self {
        if mantissa == 0 {
            return Self { format, ..Self::ZERO };
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        // The most negative number has no positive twin; it is beyond the 38 digits promised anyway.
        Self { mantissa: mantissa.max(-i128::MAX), exponent, format, text: None }
    }

    fn as_integer(&self) -> Option<i128> {
        let power = u32::try_from(self.exponent).ok()?;
        if self.mantissa == 0 { Some(0) } else { self.mantissa.checked_mul(10i128.checked_pow(power)?) }
    }

    fn scaled(&self, scale: i32) -> i64 {
        let shift = i64::from(self.exponent) - i64::from(scale);
        let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10i128.checked_pow(shift));
        let scaled = match (power, shift >= 0) {
            _ if self.mantissa == 0 => 0,
            (Some(power), true) => self.mantissa.saturating_mul(power),
            (Some(power), false) => {
                let rest = if self.mantissa % power == 0 { 0 } else { self.mantissa.signum() };
                self.mantissa / power + rest
            }
            (None, true) => self.mantissa.signum().saturating_mul(i128::MAX),
            (None, false) => self.mantissa.signum(),
        };
        i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
    }

    fn checked_sum(&self, mantissa: i128, exponent: i32) -> Option<(i128, i32)> {
        if mantissa == 0 || self.mantissa == 0 {
            return Some(if mantissa == 0 { (self.mantissa, self.exponent) } else { (mantissa, exponent) });
        }
        let lower = self.exponent.min(exponent);
        let left = align(self.mantissa, self.exponent, lower)?;
        Some((left.checked_add(align(mantissa, exponent, lower)?)?, lower))
    }

    fn magnitude_cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
        if left == 0 || right == 0 {
            return left.cmp(&right);
        }
        let digits = |magnitude: u128, exponent: i32| i64::from(magnitude.ilog10()) + i64::from(exponent);
        digits(left, self.exponent).cmp(&digits(right, other.exponent)).then_with(|| {
            // Equal powers of ten: the exponents differ by no more than the digits that a mantissa can have.
            let power = 10u128.checked_pow(self.exponent.abs_diff(other.exponent));
            let scale = |magnitude: u128| power.and_then(|power| magnitude.checked_mul(power)).unwrap_or(u128::MAX);
            match self.exponent.cmp(&other.exponent) {
                Ordering::Equal => left.cmp(&right),
                Ordering::Greater => scale(left).cmp(&right),
                Ordering::Less => left.cmp(&scale(right)),
            }
        })
    }

    /// Digits and suffix of the canonical form: no fraction, the largest suffix that loses nothing.
    fn canonical(&self) -> (String, String) {
        if self.is_zero() {
            return ("0".to_owned(), String::new());
        }
        if let Some(binary) = self.canonical_binary() {
            return binary;
        }
        let zeros = self.exponent.rem_euclid(3);
        let exponent = self.exponent - zeros;
        let digits = format!("{}{}", self.mantissa, "0".repeat(zeros.unsigned_abs() as usize));
        let suffix = match self.format {
            Format::DecimalExponent => None,
            Format::DecimalSi | Format::BinarySi => decimal_suffix(exponent),
        };
        (digits, suffix.map_or_else(|| exponent_suffix(exponent), str::to_owned))
    }

    /// Small and broken numbers are shown in decimal even if they were written in binary.
    fn canonical_binary(&self) -> Option<(String, String)> {
        if self.format != Format::BinarySi {
            return None;
        }
        let mut integer = self.as_integer().filter(|integer| integer.unsigned_abs() >= 1024)?;
        let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter();
        let mut suffix = *suffixes.next()?;
        while integer % 1024 == 0
            && let Some(next) = suffixes.next()
        {
            integer /= 1024;
            suffix = next;
        }
        Some((integer.to_string(), suffix.to_owned()))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return formatter.write_str(text);
        }
        let (digits, suffix) = self.canonical();
        write!(formatter, "{digits}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mantissa, self.exponent).hash(state);
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.mantissa.signum().cmp(&other.mantissa.signum()).then_with(|| {
            let magnitude = self.magnitude_cmp(other);
            if self.is_negative() { magnitude.reverse() } else { magnitude }
        })
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// From a string, around which Kubernetes tolerates white space, or from a number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Null => Ok(Self::ZERO),
            serde_json::Value::String(text) => Self::parse(text.trim()).map_err(de::Error::custom),
            other => Self::parse(&other.to_string()).map_err(de::Error::custom),
        }
    }
}

/// Why a text is no quantity. The words are those of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// Not of the shape of a quantity.
    Format,
    /// The digits are no number, or one that is too long.
    Numeric,
    /// An unknown suffix.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Numeric => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

fn align(mantissa: i128, exponent: i32, target: i32) -> Option<i128> {
    mantissa.checked_mul(10i128.checked_pow(exponent.abs_diff(target))?)
}

/// `None` where no suffix exists. Kubernetes then prints none and the number becomes another one; here it is printed with
/// an exponent instead.
fn decimal_suffix(exponent: i32) -> Option<&'static str> {
    if exponent > SCALE_SUFFIX_MAX {
        return None;
    }
    ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(usize::try_from((exponent - SCALE_MIN) / 3).ok()?).copied()
}

fn exponent_suffix(exponent: i32) -> String {
    if exponent == 0 { String::new() } else { format!("e{exponent}") }
}

#[cfg(test)]
mod tests;
