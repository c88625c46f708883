//! Reading a quantity from text, with all that Kubernetes tolerates.

use super::{Format, Quantity, QuantityError, SCALE_MIN};

/// Longest text that is read. Kubernetes has no bound; no honest quantity comes near this one.
const TEXT_BYTES_MAX: usize = 1024;
/// Most decimal digits that are sure to fit in 64 bits; up to here Kubernetes keeps the text as it was written.
const SHORT_DIGITS_MAX: i64 = 18;

/// The parts of a quantity as they stand in the text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    /// Whether the text has any digit at all.
    has_digits: bool,
    suffix: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(QuantityError::Numeric);
    }
    let parts = split(text)?;
    let (suffix, format) = suffix(parts.suffix)?;
    let short = is_short(&parts, suffix);
    if !short && !parts.has_digits {
        return Err(QuantityError::Numeric);
    }
    let (magnitude, exponent, format) = match suffix {
        Suffix::Decimal(_) => amount(&parts, suffix).map(|(mantissa, exponent)| (mantissa, exponent, format))?,
        Suffix::Binary(_) => bounded_binary(amount(&parts, suffix)),
    };
    let mantissa = if parts.negative { -magnitude } else { magnitude };
    let mut quantity = Quantity::from_parts(mantissa, exponent, format);
    if short && is_kept_as_written(&parts, suffix) && quantity.to_string() != text {
        quantity.text = Some(text.into());
    }
    Ok(quantity)
}

#[derive(Clone, Copy)]
enum Suffix {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
}

fn suffix(text: &str) -> Result<(Suffix, Format), QuantityError> {
    let decimal = |exponent| Ok((Suffix::Decimal(exponent), Format::DecimalSi));
    let binary = |exponent| Ok((Suffix::Binary(exponent), Format::BinarySi));
    match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            let exponent = exponent.parse().map_err(|_| QuantityError::Suffix)?;
            Ok((Suffix::Decimal(exponent), Format::DecimalExponent))
        }
    }
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = split_digits(unsigned);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    let letters = rest.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let power = &rest[letters..];
    let power = power.strip_prefix(['+', '-']).unwrap_or(power);
    if !power.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts {
        negative: text.starts_with('-'),
        whole: whole.trim_start_matches('0'),
        fraction,
        has_digits: !whole.is_empty() || !fraction.is_empty(),
        suffix: rest,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Kubernetes cuts binary amounts at 64 bits, and prints those below one in decimal.
fn bounded_binary(amount: Result<(i128, i32), QuantityError>) -> (i128, i32, Format) {
    let most = Quantity::new(i64::MAX, Format::BinarySi);
    let bounded = amount.map(|(mantissa, exponent)| Quantity::from_parts(mantissa, exponent, Format::BinarySi));
    match bounded {
        Ok(quantity) if quantity <= most => {
            let below_one = !quantity.is_zero() && quantity < Quantity::new(1, Format::BinarySi);
            let format = if below_one { Format::DecimalSi } else { Format::BinarySi };
            (quantity.mantissa, quantity.exponent, format)
        }
        // Too many digits for an amount that is kept to nine decimals: far beyond the bound.
        Ok(_) | Err(_) => (most.mantissa, most.exponent, Format::BinarySi),
    }
}

/// The amount without its sign, rounded up to the smallest power of ten that is kept.
fn amount(parts: &Parts<'_>, suffix: Suffix) -> Result<(i128, i32), QuantityError> {
    let mut digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|byte| byte - b'0').collect();
    let power = match suffix {
        Suffix::Decimal(power) => power,
        Suffix::Binary(power) => {
            (0..power).for_each(|_| double(&mut digits));
            0
        }
    };
    let mut exponent = i64::from(power) - i64::try_from(parts.fraction.len()).map_err(|_| QuantityError::Numeric)?;
    let below = i64::from(SCALE_MIN) - exponent;
    let mut round_up = false;
    if below > 0 {
        let kept = digits.len().saturating_sub(usize::try_from(below).unwrap_or(usize::MAX));
        round_up = digits.drain(kept..).any(|digit| digit != 0);
        exponent = i64::from(SCALE_MIN);
    }
    while digits.last() == Some(&0) && !round_up {
        digits.pop();
        exponent += 1;
    }
    let mut magnitude = i128::from(round_up);
    let mut scale: i128 = 1;
    for (place, digit) in digits.iter().rev().enumerate() {
        if place > 0 {
            scale = scale.checked_mul(10).ok_or(QuantityError::Numeric)?;
        }
        let part = scale.checked_mul((*digit).into()).ok_or(QuantityError::Numeric)?;
        magnitude = magnitude.checked_add(part).ok_or(QuantityError::Numeric)?;
    }
    if magnitude == 0 {
        return Ok((0, 0));
    }
    Ok((magnitude, i32::try_from(exponent).map_err(|_| QuantityError::Numeric)?))
}

/// Doubles a number given by its decimal digits.
fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let doubled = *digit * 2 + carry;
        *digit = doubled % 10;
        carry = doubled / 10;
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

/// Whether Kubernetes reads this text without its arbitrary-precision arithmetic, which decides some oddities.
fn is_short(parts: &Parts<'_>, suffix: Suffix) -> bool {
    // An empty whole part counts as the digit zero.
    let whole = parts.whole.len().max(1);
    let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    match suffix {
        Suffix::Decimal(power) => {
            count(whole + parts.fraction.len()) <= SHORT_DIGITS_MAX
                && i64::from(power) - count(parts.fraction.len()) >= i64::from(SCALE_MIN)
        }
        // Three decimal digits for every ten binary ones.
        Suffix::Binary(power) => parts.fraction.is_empty() && count(whole) + i64::from(power * 3 / 10) <= 14,
    }
}

/// Whether Kubernetes takes the text for canonical already. It looks only at a few digits, so `+5`, `005` and `1.125`
/// come back as they were written, while `1.5` becomes `1500m`.
fn is_kept_as_written(parts: &Parts<'_>, suffix: Suffix) -> bool {
    match suffix {
        Suffix::Decimal(power) => {
            let scale = i64::from(power) - i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
            let ends_in_thousand = format!("{}{}", parts.whole, parts.fraction).ends_with("000");
            scale % 3 == 0 && !ends_in_thousand && !parts.whole.is_empty()
        }
        Suffix::Binary(_) => parts.whole.parse::<i64>().is_ok_and(|whole| whole & 7 != 0),
    }
}
