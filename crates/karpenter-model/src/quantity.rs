//! Kubernetes resource quantities: an exact number of nanounits (billionths), and the format in which the quantity was
//! written.
//!
//! Quantities are parsed with suffixes and exponents, rounded up to whole nanounits, and printed in the canonical form
//! of the API server. No floating point is used, so quantities are equal exactly if their values are.
//!
//! Upstream: Kubernetes `k8s.io/apimachinery/pkg/api/resource/quantity.go`.

mod parse;
#[cfg(test)]
mod tests;

pub use parse::QuantityError;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

pub(crate) const NANOS_PER_UNIT: i128 = 1_000_000_000;
pub(crate) const NANOS_PER_MILLI: i128 = 1_000_000;

/// The format in which a quantity was written. It is printed in that format unless this would lose precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuantityFormat {
    /// Suffixes for powers of 1024: `Ki`, `Mi`, …, `Ei`.
    BinarySi,
    /// Powers of 1000: `n`, `u`, `m`, none, `k`, `M`, …, `E`.
    #[default]
    DecimalSi,
    /// Powers of ten with an exponent that is a multiple of three, such as `1e3`.
    DecimalExponent,
}

/// An exact amount of a resource.
///
/// Comparison, equality and hash use only the value: `1` equals `1000m`. Results of arithmetic are capped at the limits
/// of 128-bit nanounits, which no parsed quantity reaches.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: QuantityFormat,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { nanos: 0, format: QuantityFormat::DecimalSi };

    pub const fn from_nanos(nanos: i128, format: QuantityFormat) -> Self {
        Self { nanos, format }
    }

    /// A quantity of `milli` thousandths in decimal format.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format: QuantityFormat::DecimalSi }
    }

    /// A quantity of `value` whole units.
    pub const fn from_value(value: i64, format: QuantityFormat) -> Self {
        Self { nanos: value as i128 * NANOS_PER_UNIT, format }
    }

    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    pub const fn format(self) -> QuantityFormat {
        self.format
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The amount in thousandths, rounded up; used for requests.
    pub fn milli_ceil(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS_PER_MILLI))
    }

    /// The amount in thousandths, rounded down; used for capacities.
    pub fn milli_floor(self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS_PER_MILLI))
    }

    /// The amount in whole units, rounded up.
    pub fn value_ceil(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS_PER_UNIT))
    }

    /// The amount in whole units, rounded down.
    pub fn value_floor(self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS_PER_UNIT))
    }

    /// The value as a float, which may be inexact: for reports only, not for decisions.
    pub fn to_f64_lossy(self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }
}

fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    let floor = dividend.div_euclid(divisor);
    if dividend.rem_euclid(divisor) == 0 { floor } else { floor + 1 }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl AddAssign for Quantity {
    /// The sum keeps the format of the left side; if the left side is zero, it has the format of the right side.
    fn add_assign(&mut self, other: Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_sub(other.nanos);
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (nanos, format) = parse::parse(text)?;
        Ok(Self { nanos, format })
    }
}

const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let magnitude = self.nanos.unsigned_abs();
        let unit = NANOS_PER_UNIT.unsigned_abs();
        // A small or fractional amount cannot be printed exactly with a binary suffix.
        let binary = self.format == QuantityFormat::BinarySi
            && magnitude >= 1024 * unit
            && magnitude.is_multiple_of(unit);
        let sign = if self.nanos < 0 { "-" } else { "" };
        if binary {
            let (mut number, mut power) = (magnitude / unit, 0);
            while number.is_multiple_of(1024) && power + 1 < BINARY_SUFFIXES.len() {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{sign}{number}{}", BINARY_SUFFIXES[power]);
        }
        let (mut number, mut power) = (magnitude, 0);
        let power_max = match self.format {
            QuantityFormat::DecimalExponent => usize::MAX,
            QuantityFormat::BinarySi | QuantityFormat::DecimalSi => DECIMAL_SUFFIXES.len() - 1,
        };
        while number.is_multiple_of(1000) && power < power_max {
            number /= 1000;
            power += 1;
        }
        match self.format {
            QuantityFormat::DecimalExponent if power == 3 => write!(f, "{sign}{number}"),
            QuantityFormat::DecimalExponent => write!(f, "{sign}{number}e{}", power as i64 * 3 - 9),
            QuantityFormat::BinarySi | QuantityFormat::DecimalSi => {
                write!(f, "{sign}{number}{}", DECIMAL_SUFFIXES[power])
            }
        }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts a string, a number, or null. Kubernetes treats null as zero.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a resource quantity such as 2, 500m or 1.5Gi")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_value(value, QuantityFormat::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nanos(i128::from(value) * NANOS_PER_UNIT, QuantityFormat::DecimalSi))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        // The shortest decimal that parses to the same float is the number that the input had.
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}
