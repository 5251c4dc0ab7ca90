//! The limit of pods of a hard hostname topology spread on one node.
//!
//! kube-scheduler compares existing nodes only, so a single node with all replicas satisfies `maxSkew: 1`. The purpose of
//! such a constraint is that the loss of a node affects few replicas. A node therefore gets at most `maxSkew` of the
//! pods or this share of them, whichever is more.

use std::fmt;
use std::str::FromStr;

/// A percentage of the pods that the spread counts, from 0 to 100. 0 is upstream's behaviour: `maxSkew` pods per node,
/// because another node can always be launched. 100 is kube-scheduler's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadShare(u8);

impl SpreadShare {
    /// The valid values, for messages.
    pub const VALID: &str = "a whole number of percent from 0 to 100, such as 10";

    /// `None` above 100.
    pub const fn from_percent(percent: u8) -> Option<Self> {
        if percent <= 100 { Some(Self(percent)) } else { None }
    }

    pub const fn percent(self) -> u8 {
        self.0
    }
}

impl Default for SpreadShare {
    /// The default is 10 %: three replicas need three nodes, 500 replicas need at least ten.
    fn default() -> Self {
        Self(10)
    }
}

impl fmt::Display for SpreadShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The text is not a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpreadShareError;

impl fmt::Display for SpreadShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "valid: {}", SpreadShare::VALID)
    }
}

impl std::error::Error for SpreadShareError {}

impl FromStr for SpreadShare {
    type Err = SpreadShareError;

    fn from_str(text: &str) -> Result<Self, SpreadShareError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let percent = text.parse().ok().filter(|_| is_number);
        percent.and_then(Self::from_percent).ok_or(SpreadShareError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_percents_up_to_100_are_shares() {
        for percent in [0, 10, 100] {
            let share = percent.to_string().parse::<SpreadShare>();
            assert_eq!(share.map(SpreadShare::percent), Ok(percent));
        }
        for wrong in ["", "101", "-1", "+5", "10%", "0.5", "ten", " 10", "256"] {
            assert_eq!(wrong.parse::<SpreadShare>(), Err(SpreadShareError), "{wrong:?}");
        }
    }
}
