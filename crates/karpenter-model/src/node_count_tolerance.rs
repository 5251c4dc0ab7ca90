//! How much more than the cheapest fleet a fleet with fewer nodes may cost.

use std::fmt;
use std::str::FromStr;

/// A percentage of the price, from 0 to 100 in steps of 0.01. With 0, a fleet with fewer nodes is not preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeCountTolerance {
    hundredths: u16,
}

impl NodeCountTolerance {
    /// Prices alone.
    pub const NONE: Self = Self { hundredths: 0 };

    /// A description of the valid values, for messages.
    pub const VALID: &str = "a percentage from 0 to 100, such as 0.5";

    /// Creates a tolerance, rounded to 0.01; `None` if the percentage is not from 0 to 100.
    pub fn from_percent(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then(|| Self { hundredths: (percent * 100.0).round() as u16 })
    }

    /// 0.005 for 0.5 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.hundredths) / 10_000.0
    }

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl Default for NodeCountTolerance {
    /// 0.5 %.
    fn default() -> Self {
        Self { hundredths: 50 }
    }
}

impl fmt::Display for NodeCountTolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.hundredths) / 100.0)
    }
}

/// The text is not a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCountToleranceError;

impl fmt::Display for NodeCountToleranceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "valid: {}", NodeCountTolerance::VALID)
    }
}

impl std::error::Error for NodeCountToleranceError {}

impl FromStr for NodeCountTolerance {
    type Err = NodeCountToleranceError;

    fn from_str(text: &str) -> Result<Self, NodeCountToleranceError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent = text.parse().ok().filter(|_| is_number);
        percent.and_then(Self::from_percent).ok_or(NodeCountToleranceError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_up_to_100_are_tolerances() {
        for (text, fraction, shown) in [
            ("0", 0.0, "0"),
            ("0.5", 0.005, "0.5"),
            ("2", 0.02, "2"),
            ("100", 1.0, "100"),
            ("0.016", 0.0002, "0.02"),
        ] {
            let tolerance: NodeCountTolerance = text.parse().expect(text);
            assert_eq!((tolerance.fraction(), &*tolerance.to_string()), (fraction, shown));
        }
        assert_eq!(NodeCountTolerance::default().to_string(), "0.5");
        for wrong in ["", "101", "-1", "+5", "10%", "half", " 1", "1e1", "NaN", "1.2.3", "."] {
            assert_eq!(wrong.parse::<NodeCountTolerance>(), Err(NodeCountToleranceError), "{wrong:?}");
        }
    }
}
