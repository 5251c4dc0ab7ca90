//! The canonical form of quantities: no fraction, and the largest suffix that loses no precision.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/resource/quantity.go

/// A decimal number as its digits and the power of ten.
struct Number {
    negative: bool,
    digits: u128,
    exponent: i32,
}

enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// The canonical form of a quantity; `None` if the text is not a quantity or has more than 38 digits.
pub fn canonical(text: &str) -> Option<String> {
    let (mut number, suffix) = split(text)?;
    let (format, decimal_power, binary_power) = suffix_value(suffix)?;
    number.exponent += decimal_power;
    for _ in 0..binary_power {
        number.digits = number.digits.checked_mul(1024)?;
    }
    while number.digits != 0 && number.digits.is_multiple_of(10) {
        number.digits /= 10;
        number.exponent += 1;
    }
    // The smallest unit is a billionth (nano); smaller fractions are rounded away from zero.
    while number.exponent < -9 {
        number.digits = number.digits.div_ceil(10);
        number.exponent += 1;
    }
    if number.digits == 0 {
        return Some("0".to_string());
    }
    let sign = if number.negative { "-" } else { "" };
    let body = match format {
        Format::Binary => match whole(&number)? {
            value if value >= 1024 => binary(value),
            _ => decimal(&number, false)?,
        },
        Format::Exponent => decimal(&number, true)?,
        Format::Decimal => decimal(&number, false)?,
    };
    Some(format!("{sign}{body}"))
}

/// A fast check. If it returns true, the text is in canonical form; if it returns false, the text may still be.
pub(crate) fn is_canonical(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 9 || text.starts_with('0') {
        return false;
    }
    let (number, suffix) = text.split_at(digits);
    let number: u32 = number.parse().unwrap_or(0);
    match suffix {
        "" | "m" | "k" | "M" | "G" | "T" | "P" | "E" => !number.is_multiple_of(1000),
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => !number.is_multiple_of(1024),
        _ => false,
    }
}

fn split(text: &str) -> Option<(Number, &str)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (mantissa, suffix) = rest.split_at(end);
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("0{integer}{fraction}").parse().ok()?;
    Some((Number { negative, digits, exponent: -i32::try_from(fraction.len()).ok()? }, suffix))
}

fn suffix_value(suffix: &str) -> Option<(Format, i32, u32)> {
    let decimal = |power| Some((Format::Decimal, power, 0));
    let binary = |power| Some((Format::Binary, 0, power));
    match suffix {
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
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // An exponent beyond 100 exceeds any valid quantity. The limit prevents overflow in the arithmetic.
            (power.abs() <= 100).then_some((Format::Exponent, power, 0))
        }
    }
}

/// The value as an integer, rounded away from zero.
fn whole(number: &Number) -> Option<u128> {
    let power = 10u128.checked_pow(number.exponent.unsigned_abs())?;
    if number.exponent >= 0 { number.digits.checked_mul(power) } else { Some(number.digits.div_ceil(power)) }
}

fn binary(mut value: u128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut index = 0;
    while value.is_multiple_of(1024) && index + 1 < SUFFIXES.len() {
        value /= 1024;
        index += 1;
    }
    format!("{value}{}", SUFFIXES[index])
}

fn decimal(number: &Number, exponent_form: bool) -> Option<String> {
    let mut digits = number.digits;
    let mut exponent = number.exponent;
    while exponent.rem_euclid(3) != 0 || (!exponent_form && exponent > 18) {
        digits = digits.checked_mul(10)?;
        exponent -= 1;
    }
    if exponent_form {
        return Some(if exponent == 0 { digits.to_string() } else { format!("{digits}e{exponent}") });
    }
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        _ => "E",
    };
    Some(format!("{digits}{suffix}"))
}
