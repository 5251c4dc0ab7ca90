//! How many pods of a hard hostname topology spread one node may hold.
//!
//! kube-scheduler compares existing nodes only, so a single node with all replicas satisfies `maxSkew: 1`. But the
//! purpose of such a constraint is that the loss of a node affects few replicas. So the planner places at most
//! `maxSkew` of the pods on a node, or this share of them, whichever is more.

use std::fmt;
use std::str::FromStr;

/// A percentage of the pods that the spread counts, from 0 to 100. With 0, a node holds at most `maxSkew` of them, as
/// in upstream, which assumes that another node can always be launched. With 100, only kube-scheduler's rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadShare(u8);

impl SpreadShare {
    /// A description of the valid values, for messages.
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
    /// The default is 10 %: three replicas are spread over three nodes, 500 replicas over at least ten.
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
