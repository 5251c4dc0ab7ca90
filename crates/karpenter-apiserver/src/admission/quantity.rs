//! Resource quantities: exact values that can be compared and added, and the string that Go writes for a quantity that
//! it read.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/resource/quantity.go

use std::fmt;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// The maximum of quantities with binary suffixes (2^63 - 1 units), as in Go.
const UNITS_MAX: i128 = i64::MAX as i128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    DecimalExponent,
    BinarySi,
}

/// A quantity, as a number of billionths.
#[derive(Debug, Clone)]
pub(crate) struct Quantity {
    nanos: i128,
    format: Format,
    /// The original string, if Go would write it unchanged.
    text: Option<String>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    pub(crate) fn zero() -> Self {
        Self { nanos: 0, format: Format::DecimalSi, text: None }
    }

    /// Parses a quantity; `None` if Go rejects the string.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let negative = text.starts_with('-');
        let integer_length = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (integer, rest) = unsigned.split_at(integer_length);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let (base, exponent, format) = interpret_suffix(suffix)?;
        let digits: String = integer.trim_start_matches('0').chars().chain(fraction.chars()).collect();
        let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let nanos = match base {
            2 => {
                let scaled = mantissa.checked_mul(1_i128 << exponent).unwrap_or(i128::MAX / NANOS_PER_UNIT);
                let nanos = shift_decimal(scaled, 9 - fraction.len() as i32);
                nanos.min(UNITS_MAX * NANOS_PER_UNIT)
            }
            _ => shift_decimal(mantissa, 9 + exponent - fraction.len() as i32),
        };
        let scale = exponent - fraction.len() as i32;
        let format = if format == Format::BinarySi && nanos > 0 && nanos < NANOS_PER_UNIT {
            Format::DecimalSi
        } else {
            format
        };
        let keeps_text = match format {
            Format::BinarySi => fraction.is_empty() && mantissa & 7 != 0,
            _ => {
                base == 10
                    && scale % 3 == 0
                    && scale >= -9
                    && !digits.ends_with("000")
                    && !digits.starts_with('0')
            }
        };
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
            text: (keeps_text && nanos != 0).then(|| text.to_string()),
        })
    }

    /// Reads a quantity from JSON, where it is a string or a number.
    pub(crate) fn from_json(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::String(text) => Self::parse(text.trim()),
            serde_json::Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// The value in thousandths, rounded up, for computing ratios.
    pub(crate) fn millis(&self) -> i128 {
        div_ceil(self.nanos, 1_000_000)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.nanos == 0 {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.text = None;
    }

    /// Rounds up to a multiple of one thousandth, the precision of resource lists.
    pub(crate) fn round_up_to_milli(&mut self) {
        let rounded = div_ceil(self.nanos, 1_000_000) * 1_000_000;
        if rounded != self.nanos {
            self.nanos = rounded;
            self.text = None;
        }
    }
}

/// Prints the string that Go would write.
impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return formatter.write_str(text);
        }
        if self.nanos == 0 {
            return formatter.write_str("0");
        }
        let units = self.nanos / NANOS_PER_UNIT;
        if self.format == Format::BinarySi && self.is_whole() && units.abs() >= 1024 {
            let (mut mantissa, mut power) = (units, 0);
            while mantissa % 1024 == 0 && power < 6 {
                mantissa /= 1024;
                power += 1;
            }
            return write!(formatter, "{mantissa}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut mantissa, mut power) = (self.nanos, 0);
        while mantissa % 1000 == 0 && power < 9 {
            mantissa /= 1000;
            power += 1;
        }
        if self.format == Format::DecimalExponent {
            let exponent = power as i32 * 3 - 9;
            return if exponent == 0 {
                write!(formatter, "{mantissa}")
            } else {
                write!(formatter, "{mantissa}e{exponent}")
            };
        }
        write!(formatter, "{mantissa}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
    }
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

/// Computes `value` times ten to the power of `places`. The result is rounded up if digits are lost, and capped if it
/// overflows.
fn shift_decimal(value: i128, places: i32) -> i128 {
    if places >= 0 {
        if value == 0 {
            return 0;
        }
        10_i128
            .checked_pow(places as u32)
            .and_then(|factor| value.checked_mul(factor))
            .unwrap_or(i128::MAX / 2)
    } else {
        match 10_i128.checked_pow(places.unsigned_abs()) {
            Some(factor) => div_ceil(value, factor),
            None => i128::from(value != 0),
        }
    }
}

fn interpret_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    let plain = match suffix {
        "" => (10, 0, Format::DecimalSi),
        "n" => (10, -9, Format::DecimalSi),
        "u" => (10, -6, Format::DecimalSi),
        "m" => (10, -3, Format::DecimalSi),
        "k" => (10, 3, Format::DecimalSi),
        "M" => (10, 6, Format::DecimalSi),
        "G" => (10, 9, Format::DecimalSi),
        "T" => (10, 12, Format::DecimalSi),
        "P" => (10, 15, Format::DecimalSi),
        "E" => (10, 18, Format::DecimalSi),
        "Ki" => (2, 10, Format::BinarySi),
        "Mi" => (2, 20, Format::BinarySi),
        "Gi" => (2, 30, Format::BinarySi),
        "Ti" => (2, 40, Format::BinarySi),
        "Pi" => (2, 50, Format::BinarySi),
        "Ei" => (2, 60, Format::BinarySi),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            (10, exponent.clamp(-64, 64), Format::DecimalExponent)
        }
    };
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_formatted_as_in_go() {
        let table = [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("100", "100"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("100e1", "1e3"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000Mi", "1000Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("1500k", "1500k"),
            ("-1", "-1"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("12345678901234567890", "12345678901234567890"),
            ("0.1Ki", "102400m"),
            ("2000M", "2G"),
        ];
        for (text, expected) in table {
            assert_eq!(
                Quantity::parse(text).map(|quantity| quantity.to_string()).as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_quantity_is_rejected() {
        for text in ["", "a", "1x", "1 Gi", ".", "1ki", "1e", "--1", "1mm", "Mi"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn quantities_of_different_formats_compare() {
        let parse = |text| Quantity::parse(text).expect("valid");
        assert_eq!(parse("1"), parse("1000m"));
        assert_eq!(parse("1Ki"), parse("1024"));
        assert!(parse("1Gi") > parse("1G"));
        assert!(!parse("100m").is_whole() && parse("2e3").is_whole());
        let mut sum = parse("100m");
        sum.add(&parse("0.9"));
        assert_eq!(sum.to_string(), "1");
    }
}
