//! Parses a quantity digit by digit, so that long input neither loses precision nor overflows.

use super::{NANOS_PER_UNIT, QuantityFormat};

/// Why a string is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantity is empty; write a number with an optional suffix, such as 2, 500m or 1.5Gi")]
    Empty,
    #[error(
        "quantity {text:?} has no number; write a number with an optional suffix, such as 2, 500m or 1.5Gi"
    )]
    NoDigits { text: String },
    #[error(
        "quantity {text:?} has unknown suffix {suffix:?}; valid suffixes are n u m k M G T P E Ki Mi Gi Ti Pi Ei \
         or an exponent such as e3"
    )]
    UnknownSuffix { text: String, suffix: String },
    #[error("quantity {text:?} is too large; the largest value is about 10^29")]
    TooLarge { text: String },
}

/// Kubernetes caps quantities with binary suffixes at the largest signed 64-bit integer instead of rejecting them.
const BINARY_NANOS_MAX: u128 = i64::MAX as u128 * NANOS_PER_UNIT as u128;

enum Scale {
    PowerOfTwo(u32),
    PowerOfTen(i64),
}

pub(super) fn parse(text: &str) -> Result<(i128, QuantityFormat), QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::NoDigits { text: excerpt(text) });
    }
    let unknown_suffix = || QuantityError::UnknownSuffix { text: excerpt(text), suffix: excerpt(suffix) };
    let (scale, mut format) = interpret_suffix(suffix).ok_or_else(unknown_suffix)?;
    let magnitude = match scale {
        Scale::PowerOfTen(exponent) => decimal_nanos(whole, fraction, exponent),
        // A quantity with a binary suffix that overflows the accumulator is above the cap as well.
        Scale::PowerOfTwo(exponent) => Some(
            binary_nanos(whole, fraction, exponent)
                .map_or(BINARY_NANOS_MAX, |nanos| nanos.min(BINARY_NANOS_MAX)),
        ),
    };
    let nanos = magnitude
        .and_then(|nanos| i128::try_from(nanos).ok())
        .ok_or_else(|| QuantityError::TooLarge { text: excerpt(text) })?;
    if format == QuantityFormat::BinarySi && nanos > 0 && nanos < NANOS_PER_UNIT {
        format = QuantityFormat::DecimalSi;
    }
    Ok((if negative { -nanos } else { nanos }, format))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Shortens input that an error message quotes.
fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn interpret_suffix(suffix: &str) -> Option<(Scale, QuantityFormat)> {
    use QuantityFormat::{BinarySi, DecimalExponent, DecimalSi};
    let known = match suffix {
        "n" => (Scale::PowerOfTen(-9), DecimalSi),
        "u" => (Scale::PowerOfTen(-6), DecimalSi),
        "m" => (Scale::PowerOfTen(-3), DecimalSi),
        "" => (Scale::PowerOfTen(0), DecimalSi),
        "k" => (Scale::PowerOfTen(3), DecimalSi),
        "M" => (Scale::PowerOfTen(6), DecimalSi),
        "G" => (Scale::PowerOfTen(9), DecimalSi),
        "T" => (Scale::PowerOfTen(12), DecimalSi),
        "P" => (Scale::PowerOfTen(15), DecimalSi),
        "E" => (Scale::PowerOfTen(18), DecimalSi),
        "Ki" => (Scale::PowerOfTwo(10), BinarySi),
        "Mi" => (Scale::PowerOfTwo(20), BinarySi),
        "Gi" => (Scale::PowerOfTwo(30), BinarySi),
        "Ti" => (Scale::PowerOfTwo(40), BinarySi),
        "Pi" => (Scale::PowerOfTwo(50), BinarySi),
        "Ei" => (Scale::PowerOfTwo(60), BinarySi),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            (Scale::PowerOfTen(exponent), DecimalExponent)
        }
    };
    Some(known)
}

/// Computes `whole.fraction × 10^exponent` in nanounits, rounded up; `None` if the result does not fit.
///
/// This needs no arithmetic, because only the decimal point moves: the digits left of its new position are the
/// nanounits, and a non-zero digit right of it rounds up.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i64) -> Option<u128> {
    let point = i128::from(exponent) + 9 + whole.len() as i128;
    let mut nanos: u128 = 0;
    let mut round_up = false;
    let mut digits_read: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()).map(|byte| u128::from(byte - b'0')) {
        if digits_read < point {
            nanos = nanos.checked_mul(10)?.checked_add(digit)?;
        } else {
            round_up |= digit != 0;
        }
        digits_read += 1;
    }
    if nanos != 0 {
        for _ in digits_read..point {
            nanos = nanos.checked_mul(10)?;
        }
    }
    nanos.checked_add(u128::from(round_up))
}

/// Computes `whole.fraction × 2^exponent` in nanounits, rounded up; `None` if the result does not fit.
fn binary_nanos(whole: &str, fraction: &str, exponent: u32) -> Option<u128> {
    let multiplier = NANOS_PER_UNIT.unsigned_abs() << exponent;
    let mut units: u128 = 0;
    for digit in whole.bytes().map(|byte| u128::from(byte - b'0')) {
        units = units.checked_mul(10)?.checked_add(digit)?;
    }
    // Horner's rule from the last digit. Rounding down in every step gives the total rounded down. If any step has a
    // remainder, the exact product is not an integer, and the result is rounded up.
    let mut part: u128 = 0;
    let mut round_up = false;
    for digit in fraction.bytes().rev().map(|byte| u128::from(byte - b'0')) {
        let sum = digit * multiplier + part;
        round_up |= !sum.is_multiple_of(10);
        part = sum / 10;
    }
    units.checked_mul(multiplier)?.checked_add(part)?.checked_add(u128::from(round_up))
}
