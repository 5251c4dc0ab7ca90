//! Go durations: `1h30m`, `720h`, `1.5h`, `100ms`, `-2s`.
//!
//! Parses and formats Go durations as nanoseconds. [`GoDuration`] is printed in Go's canonical form;
//! [`NillableDuration`] can be `Never`, and keeps its original text.
//!
//! Upstream: Go's `time.ParseDuration`, and `pkg/apis/v1/duration.go`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MINUTE: u64 = 60 * NANOS_PER_SECOND;
const NANOS_PER_HOUR: u64 = 60 * NANOS_PER_MINUTE;
/// One more than the largest positive duration in nanoseconds; its negation is the smallest duration.
const NANOS_LIMIT: u64 = 1 << 63;

/// Why a string is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("duration {text:?} is not valid; write numbers with units, such as 30s, 1h30m or 720h")]
    Malformed { text: String },
    #[error("duration {text:?} has a number without a unit; valid units are ns, us, ms, s, m and h")]
    MissingUnit { text: String },
    #[error("duration {text:?} has unknown unit {unit:?}; valid units are ns, us, ms, s, m and h")]
    UnknownUnit { text: String, unit: String },
    #[error("duration {text:?} is too long; the longest is about 292 years (2562047h)")]
    TooLong { text: String },
}

/// Parses a Go duration such as `1h30m` into nanoseconds.
pub fn parse_go_duration(text: &str) -> Result<i64, DurationError> {
    let malformed = || DurationError::Malformed { text: excerpt(text) };
    let too_long = || DurationError::TooLong { text: excerpt(text) };
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole_digits, after_whole) = split_while(rest, |c| c.is_ascii_digit());
        let (fraction_digits, after_number) = match after_whole.strip_prefix('.') {
            Some(after_point) => split_while(after_point, |c| c.is_ascii_digit()),
            None => ("", after_whole),
        };
        if whole_digits.is_empty() && fraction_digits.is_empty() {
            return Err(malformed());
        }
        let (unit, after_unit) = split_while(after_number, |c| c != '.' && !c.is_ascii_digit());
        if unit.is_empty() {
            return Err(DurationError::MissingUnit { text: excerpt(text) });
        }
        let unit_nanos = match unit {
            "ns" => 1,
            // The micro sign and the Greek letter mu look alike; both are accepted.
            "us" | "\u{b5}s" | "\u{3bc}s" => NANOS_PER_MICRO,
            "ms" => NANOS_PER_MILLI,
            "s" => NANOS_PER_SECOND,
            "m" => NANOS_PER_MINUTE,
            "h" => NANOS_PER_HOUR,
            _ => return Err(DurationError::UnknownUnit { text: excerpt(text), unit: excerpt(unit) }),
        };
        let whole: u64 =
            if whole_digits.is_empty() { 0 } else { whole_digits.parse().map_err(|_| too_long())? };
        let part = whole
            .checked_mul(unit_nanos)
            .and_then(|nanos| nanos.checked_add(fraction_nanos(fraction_digits, unit_nanos)))
            .filter(|nanos| *nanos <= NANOS_LIMIT)
            .ok_or_else(too_long)?;
        total = total.checked_add(part).filter(|nanos| *nanos <= NANOS_LIMIT).ok_or_else(too_long)?;
        rest = after_unit;
    }
    match (negative, total) {
        (true, NANOS_LIMIT) => Ok(i64::MIN),
        (true, nanos) => i64::try_from(nanos).map(|nanos| -nanos).map_err(|_| too_long()),
        (false, nanos) => i64::try_from(nanos).map_err(|_| too_long()),
    }
}

/// Go drops fraction digits that would overflow and scales the rest as a 64-bit float. The result here must equal Go's
/// to the nanosecond.
fn fraction_nanos(digits: &str, unit_nanos: u64) -> u64 {
    let (mut value, mut scale) = (0u64, 1f64);
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        let next = if value > (NANOS_LIMIT - 1) / 10 { None } else { Some(value * 10 + digit) };
        match next.filter(|next| *next <= NANOS_LIMIT) {
            Some(next) => {
                value = next;
                scale *= 10.0;
            }
            None => break,
        }
    }
    (value as f64 * (unit_nanos as f64 / scale)) as u64
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A duration in nanoseconds; printed and serialized as `1h30m0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoDuration {
    pub nanos: i64,
}

impl GoDuration {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    pub const fn from_seconds(seconds: i64) -> Self {
        Self { nanos: seconds.saturating_mul(NANOS_PER_SECOND as i64) }
    }

    /// Whole seconds, rounded towards negative infinity.
    pub const fn seconds_floor(self) -> i64 {
        self.nanos.div_euclid(NANOS_PER_SECOND as i64)
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_go_duration(text).map(Self::from_nanos)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.nanos.unsigned_abs();
        if magnitude == 0 {
            return f.write_str("0s");
        }
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if magnitude < NANOS_PER_SECOND {
            let (unit_nanos, unit) = if magnitude < NANOS_PER_MICRO {
                (1, "ns")
            } else if magnitude < NANOS_PER_MILLI {
                (NANOS_PER_MICRO, "µs")
            } else {
                (NANOS_PER_MILLI, "ms")
            };
            return write_decimal(f, magnitude, unit_nanos, unit);
        }
        let (hours, minutes) = (magnitude / NANOS_PER_HOUR, magnitude % NANOS_PER_HOUR / NANOS_PER_MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write_decimal(f, magnitude % NANOS_PER_MINUTE, NANOS_PER_SECOND, "s")
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit_nanos: u64, unit: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit_nanos)?;
    let fraction = nanos % unit_nanos;
    if fraction > 0 {
        let digits = unit_nanos.ilog10() as usize;
        let padded = format!("{fraction:0digits$}");
        write!(f, ".{}", padded.trim_end_matches('0'))?;
    }
    f.write_str(unit)
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A duration or `Never`.
///
/// A duration, or `Never`. It is printed as the text that it was parsed from, so that a manifest in version control
/// does not differ from the stored object. Two values are equal if their durations are, whatever their text.
#[derive(Clone, Debug)]
pub struct NillableDuration {
    nanos: Option<i64>,
    raw: Option<Box<str>>,
}

impl NillableDuration {
    pub const NEVER_TEXT: &'static str = "Never";
    pub const NEVER: NillableDuration = NillableDuration { nanos: None, raw: None };

    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos: Some(nanos), raw: None }
    }

    /// The duration in nanoseconds; `None` for `Never`.
    pub const fn nanos(&self) -> Option<i64> {
        self.nanos
    }

    pub const fn is_never(&self) -> bool {
        self.nanos.is_none()
    }
}

impl PartialEq for NillableDuration {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for NillableDuration {}

impl FromStr for NillableDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = if text == Self::NEVER_TEXT { None } else { Some(parse_go_duration(text)?) };
        Ok(Self { nanos, raw: Some(text.into()) })
    }
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.raw, self.nanos) {
            (Some(raw), _) => f.write_str(raw),
            (None, Some(nanos)) => GoDuration::from_nanos(nanos).fmt(f),
            (None, None) => f.write_str(Self::NEVER_TEXT),
        }
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
